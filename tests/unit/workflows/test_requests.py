"""Attempt requests: the inputs of an attempt are those that the planner counted on."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from tests.unit.workflows.lives import run_row
from tests.unit.workflows.test_plan_against_an_oracle import Interpreter, World, mappings, workflows
from tidemill.engine.workflows.executors.interface import Input, ItemOfList, ListInput, SingleInput
from tidemill.engine.workflows.worker.launcher import build_request
from tidemill.kernel.settings import Settings
from tidemill.workflows.plan import UNMAPPED, TaskRun
from tidemill.workflows.records import TaskRow
from tidemill.workflows.run_draft import TaskRef
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState


def said(place: TaskRef) -> bytes:
    """Return what a task run returned."""
    return f"{place[0]}[{place[1]}]".encode()


def inputs(spec: WorkflowSpec, rows: Mapping[TaskRef, TaskRun], place: TaskRef) -> Mapping[str, Input]:
    """Return what goes into an attempt of a task run; there are outputs of those that succeeded, and no others."""
    kept = {key: TaskRow(**asdict(row)) for key, row in rows.items()}
    outputs = {
        key: said(key)
        for key, row in rows.items()
        if row.state is TaskState.SUCCESS and (key[1] != UNMAPPED or spec.by_name[key[0]].each is None)
    }
    return build_request(run_row(RunState.RUNNING), kept[place], spec, kept, outputs, Settings()).inputs


def expected(edge: TaskEdge, task: TaskSpec, index: int, oracle: Interpreter) -> Input | None:
    """Return what goes along an edge, as the interpreter of the rules has it."""
    carried = [(edge.source, one) for one in oracle.carried(edge)]
    if oracle.spec.by_name[edge.source].each is None:
        whole = said((edge.source, UNMAPPED))
        return None if not carried else ItemOfList(whole, index) if task.each == edge.source else SingleInput(whole)
    if task.each == edge.source:
        return SingleInput(said(carried[index]))
    is_expanded = isinstance(oracle.decided.get(edge.source), int)
    is_empty = oracle.decided.get(edge.source) == "success"
    return ListInput(tuple(map(said, carried))) if is_expanded or is_empty else None


def agree(world: World) -> None:
    """Check of all that is ever scheduled that it gets what the interpreter of the rules says."""
    oracle = Interpreter(world.spec)
    for ended in world.passes():
        oracle.ended = ended
        oracle.look()
        for place, row in world.rows.items():
            if row.state is TaskState.SCHEDULED:
                task = world.spec.by_name[place[0]]
                edges = [edge for edge in task.edges if edge.parameter is not None]
                found = {edge.parameter: expected(edge, task, place[1], oracle) for edge in edges}
                assert inputs(world.spec, world.rows, place) == {name: one for name, one in found.items() if one}


@given(workflows(), st.integers(0, 2**32))
def test_every_scheduled_task_gets_the_inputs_of_the_rules(spec: WorkflowSpec, seed: int) -> None:
    """api.md, A workflow: a parameter gets the value of the task that it names, if that took its branch."""
    agree(World(spec, Random(seed)))


@given(mappings(), st.integers(0, 2**32))
def test_elements_get_the_inputs_of_the_rules(spec: WorkflowSpec, seed: int) -> None:
    """api.md, A workflow: a union routes, also the elements of a mapped task; planner and orders agree on which."""
    agree(World(spec, Random(seed), is_kind=True))


OPTIONAL = WorkflowSpec(
    name="w",
    tasks=(
        TaskSpec(name="a"),
        TaskSpec(name="m", edges=(TaskEdge("a", "a"),), each="a"),
        TaskSpec(name="z", edges=(TaskEdge("m", "m"),), rule="all_done"),
    ),
)


@pytest.mark.parametrize(
    ("state", "given"),
    [("skipped", {}), ("upstream_failed", {}), ("cancelled", {}), ("success", {"m": ListInput(())})],
)
def test_a_mapping_that_never_was_gives_no_list(state: str, given: dict[str, Input]) -> None:
    """docs, Rules: what was skipped is None, or the default, mapped or not; an empty list is a value."""
    rows = [TaskRun(task="a"), TaskRun(task="m", state=TaskState(state)), TaskRun(task="z")]
    assert inputs(OPTIONAL, {(row.task, row.index): row for row in rows}, ("z", UNMAPPED)) == given
