"""What must hold of every run in a store, whenever one looks: its history, its rows and its attempts tell one story."""

from collections import defaultdict
from collections.abc import Iterable

from tidemill.storage.workflow_ports import RunFilter, WorkflowStore
from tidemill.workflows.plan import UNMAPPED, mapped_state, run_outcome, upstream_view
from tidemill.workflows.records import AttemptRow, EventRow, RunRecord, VersionKey
from tidemill.workflows.rules import Verdict
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RUN_TRANSITIONS, TASK_TRANSITIONS, RunState, TaskState

Place = tuple[str, int]
CLAIMED = (TaskState.QUEUED, TaskState.RUNNING)


async def audit(
    store: WorkflowStore, specs: dict[str, WorkflowSpec], *, tenant: str = "public", is_one_leader: bool = True
) -> list[RunRecord]:
    """Check every run of a tenant, and return them all; `specs` by the workflow's name.

    Unless it `is_one_leader` who plans and runs, the end of a run may come after that of its last task: a report that
    is not the leader's own is written at once, and planned when the leader sees it.
    """
    rows = await store.runs.find(RunFilter(tenant=tenant, limit=100_000))
    records = await store.runs.load([row.id for row in rows])
    for record in records:
        spec = specs[record.run.workflow]
        assert await store.versions.get(VersionKey(tenant, spec.name, record.run.version)) is not None
        history = await store.runs.read_events(record.run.id)
        check_history(record, history)
        check_rules(spec, history)
        check_attempts(record, await store.runs.read_attempts(record.run.id), history)
        check_outcome(record, spec, is_one_leader=is_one_leader)
    return records


def check_history(record: RunRecord, history: Iterable[EventRow]) -> None:
    """I-3: the events of a run, and of each of its task runs, are a chain of legal moves to where it stands."""
    stands: dict[Place | None, str] = {None: RunState.QUEUED}
    for event in history:
        place = None if event.task is None else (event.task, event.index)
        assert stands.get(place, TaskState.NONE) == event.before, (place, stands.get(place), event)
        assert event.before != event.after, event
        if place is None:
            assert RUN_TRANSITIONS.is_allowed(RunState(event.before), RunState(event.after)), event
        else:
            assert TASK_TRANSITIONS.is_allowed(TaskState(event.before), TaskState(event.after)), event
        stands[place] = event.after
    assert stands.pop(None) == record.run.state
    for row in record.tasks:
        assert stands.pop((row.task, row.index), TaskState.NONE) == row.state, row
    assert set(stands.values()) <= {TaskState.NONE}, stands  # elements that made room for their whole, and back


def check_rules(spec: WorkflowSpec, history: Iterable[EventRow]) -> None:
    """I-10: a task is scheduled for the first time only when its rule says so of what was committed by then."""
    stands: dict[str, dict[int, TaskState]] = {task.name: {UNMAPPED: TaskState.NONE} for task in spec.tasks}
    for event in history:
        if event.task is None:
            continue
        task = spec.by_name[event.task]
        is_decided = event.before == TaskState.NONE and event.after == TaskState.SCHEDULED
        if is_decided and task.each is None:
            found = upstream_view(task, {name: _state(rows) for name, rows in stands.items()}, lambda _: True)
            assert found.verdict is Verdict.RUN, (event, found)
        rows = stands[event.task]
        if event.index != UNMAPPED:
            rows.pop(UNMAPPED, None)
        rows[event.index] = TaskState(event.after)


def _state(rows: dict[int, TaskState]) -> TaskState:
    if UNMAPPED in rows:
        return rows[UNMAPPED]
    is_fresh = all(state is TaskState.NONE for state in rows.values())
    return TaskState.NONE if is_fresh else mapped_state(rows.values())


def check_attempts(record: RunRecord, attempts: Iterable[AttemptRow], history: Iterable[EventRow]) -> None:
    """I-4, W-16: one row per claim, numbers that grow, one end each; what has no end is what is claimed now."""
    claims: defaultdict[Place, list[int]] = defaultdict(list)
    successes = set()
    for event in history:
        if event.task is not None and event.after == TaskState.QUEUED:
            claims[event.task, event.index].append(event.attempt)
        if event.task is not None and event.before in CLAIMED and event.after == TaskState.SUCCESS:
            successes.add((event.task, event.index, event.attempt))
    kept: defaultdict[Place, list[int]] = defaultdict(list)
    current = {(row.task, row.index, row.attempt) for row in record.tasks if row.state in CLAIMED}
    for attempt in attempts:
        _, task, index, number = attempt.key
        kept[task, index].append(number)
        is_open = attempt.ended_at is None
        assert is_open == ((task, index, number) in current), attempt
        assert is_open == (attempt.outcome == ""), attempt
        assert (attempt.outcome == "success") == ((task, index, number) in successes), attempt
    assert kept == claims
    for numbers in claims.values():
        assert numbers == sorted(set(numbers)), numbers


def check_outcome(record: RunRecord, spec: WorkflowSpec, *, is_one_leader: bool) -> None:
    """I-17: a run has ended if and only if all its tasks have, and its end is the pure function of theirs."""
    rows: defaultdict[str, dict[int, TaskState]] = defaultdict(dict)
    for row in record.tasks:
        rows[row.task][row.index] = row.state
    states = {name: _state(found) for name, found in rows.items()}
    if record.run.state is RunState.RUNNING and is_one_leader:
        assert not all(state.is_terminal for state in states.values()), states
    if record.run.state is RunState.CANCELLED:  # a caller said so: an end that was reached before remains
        assert TaskState.CANCELLED in {row.state for row in record.tasks}
    elif record.run.state.is_terminal:
        assert all(state.is_terminal for state in states.values()), states
        assert record.run.state is run_outcome(spec, states), states
