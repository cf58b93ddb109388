"""The spec of a workflow: order, leaves, downstream tasks, version."""

import os
import subprocess
import sys
from graphlib import CycleError

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.workflows.rules import RULES
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec


def workflow(**tasks: str) -> WorkflowSpec:
    """Return a workflow from `name="source source"`; a word that is a rule is the task's rule."""
    return WorkflowSpec(name="w", tasks=tuple(task(name, text.split()) for name, text in tasks.items()))


def task(name: str, words: list[str]) -> TaskSpec:
    """Return a task from the names of those before it, and perhaps its rule."""
    rule = next((word for word in words if word in RULES), "all_success")
    return TaskSpec(name=name, edges=tuple(TaskEdge(word, word) for word in words if word not in RULES), rule=rule)


# -- order


@pytest.mark.parametrize(
    ("spec", "order"),
    [
        (workflow(a="", b="a", c="b"), "a b c"),
        (workflow(c="b", b="a", a=""), "a b c"),
        (workflow(a="", b="a", c="", d="c b"), "a b c d"),
        (workflow(join="left right", right="root", left="root", root=""), "root right left join"),
        (workflow(late="last", b="", a="", last="a b"), "b a last late"),
        (workflow(), ""),
    ],
)
def test_tasks_come_after_those_before_them_and_else_as_declared(spec: WorkflowSpec, order: str) -> None:
    """The loop: what is planned first is decided by the edges, then by the author, never by chance."""
    assert [one.name for one in spec.topological_order] == order.split()


def test_a_source_named_twice_is_one_source() -> None:
    """A task may wait for another one's value and for its end; it is one task before it."""
    spec = TaskSpec(name="b", edges=(TaskEdge("x", "x"), TaskEdge("a", "a"), TaskEdge("x")))
    assert spec.upstream == ("x", "a")


def test_a_cycle_has_no_order() -> None:
    """leoflow 15: a cycle is refused, with its path."""
    with pytest.raises(CycleError) as caught:
        _ = workflow(a="b", b="a").topological_order
    assert set(caught.value.args[1]) == {"a", "b"}


# -- leaves


@pytest.mark.parametrize(
    ("spec", "leaves"),
    [
        (workflow(a=""), "a"),
        (workflow(a="", b="a"), "b"),
        (workflow(a="", b=""), "a b"),
        (workflow(a="", b="a", c="a"), "b c"),
        (workflow(a="", b="a", c="a", d="b c"), "d"),
        # Those that tidy up do not count; those before them do.
        (workflow(a="", tidy="a all_done"), "a"),
        (workflow(a="", tidy="a always"), "a"),
        (workflow(a="", b="a", tidy="b all_done"), "b"),
        (workflow(a="", b="a", tidy="a b all_done"), "b"),
        (workflow(a="", b="a", c="a", tidy="b c all_done"), "b c"),
        (workflow(a="", b="a", tidy="a all_done"), "b"),
        # Nor do whole chains and diamonds of them.
        (workflow(a="", tidy="a all_done", sweep="tidy all_done"), "a"),
        (workflow(a="", tidy="a all_done", sweep="tidy always", mop="sweep tidy all_done"), "a"),
        (workflow(a="", tidy="a all_done", sweep="a all_done", mop="tidy sweep all_done"), "a"),
        (workflow(a="", b="", tidy="a all_done", sweep="tidy b all_done"), "a b"),
        # Who handles a failure is a leaf like any other.
        (workflow(a="", handle="a one_failed"), "handle"),
        (workflow(a="", handle="a one_failed", tidy="a handle all_done"), "handle"),
        (workflow(a="", handle="a all_failed", ok="a", tidy="handle ok all_done"), "handle ok"),
        # A root has nothing to clean up after: its rule does not matter.
        (workflow(a="all_done"), "a"),
        (workflow(a="always", b="a all_done"), "a"),
        # Work behind a task that tidies up: both count, else the tidying would hide what went wrong before it.
        (workflow(a="", tidy="a all_done", report="tidy"), "a report"),
    ],
)
def test_the_leaves_are_the_last_tasks_that_do_not_only_tidy_up(spec: WorkflowSpec, leaves: str) -> None:
    """Outcome of a run: tasks with rule all_done or always do not count as leaves, their upstreams do."""
    assert list(spec.leaves) == leaves.split()


@st.composite
def workflows(draw: st.DrawFn) -> WorkflowSpec:
    """Draw a workflow, declared in any order."""
    tasks: list[TaskSpec] = []
    for number in range(draw(st.integers(1, 8))):
        sources = draw(st.lists(st.sampled_from([one.name for one in tasks]), max_size=3)) if tasks else []
        tasks.append(task(f"t{number}", [*sources, draw(st.sampled_from(list(RULES)))]))
    return WorkflowSpec(name="w", tasks=tuple(draw(st.permutations(tasks))))


@given(workflows())
def test_leaves_do_the_work_and_only_tidying_comes_straight_after_them(spec: WorkflowSpec) -> None:
    """Outcome of a run: there always is a leaf, and every last task is one or tidies up."""
    followers = {one.name: [other for other in spec.tasks if one.name in other.upstream] for one in spec.tasks}
    assert spec.leaves
    for name in spec.leaves:
        assert not spec.by_name[name].trigger_rule.is_cleanup or not spec.by_name[name].upstream
        assert all(one.trigger_rule.is_cleanup for one in followers[name])
    for one in spec.tasks:
        if not followers[one.name] and (not one.trigger_rule.is_cleanup or not one.upstream):
            assert one.name in spec.leaves


@given(workflows())
def test_every_order_respects_every_edge(spec: WorkflowSpec) -> None:
    """The loop: a task is planned after all those before it, each once."""
    place = {one.name: number for number, one in enumerate(spec.topological_order)}
    assert sorted(place) == sorted(spec.by_name)
    assert all(place[source] < place[one.name] for one in spec.tasks for source in one.upstream)


# -- what comes after


def test_after_is_everything_behind_a_task_in_order() -> None:
    """Tasks: clear and retry from a task preview what reruns: all behind it, and nothing beside it."""
    spec = workflow(d="b c", a="", b="a", c="a", beside="", e="d beside", tidy="a all_done")
    assert spec.all_downstream("a") == ("b", "c", "d", "e", "tidy")
    assert spec.all_downstream("c") == ("d", "e")
    assert spec.all_downstream("beside") == ("e",)
    assert spec.all_downstream("e") == ()


@given(workflows())
def test_after_is_the_closure_of_the_edges(spec: WorkflowSpec) -> None:
    """Tasks: everything reachable from a task is downstream of it."""

    def reaches(start: str, end: str) -> bool:
        return any(source == start or reaches(start, source) for source in spec.by_name[end].upstream)

    for start in spec.by_name:
        assert spec.all_downstream(start) == tuple(
            one.name for one in spec.topological_order if reaches(start, one.name)
        )


# -- version

WHOLE = TaskSpec(
    name="b",
    edges=(TaskEdge("a", "a"), TaskEdge("x", None, ("A", "B"), optional=True)),
    rule="all_done",
    each="a",
    tries=3,
    timeout=60,
    pool="warehouse",
    priority=-2,
    queue="big",
    executor="kubernetes",
    labels=("eu", "gpu"),
    resources={"cpu": 0.5, "memory": 1024},
    image="train:2",
    pod={"spec": {"hostname": "a"}},
)
STORED = (
    b'{"name":"w","tasks":[{"name":"a"},{"name":"b","edges":[{"source":"a","parameter":"a"},{"source":"x",'
    b'"takes":["A","B"],"optional":true}],"rule":"all_done","each":"a","tries":3,"timeout":60.0,"pool":"warehouse",'
    b'"priority":-2,"queue":"big","executor":"kubernetes","labels":["eu","gpu"],"resources":{"cpu":0.5,'
    b'"memory":1024},"image":"train:2","pod":{"spec":{"hostname":"a"}}}],"code":"c"}'
)

BASE = TaskSpec(name="a", edges=(TaskEdge("x", "x", ("A",)),))
OTHERS = {
    "name": "b",
    "edges": (),
    "rule": "all_done",
    "each": "x",
    "tries": 2,
    "timeout": 1.5,
    "pool": "warehouse",
    "priority": 1,
    "queue": "big",
    "executor": "kubernetes",
    "labels": ("gpu",),
    "resources": {"cpu": 0.5},
    "image": "train:2",
    "pod": {"spec": {"hostname": "a"}},
}
EDGES = {"source": "y", "parameter": None, "takes": ("A", "B"), "optional": True}


def of(task: TaskSpec) -> WorkflowSpec:
    """Return a workflow with a task."""
    return WorkflowSpec(name="w", tasks=(TaskSpec(name="x"), TaskSpec(name="y"), task), code="c")


def test_a_workflow_is_stored_byte_for_byte_as_before() -> None:
    """W-19: fields keep their order, so that a workflow of an older release keeps its version."""
    workflow = WorkflowSpec(name="w", tasks=(TaskSpec(name="a"), WHOLE), code="c")
    assert msgspec.json.encode(workflow) == STORED
    assert workflow.version == "a8b9824e1694d75e"
    assert msgspec.json.decode(STORED, type=WorkflowSpec) == workflow


def test_every_field_has_another_value_below() -> None:
    """W-19: no field of a task or an edge is left out of the proof."""
    assert set(OTHERS) == set(TaskSpec.__struct_fields__)
    assert set(EDGES) == set(TaskEdge.__struct_fields__)


@pytest.mark.parametrize("field", OTHERS)
def test_the_version_changes_with_each_field_of_a_task(field: str) -> None:
    """W-19: a content hash over code and structure."""
    changed = msgspec.structs.replace(BASE, **{field: OTHERS[field]})
    assert of(changed).version != of(BASE).version


@pytest.mark.parametrize("field", EDGES)
def test_the_version_changes_with_each_field_of_an_edge(field: str) -> None:
    """W-19: who takes which variant of what is structure."""
    edge = msgspec.structs.replace(BASE.edges[0], **{field: EDGES[field]})
    assert of(msgspec.structs.replace(BASE, edges=(edge,))).version != of(BASE).version


@pytest.mark.parametrize(("field", "value"), [("name", "v"), ("code", "d"), ("tasks", ())])
def test_the_version_changes_with_each_field_of_the_workflow(field: str, value: object) -> None:
    """W-19: code counts, by its digest."""
    assert msgspec.structs.replace(of(BASE), **{field: value}).version != of(BASE).version


def test_the_version_of_equal_workflows_is_equal_in_every_process() -> None:
    """W-19: a run is pinned to its version, so another process must come to the same."""
    shown = f"from tidemill.workflows.spec import *; print({of(BASE)}.version)"
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run([sys.executable, "-c", shown], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == of(BASE).version == of(msgspec.structs.replace(BASE)).version


def test_a_stored_workflow_keeps_its_version() -> None:
    """W-19: what comes back from the store is what went in; looking at it changes nothing."""
    spec = of(msgspec.structs.replace(BASE, timeout=60.0))
    _ = spec.version, spec.leaves, spec.topological_order
    stored = msgspec.json.decode(msgspec.json.encode(spec), type=WorkflowSpec)
    assert stored == spec
    assert stored.version == spec.version


def test_a_timeout_in_whole_seconds_is_the_same_timeout() -> None:
    """W-19: equal workflows have equal versions, also when one of them has been stored and read."""
    whole, real = (of(msgspec.structs.replace(BASE, timeout=seconds)) for seconds in (60, 60.0))
    assert whole == real
    assert whole.version == real.version
