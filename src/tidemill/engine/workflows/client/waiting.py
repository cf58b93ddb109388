"""Tasks that have waited for long: for code, a slot of a pool, a worker, a slot of an executor, or an answer."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from tidemill.storage.run_overview import WaitingTask
from tidemill.storage.workflow_ports import Runs
from tidemill.workflows.definition import WORKER_EXECUTOR
from tidemill.workflows.records import VersionKey
from tidemill.workflows.states import TaskState

Wanted = Literal["code", "pool", "worker", "slot", "answer"]
"""What a task waits for: the code of its version, a slot of its pool, a worker, a slot of its executor, its poll."""
PATIENCE: dict[Wanted, timedelta] = {
    "code": timedelta(seconds=60),
    "pool": timedelta(minutes=5),
    "worker": timedelta(minutes=5),
    "slot": timedelta(minutes=5),
    "answer": timedelta(hours=1),
}
"""How long a task may wait until it needs a person. A deferred task is meant to wait."""
READ_LIMIT = 1000  # task runs that are read: more would say the same


class WaitingWork(NamedTuple):
    """The tasks of a workflow that wait for the same."""

    wanted: Wanted
    oldest: WaitingTask
    runs: int
    """How many runs have one; of very many, those that were read."""


async def find_waiting(runs: Runs, tenant: str, loaded: Collection[VersionKey], now: datetime) -> list[WaitingWork]:
    """Return what has waited for long, by workflow and by what it waits for; the longest first."""
    scheduled, deferred = now - min(PATIENCE.values()), now - PATIENCE["answer"]
    return _group(await runs.list_waiting(tenant, scheduled, deferred, READ_LIMIT), tenant, loaded, now)


def _group(
    tasks: Iterable[WaitingTask], tenant: str, loaded: Collection[VersionKey], now: datetime
) -> list[WaitingWork]:
    found: dict[tuple[str, Wanted], list[WaitingTask]] = {}
    for task in tasks:
        wanted = _wanted(task, has_code=VersionKey(tenant, task.workflow, task.version) in loaded)
        if now - task.since >= PATIENCE[wanted]:
            found.setdefault((task.workflow, wanted), []).append(task)
    work = [
        WaitingWork(wanted, min(some, key=lambda one: (one.since, one.run)), len({one.run for one in some}))
        for (_, wanted), some in found.items()
    ]
    return sorted(work, key=lambda one: one.oldest.since)


def _wanted(task: WaitingTask, *, has_code: bool) -> Wanted:
    if task.state is TaskState.DEFERRED:
        return "answer"
    if task.executor == WORKER_EXECUTOR:
        return "worker"
    if not has_code:
        return "code"
    return "slot" if task.pool is None else "pool"
