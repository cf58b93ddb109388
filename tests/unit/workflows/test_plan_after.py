"""Planning after the end of a task: the same as a full plan, from its downstream tasks alone."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from tidemill.workflows.plan import UNMAPPED, Command, Finish, PlannedRun, TaskRun, Transition, plan, plan_after
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

NOW = datetime(2026, 1, 1, 6, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LENGTH = 1000


def workflow(**after: str) -> WorkflowSpec:
    """Return a workflow: tasks, and behind each the names of those before it."""
    tasks = [TaskSpec(name=name, edges=tuple(map(TaskEdge, names.split()))) for name, names in after.items()]
    return WorkflowSpec(name="w", tasks=tuple(tasks))


def rows_of(**states: str) -> dict[tuple[str, int], TaskRun]:
    """Return task runs in some states."""
    return {(name, UNMAPPED): TaskRun(task=name, state=TaskState(state), wake_at=NOW) for name, state in states.items()}


DIAMOND = workflow(a="", b="a", c="a", d="b c")


class Watched(Mapping[tuple[str, int], TaskRun]):
    """Task runs that record which of them were read."""

    def __init__(self, rows: dict[tuple[str, int], TaskRun]) -> None:
        self.rows = rows
        self.seen: set[str] = set()

    def __getitem__(self, place: tuple[str, int]) -> TaskRun:
        self.seen.add(place[0])
        return self.rows[place]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def scheduled(*names: str, before: TaskState = TaskState.NONE) -> list[Command]:
    """Return the commands that schedule tasks."""
    return [Transition(name, UNMAPPED, before, TaskState.SCHEDULED) for name in names]


@pytest.mark.parametrize(
    ("states", "changed", "expected"),
    [
        ({"a": "success", "b": "none", "c": "none", "d": "none"}, "a", scheduled("b", "c")),
        ({"a": "success", "b": "success", "c": "running", "d": "none"}, "b", []),
        ({"a": "success", "b": "success", "c": "success", "d": "none"}, "b c", scheduled("d")),
        (
            {"a": "success", "b": "running", "c": "up_for_retry", "d": "none"},
            "c",
            scheduled("c", before=TaskState.UP_FOR_RETRY),
        ),
        ({"a": "success", "b": "success", "c": "success", "d": "success"}, "d", [Finish(RunState.SUCCESS)]),
        ({"a": "success", "b": "success", "c": "success", "d": "failed"}, "d", [Finish(RunState.FAILED)]),
        ({"a": "success", "b": "running", "c": "running", "d": "none"}, "", []),
    ],
)
def test_what_follows_is_what_a_whole_plan_says(states: dict[str, str], changed: str, expected: list[Command]) -> None:
    """W-4."""
    rows = rows_of(**states)
    assert plan_after(DIAMOND, rows, changed.split(), NOW) == expected
    assert plan(PlannedRun(spec=DIAMOND, state=RunState.RUNNING, tasks=list(rows.values())), NOW) == expected


def test_a_failure_travels_to_the_end_at_once() -> None:
    """W-3: what cannot run any more is said in the same pass, however far behind it is."""
    rows = rows_of(a="success", b="failed", c="running", d="none")
    assert plan_after(DIAMOND, rows, ["b"], NOW) == [
        Transition("d", UNMAPPED, TaskState.NONE, TaskState.UPSTREAM_FAILED, "because of 'b'")
    ]


def test_a_retry_whose_time_has_not_come_is_left_asleep() -> None:
    assert plan_after(DIAMOND, rows_of(a="up_for_retry", b="none", c="none", d="none"), ["a"], NOW - SECOND) == []


def test_a_rule_other_than_the_usual_is_asked() -> None:
    spec = WorkflowSpec(
        name="w", tasks=(TaskSpec(name="a"), TaskSpec(name="b", edges=(TaskEdge("a"),), rule="one_failed"))
    )
    commands = plan_after(spec, rows_of(a="success", b="none"), ["a"], NOW)
    assert [one.after for one in commands if isinstance(one, Transition)] == [TaskState.SKIPPED]


def test_a_mapping_is_planned_as_a_whole() -> None:
    spec = WorkflowSpec(name="w", tasks=(TaskSpec(name="a"), TaskSpec(name="m", edges=(TaskEdge("a", "a"),), each="a")))
    rows = {("a", UNMAPPED): TaskRun(task="a", state=TaskState.SUCCESS, size=2), ("m", UNMAPPED): TaskRun(task="m")}
    run = PlannedRun(spec=spec, state=RunState.RUNNING, tasks=list(rows.values()))
    assert plan_after(spec, rows, ["a"], NOW) == plan(run, NOW) != []


def test_of_a_long_chain_only_the_next_task_is_read() -> None:
    """W-4: the end of a task costs what comes right after it, not what the workflow holds."""
    spec = workflow(**{f"t{number}": f"t{number - 1}" if number else "" for number in range(LENGTH)})
    states = {f"t{number}": "success" if number <= LENGTH // 2 else "none" for number in range(LENGTH)}
    rows = Watched(rows_of(**states))
    assert plan_after(spec, rows, [f"t{LENGTH // 2}"], NOW) == scheduled(f"t{LENGTH // 2 + 1}")
    assert rows.seen == {f"t{LENGTH // 2}", f"t{LENGTH // 2 + 1}"}
