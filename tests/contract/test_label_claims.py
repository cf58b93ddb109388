"""Labels: every task goes to a worker that has all its labels, and to no other, whoever claims when."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tests.contract.run_samples import claim, creation, make, run_row, task_row
from tidemill.engine.workflows.worker.claimer import excluded_tasks
from tidemill.storage.sqlite.memory import MemoryStore
from tidemill.workflows.records import VersionKey
from tidemill.workflows.spec import TaskSpec, WorkflowSpec

LABELS = st.frozensets(st.sampled_from(["gpu", "eu", "big"]))
Labels = frozenset[str]
Turns = list[tuple[int, int]]


@given(
    st.lists(LABELS, min_size=1, max_size=6),
    st.lists(LABELS, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=12),
)
def test_a_task_goes_to_a_worker_that_has_its_labels(tasks: list[Labels], workers: list[Labels], turns: Turns) -> None:
    """W-1: in any order of claims, and with any number of free slots; what no worker can run stays scheduled."""
    asyncio.run(check_claims(tasks, workers, turns))


async def check_claims(tasks: list[Labels], workers: list[Labels], turns: Turns) -> None:
    """Let workers claim in turns, then until nothing is left for them."""
    specs = [TaskSpec(name=f"t{number}", executor="worker", labels=tuple(ones)) for number, ones in enumerate(tasks)]
    loaded = {VersionKey("public", "flow", "v1"): WorkflowSpec(name="flow", tasks=tuple(specs))}
    store = MemoryStore()
    await store.open()
    await make(store, creation(run_row(), *(task_row(spec.name, executor="worker") for spec in specs)))
    claimed: dict[str, int] = {}
    for worker, slots in [*turns, *((number, len(tasks)) for number in range(len(workers)))]:
        owner = worker % len(workers)
        request = claim({"worker": slots}, owner=f"w{owner}", excluded=excluded_tasks(workers[owner], loaded))
        for one in await store.runs.claim(request):
            assert one.task.task not in claimed
            claimed[one.task.task] = owner
    for number, labels in enumerate(tasks):
        name = f"t{number}"
        assert (name in claimed) == any(labels <= offered for offered in workers)
        assert name not in claimed or labels <= workers[claimed[name]]
    await store.close()
