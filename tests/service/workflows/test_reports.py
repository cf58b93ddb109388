"""Reports of attempts that reach the store without the coordinator that planned them."""

from collections.abc import AsyncIterator

import pytest

from tests.service.workflows.acting import START
from tests.service.workflows.pairs import until
from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.metrics import WorkflowMetrics
from tidemill.engine.workflows.notifications import RunNotifier
from tidemill.engine.workflows.process_identity import HostLiveness, current_owner
from tidemill.engine.workflows.runtime import StoreSharing, WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.engine.workflows.worker.task_logs import TaskLogWriter
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.settings import Settings
from tidemill.storage.sqlite.memory import MemoryStore
from tidemill.telemetry.node_events import NodeEvents
from tidemill.workflows.attempt_results import AttemptResult, Deferred, Skipped, Succeeded
from tidemill.workflows.change import Applied
from tidemill.workflows.records import AttemptKey, RunRow
from tidemill.workflows.run_draft import RunDraft, new_task_rows
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState

CLOCK = SystemClock()
KEY = AttemptKey("r1", "a", -1, 1)
REF = "a", -1
SPEC = WorkflowSpec(name="flow", tasks=(TaskSpec(name="a"),))


@pytest.fixture
async def runtime() -> AsyncIterator[WorkflowRuntime]:
    """Yield the runtime of a node, with an empty store."""
    store, tasks = MemoryStore(), TaskScope()
    await store.open()
    await tasks.open()
    yield WorkflowRuntime(
        metrics=WorkflowMetrics(100),
        store=store,
        owner=current_owner(CLOCK.now()),
        clock=CLOCK,
        settings=Settings(),
        node_events=NodeEvents(CLOCK),
        tasks=tasks,
        liveness=HostLiveness(),
        default_executor="subprocess",
        pools={},
        sharing=StoreSharing(is_shared=True),
    )
    await tasks.close()
    await store.close()


async def held(runtime: WorkflowRuntime) -> LocalAttempts:
    """Return the attempts of a node that claimed one whose start was recorded by a coordinator."""
    now, owner, runs = CLOCK.now(), runtime.owner.id, runtime.store.runs
    run = RunRow(
        id="r1",
        tenant="public",
        workflow="flow",
        version="v",
        state=RunState.QUEUED,
        params=b"",
        origin="manual",
        created_at=now,
    )
    draft = RunDraft.for_new_run(run, new_task_rows(SPEC, runtime.executor_for), SPEC, actor=owner)
    draft.admit()
    draft.plan()
    row = draft.claim(REF, owner, starts_now=False)
    assert isinstance(await runs.apply(draft.build_change(lease=90)), Applied)
    versions, task_logs = WorkflowVersions(runtime.store.versions, CLOCK), TaskLogWriter(runtime, RunNotifier())
    attempts = LocalAttempts(runtime, versions, {}, task_logs)
    attempts.add_claimed(draft.run, row, SPEC)
    begun = RunDraft(draft.run, draft.rows, SPEC, now=now, actor=owner)
    assert begun.mark_started(KEY)
    assert isinstance(await runs.apply(begun.build_change(lease=90, is_guarded=False)), Applied)
    return attempts


@pytest.mark.parametrize("ending", [Succeeded(b"\xc0"), Skipped("not needed"), Deferred(wake_at=START)])
async def test_an_end_is_written_although_the_office_that_wrote_the_beginning_is_gone(
    runtime: WorkflowRuntime, ending: AttemptResult
) -> None:
    """W-1, W-2: the coordinator recorded the start and was closed; the result is written all the same."""
    attempts = await held(runtime)

    attempts.on_ended(KEY, ending)

    async def is_written() -> bool:
        return not attempts.reports_in_flight

    await until(is_written)
    [record] = await runtime.store.runs.load(["r1"])
    assert not record.tasks[0].state.is_claimed
    assert not attempts.claimed
