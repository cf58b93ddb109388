"""Explanations: sentences, from the planner's own rules."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.unit.workflows.lives import lived, run_row
from tests.unit.workflows.test_plan_against_an_oracle import workflows
from tidemill.workflows.explain import ExplainContext, WorkerView, explain_task
from tidemill.workflows.plan import UNMAPPED, Expand, Finish, PlannedRun, mapped_state, plan
from tidemill.workflows.records import RunRecord, TaskRow
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

NOW = datetime(2026, 1, 1, 6, tzinfo=UTC)
SIX = "2026-01-01 06:00:00+00:00"
SECOND = timedelta(seconds=1)
FACTS = ExplainContext(now=NOW, capacity=1)

SPEC = WorkflowSpec(
    name="daily",
    tasks=(
        TaskSpec(name="extract"),
        TaskSpec(name="load"),
        TaskSpec(name="clean", edges=(TaskEdge("extract", "extract"), TaskEdge("load")), each="extract"),
        TaskSpec(name="publish", edges=(TaskEdge("clean", "clean"), TaskEdge("load", "load")), rule="none_failed"),
        TaskSpec(name="alarm", edges=(TaskEdge("extract"), TaskEdge("load")), rule="all_failed"),
    ),
)


def row(task: str, state: str, index: int = UNMAPPED, **more: Any) -> TaskRow:
    return TaskRow(task=task, index=index, state=TaskState(state), **more)


def ask(task: str, *rows: TaskRow, run: RunState = RunState.RUNNING, facts: ExplainContext = FACTS) -> list[str]:
    known = {one.task for one in rows}
    rest = [row(one.name, "none") for one in SPEC.tasks if one.name not in known]
    return explain_task(RunRecord(run_row(run, "daily"), [*rows, *rest]), SPEC, task, facts)


def test_it_waits_for_others() -> None:
    """W-17: which upstream tasks, with their states; and the rule, if it is not the default."""
    rows = [row("extract", "running"), row("load", "up_for_retry", wake_at=NOW + timedelta(minutes=1))]
    assert ask("clean", *rows) == [
        "it waits for 'extract', which is running",
        "it waits for 'load', which waits for a retry",
    ]
    assert ask("publish", *rows) == [
        "it waits for 'clean', which is still undecided (its rule is 'none_failed')",
        "it waits for 'load', which waits for a retry (its rule is 'none_failed')",
    ]
    assert ask("clean", row("extract", "success", size=2), row("load", "deferred")) == [
        "it waits for 'load', which is deferred"
    ]


@pytest.mark.parametrize(
    ("workers", "sentence"),
    [
        ([], "it is scheduled, and waits for a worker with the labels eu, gpu; none is running"),
        (
            [("gpu", True, 1), ("", True, 1)],
            "it is scheduled, and waits for a worker with the labels eu, gpu; none is running",
        ),
        (
            [("gpu eu", False, 1)],
            "it is scheduled, and waits for a worker with the labels eu, gpu that has version v of 'w': publish its "
            "package, or start one with it",
        ),
        (
            [("gpu eu big", True, 0), ("gpu eu", True, -1), ("gpu eu", False, 1)],
            "it is scheduled, and waits for a worker with the labels eu, gpu: all 2 are busy",
        ),
        ([("gpu eu", True, 0), ("gpu eu", True, 1)], "it is scheduled, and waits to be claimed"),
    ],
)
def test_what_it_waits_for_on_workers(workers: list[tuple[str, bool, int]], sentence: str) -> None:
    """W-17: whether one with its labels lives, has its code, and is free; what this node has does not matter."""
    spec = WorkflowSpec(name="w", tasks=(TaskSpec(name="a", executor="worker", labels=("eu", "gpu")),))
    views = [WorkerView(labels=labels.split(), has_code=code, free_slots=free) for labels, code, free in workers]
    context = ExplainContext(now=NOW, capacity=None, loaded_versions=[], workers=views)
    record = RunRecord(run_row(RunState.RUNNING), [row("a", "scheduled", executor="worker")])
    assert explain_task(record, spec, "a", context) == [sentence]


def test_a_mapped_task_whose_rule_is_content_waits_for_its_list_alone() -> None:
    """W-17: under any rule, it needs the list, and nothing else."""
    each = TaskSpec(name="c", edges=(TaskEdge("a", "a"), TaskEdge("b")), rule="always", each="a")
    spec = WorkflowSpec(name="w", tasks=(TaskSpec(name="a"), TaskSpec(name="b"), each))
    rows = [row("a", "running"), row("b", "running"), row("c", "none")]
    said = explain_task(RunRecord(run_row(RunState.RUNNING), rows), spec, "c", FACTS)
    assert said == ["it waits for 'a', which is running (its rule is 'always')"]


def test_what_is_about_to_happen() -> None:
    """W-17: what the planner would do now, in its own words."""
    good = [row("extract", "success", size=2), row("load", "success")]
    assert ask("clean", *good) == ["it is about to be scheduled, as 2 elements"]
    assert ask("alarm", *good) == ["it is about to be skipped because of 'extract', 'load'"]
    bad = [row("extract", "failed"), row("load", "success")]
    assert ask("clean", *bad) == ["it is about to be marked upstream_failed because of 'extract'"]
    assert ask("extract") == ["it is about to be scheduled"]


def test_a_run_that_has_not_begun() -> None:
    """W-17: paused, too many others, or just not planned yet."""
    queued = RunState.QUEUED
    assert ask("load", run=queued) == ["the run is queued, and starts when it is next planned"]
    paused = ExplainContext(now=NOW, paused=True, active_runs=16, capacity=1)
    assert ask("load", run=queued, facts=paused) == [
        "the run is queued: workflow 'daily' is paused",
        "the run is queued: 16 other runs of 'daily' are running, at most 16 may",
    ]


def test_a_quarantined_run() -> None:
    """W-5, W-17: ended tasks are explained without it."""
    facts = ExplainContext(now=NOW, capacity=1, quarantine_reason="KeyError: 'x'")
    assert ask("extract", facts=facts)[0] == "the run is quarantined: KeyError: 'x'"
    assert ask("extract", row("extract", "success"), facts=facts) == ["it has succeeded"]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            ExplainContext(now=NOW, capacity=1, pool_usage={"db": (1, 2)}),
            [f"it is scheduled since {SIX}, and waits to be claimed"],
        ),
        (ExplainContext(now=NOW, capacity=1), [f"it is scheduled since {SIX}, and waits to be claimed"]),
        (
            ExplainContext(now=NOW, capacity=0, pool_usage={"db": (2, 2)}),
            [
                "it is scheduled, but pool 'db' is full (2 of 2)",
                "it is scheduled, but executor 'ray' has no free slot",
            ],
        ),
        (
            ExplainContext(now=NOW, paused=True, pool_usage={}),
            [
                "it is scheduled, but workflow 'daily' is paused",
                "it is scheduled, but there is no pool 'db'",
                "it is scheduled, but there is no executor 'ray'",
            ],
        ),
    ],
)
def test_scheduled_and_not_taken(facts: ExplainContext, said: list[str]) -> None:
    """W-6, W-17: paused, pool, executor, or just not claimed yet."""
    assert ask("load", row("load", "scheduled", since=NOW, pool="db", executor="ray"), facts=facts) == said


@pytest.mark.parametrize(
    ("state", "more", "said"),
    [
        ("queued", {"claimed_by": "n1", "since": NOW}, f"it is queued at 'n1' since {SIX}, and has not started"),
        ("running", {"claimed_by": "n1", "started_at": NOW}, f"it is running at 'n1' since {SIX}"),
        ("up_for_retry", {"wake_at": NOW, "reason": "E: no"}, f"it is retried at {SIX}, after: E: no"),
        ("deferred", {"wake_at": NOW + SECOND}, "it is deferred until 2026-01-01 06:00:01+00:00"),
        ("deferred", {"wake_at": NOW}, f"it was deferred until {SIX}, and continues when the run is next planned"),
        ("deferred", {}, "it is deferred, and has no wake-up time"),
        ("success", {"ended_at": NOW}, f"it has succeeded at {SIX}"),
        ("failed", {"reason": "E: no"}, "it has failed: E: no"),
        ("skipped", {"reason": "nothing to do"}, "it was skipped: nothing to do"),
        ("upstream_failed", {"reason": "because of 'a'"}, "it cannot run because of 'a'"),
        ("cancelled", {}, "it was cancelled"),
        ("cancelled", {"reason": "cancelled"}, "it was cancelled"),
    ],
)
def test_every_other_state_has_its_sentence(state: str, more: dict[str, Any], said: str) -> None:
    """W-17."""
    assert ask("load", row("load", state, **more)) == [said]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"poll_intervals": {("load", UNMAPPED): 30.0}}, "its poll is called every 30s until it returns true"),
        ({"poll_intervals": {("load", UNMAPPED): 5400.0}}, "its poll is called every 1h30m until it returns true"),
        ({"poll_intervals": {("load", UNMAPPED): 86400.25}}, "its poll is called every 1d0.25s until it returns true"),
        ({"live_nodes": 1}, "a node calls its poll until it returns true"),
    ],
)
def test_a_poll_is_explained_without_a_passed_time(more: dict[str, Any], said: str) -> None:
    """W-17: how often it is called, if that is known; a passed time alone would have woken it."""
    waiting = row("load", "deferred", since=NOW - 300 * SECOND, wake_at=NOW - 270 * SECOND)
    facts = ExplainContext(now=NOW, capacity=1, **more)
    assert ask("load", waiting, facts=facts) == [f"it is deferred since 2026-01-01 05:55:00+00:00: {said}"]


@pytest.mark.parametrize(
    "more", [{"poll_intervals": {}, "live_nodes": 1}, {"poll_intervals": {("clean", 0): 1.0}}, {"live_nodes": 0}]
)
def test_a_deferral_that_is_over_and_has_no_poll(more: dict[str, Any]) -> None:
    """W-17: the leader has not planned yet, or there is no leader."""
    *_, said = ask("load", row("load", "deferred", wake_at=NOW), facts=ExplainContext(now=NOW, capacity=1, **more))
    assert said == f"it was deferred until {SIX}, and continues when the run is next planned"


@pytest.mark.parametrize("run", [RunState.QUEUED, RunState.RUNNING])
def test_a_version_that_cannot_be_read_is_the_reason(run: RunState) -> None:
    """W-5, W-17: nothing else is known of undecided tasks; ended ones are explained as usual."""
    nothing, facts = (
        WorkflowSpec(name="daily", tasks=()),
        ExplainContext(now=NOW, capacity=1, quarantine_reason="it cannot be read"),
    )
    found = RunRecord(run_row(run, "daily"), [row("load", "none"), row("extract", "failed", reason="E: no")])
    assert explain_task(found, nothing, "load", facts) == ["the run is quarantined: it cannot be read"]
    assert explain_task(found, nothing, "extract", facts) == ["it has failed: E: no"]


def test_the_elements_of_a_mapped_task_are_explained_together() -> None:
    """W-17: elements with the same explanation share a sentence, with their numbers."""
    rows = [
        row("clean", "success", 0),
        row("clean", "failed", 1, reason="ValueError: no"),
        row("clean", "success", 2),
        row("extract", "success", size=3),
        row("load", "success"),
    ]
    assert ask("clean", *rows) == ["element 1: it has failed: ValueError: no", "elements 0, 2: it has succeeded"]
    assert ask("clean[2]", *rows) == ["element 2: it has succeeded"]
    with pytest.raises(tm.RequestError, match="there is no 'clean\\[3\\]': task 'clean' has 3 elements"):
        ask("clean[3]", *rows)


def test_elements_that_follow_one_another_are_a_range() -> None:
    """W-17: a sentence about many elements is short, without the time at which each ended."""
    rows = [row("clean", "success", number, ended_at=NOW + timedelta(seconds=number)) for number in range(400)]
    rows[290] = row("clean", "failed", 290, reason="E: no")
    rows[292] = row("clean", "running", 292, claimed_by="node-1")
    others = [row("extract", "success", size=400), row("load", "none")]
    failed, running, succeeded = ask("clean", *rows, *others)
    assert failed == "element 290: it has failed: E: no"
    assert running.startswith("element 292: it is running at 'node-1'")
    assert succeeded == "elements 0 to 289, 291, 293 to 399: it has succeeded"


def test_an_unknown_task_is_refused() -> None:
    """api.md: with a suggestion."""
    with pytest.raises(tm.RequestError, match="no task 'lod' \\(did you mean 'load'\\?\\)") as caught:
        ask("lod")
    assert (caught.value.code, caught.value.status) == ("task_not_found", 404)


@given(workflows(), st.integers(0, 2**32))
def test_there_is_always_an_answer_and_the_planner_agrees(spec: WorkflowSpec, seed: int) -> None:
    """W-17: at least one sentence; a task waits exactly if the planner leaves it alone, and only for unended tasks."""
    record = lived(spec, seed)
    commands = plan(PlannedRun(spec=spec, state=record.run.state, tasks=record.tasks), NOW)
    soon = {
        one.task
        for one in commands
        if isinstance(one, Expand) or (not isinstance(one, Finish) and one.before == "none")
    }
    for task in spec.tasks:
        said = explain_task(record, spec, task.name, FACTS)
        rows = [one for one in record.tasks if one.task == task.name]
        assert said
        assert all(said)
        if record.run.state is not RunState.RUNNING or not any(one.state is TaskState.NONE for one in rows):
            continue
        assert any(one.startswith("it is about to be") for one in said) is (task.name in soon)
        awaited = {one for one in task.upstream if any(f"it waits for '{one}'" in sentence for sentence in said)}
        assert bool(awaited) is (task.name not in soon)
        for name in awaited:
            states = [one.state for one in record.tasks if one.task == name]
            assert not mapped_state(states).is_terminal


@given(workflows(), st.integers(0, 2**32))
def test_the_planner_says_why_it_skips_and_gives_up(spec: WorkflowSpec, seed: int) -> None:
    """W-17: also if a success is the reason for a skip."""
    record = lived(spec, seed)
    for one in plan(PlannedRun(spec=spec, state=record.run.state, tasks=record.tasks), NOW):
        if not isinstance(one, Expand | Finish) and one.after in ("skipped", "upstream_failed"):
            assert one.reason


def test_no_node_has_the_code() -> None:
    """W-17, W-19: a run is pinned to its version, which a node must have loaded."""
    found = ask(
        "extract", row("extract", "scheduled"), facts=ExplainContext(now=NOW, capacity=1, loaded_versions=["other"])
    )
    version = run_row(RunState.RUNNING, "daily").version
    assert found == [
        f"it is scheduled, but no node here has version {version} of 'daily' (loaded: other): load that version, or "
        "cancel the run and start it again"
    ]
    here = ExplainContext(now=NOW, capacity=1, loaded_versions=[version])
    assert ask("extract", row("extract", "scheduled"), facts=here) == ["it is scheduled, and waits to be claimed"]
    gone = ExplainContext(now=NOW, capacity=1, live_nodes=0)
    assert ask("extract", row("extract", "scheduled"), facts=gone)[0] == "no node is running on this store: start one"
    assert ask("extract", row("extract", "success"), facts=gone) == ["it has succeeded"]


NOTE = "run r1 waits for version v of 'daily', which no node has the code of: ..."


@pytest.mark.parametrize(
    ("state", "is_said"),
    [("scheduled", True), ("up_for_retry", True), ("none", True), ("running", False), ("success", False)],
)
def test_code_that_is_gone_is_named_first(state: str, is_said: bool) -> None:
    """W-17, W-19: only for tasks that wait for it, with what to do."""
    said = ask("extract", row("extract", state), facts=ExplainContext(now=NOW, capacity=1, code_note=NOTE))
    assert (said[0] == NOTE) is is_said
    assert NOTE not in said[1:]
    assert len(said) > is_said


def test_a_run_that_queues_behind_one_without_code_names_it() -> None:
    """W-17: with what to do about the other run."""
    facts = ExplainContext(now=NOW, active_runs=16, blocking_notes=[NOTE])
    said = ask("extract", row("extract", "none"), run=RunState.QUEUED, facts=facts)
    assert said == ["the run is queued: 16 other runs of 'daily' are running, at most 16 may", NOTE]
