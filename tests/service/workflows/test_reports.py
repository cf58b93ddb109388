"""Reports of attempts that reach the store without whoever planned them."""

from collections.abc import AsyncIterator

import pytest

from tests.service.workflows.acting import START
from tests.service.workflows.pairs import until
from tidemill.engine.service import Tasks
from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.figures import Figures
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.owners import HostLiveness, this_process
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.settings import Settings
from tidemill.storage.memory.store import MemoryStore
from tidemill.workflows.change import Applied
from tidemill.workflows.draft import Draft
from tidemill.workflows.endings import Deferred, Ending, Skipped, Succeeded
from tidemill.workflows.records import AttemptKey, RunRow
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState

CLOCK = SystemClock()
KEY = AttemptKey("r1", "a", -1, 1)
PLACE = "a", -1
SPEC = WorkflowSpec(name="flow", tasks=(TaskSpec(name="a"),))


@pytest.fixture
async def environment() -> AsyncIterator[Environment]:
    """Yield what a node has around it, with an empty store."""
    store, tasks = MemoryStore(), Tasks()
    await store.open()
    await tasks.open()
    yield Environment(
        store=store,
        owner=this_process(CLOCK.now()),
        clock=CLOCK,
        settings=Settings(),
        figures=Figures(),
        tasks=tasks,
        liveness=HostLiveness(),
        executor="subprocess",
        pools={},
        is_alone=False,
    )
    await tasks.close()
    await store.close()


async def held(environment: Environment) -> Crew:
    """Return a crew that holds an attempt which it claimed and of which another has written that it has begun."""
    now, owner, runs = CLOCK.now(), environment.owner.id, environment.store.runs
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
    draft = Draft.of_new(run, SPEC, executor_of=environment.executor_of, actor=owner)
    draft.admit()
    draft.plan()
    row = draft.claim(PLACE, owner, begins=False)
    assert isinstance(await runs.apply(draft.change(lease=90)), Applied)
    crew = Crew(environment, Library(environment.store.versions, CLOCK), {})
    crew.hold(draft.run, row, SPEC)
    begun = Draft(draft.run, draft.rows, SPEC, now=now, actor=owner)
    assert begun.begin(KEY)
    assert isinstance(await runs.apply(begun.change(lease=90, is_guarded=False)), Applied)
    return crew


@pytest.mark.parametrize("ending", [Succeeded(b"\xc0"), Skipped("not needed"), Deferred(wake_at=START)])
async def test_an_end_is_written_although_the_office_that_wrote_the_beginning_is_gone(
    environment: Environment, ending: Ending
) -> None:
    """W-1, W-2: the desk recorded the beginning and was closed; the end is not lost for that."""
    crew = await held(environment)

    crew.ended(KEY, ending)

    async def is_told() -> bool:
        return not crew.reporting

    await until(is_told)
    [record] = await environment.store.runs.load(["r1"])
    assert not record.tasks[0].state.is_claimed
    assert not crew.held
