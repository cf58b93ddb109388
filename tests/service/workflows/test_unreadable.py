"""W-5: a run of which something cannot be read any more can be looked at, explained and cancelled."""

import sqlite3
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import start_and_pause, states
from tidemill.workflows.plan import UNMAPPED


def flow_of(name: str = "flow") -> tm.Workflow:
    """Return a workflow that has several tasks, one of them mapped, and waits in the middle."""
    flow = tm.Workflow(name)

    @flow.task
    def numbers() -> list[int]:
        return [1, 2, 3]

    @flow.task(each="numbers")
    def doubled(numbers: int) -> int:
        return numbers * 2

    @flow.task
    def total(doubled: list[int], ctx: tm.Context) -> int:
        ctx.defer(for_="1h")
        return sum(doubled)

    return flow


def damage(address: str, statement: str, *values: Any) -> None:
    """Change something in a store behind everybody's back."""
    connection = sqlite3.connect(address.removeprefix("sqlite:///"))
    with connection:
        assert connection.execute(statement, values).rowcount > 0
    connection.close()


async def begun(sqlite: str) -> str:
    """Return a run that waits in the middle, of a node that is gone."""
    async with tm.testing.node(sqlite, load=[flow_of()]) as node:
        run = await node.start("flow")
        await node.settle()
    return run.id


DAMAGE = [
    ("UPDATE workflow_versions SET spec = x'c1ff'", "cannot be read: JSON is malformed"),
    ("DELETE FROM workflow_versions", "is not in the store"),
]


@pytest.mark.parametrize(("statement", "said"), DAMAGE)
async def test_a_run_whose_version_cannot_be_read(statement: str, said: str, sqlite: str) -> None:
    """W-5: it is shown, explained, and cancelled; others run meanwhile."""
    made = await begun(sqlite)
    damage(sqlite, statement)
    async with tm.testing.node(sqlite, load=[flow_of("other")]) as node:
        await node.advance("2s")
        run, other = node.run_handle(made), await node.start("other")
        found = await run.state()
        assert states(found) == {"numbers": "success", "doubled": "success", "total": "deferred"}
        assert found.outputs == {"numbers": [1, 2, 3], "doubled": [2, 4, 6]}
        assert said in found.reason
        assert found.reason.endswith("load that version again, or cancel the run")
        first, second = await run.why("total")
        assert first == f"the run is quarantined: {found.reason}"
        assert second.startswith("it is deferred until ")
        assert (await run.why("numbers"))[0].startswith("it has succeeded at ")
        await run.cancel("no use")
        await node.advance("2h")
        over = await run.state()
        assert (over.state, over.tasks["total"].state) == (tm.RunState.CANCELLED, tm.TaskState.CANCELLED)
        assert over.reason.startswith("no use; version ")
        assert (await other.state()).ok


@pytest.mark.parametrize(("statement", "said"), DAMAGE)
async def test_a_queued_run_whose_version_cannot_be_read(statement: str, said: str, sqlite: str) -> None:
    """W-5, W-17: nothing is said that will not happen."""
    async with tm.testing.node(sqlite, load=[flow_of()]) as node:
        made = (await start_and_pause(node, "flow"))[0].id
    damage(sqlite, statement)
    damage(sqlite, "DELETE FROM workflow_pauses")
    async with tm.testing.node(sqlite, load=[]) as node:
        await node.advance("1m")
        run = node.run_handle(made)
        (reason,) = await run.why("total")
        assert reason.startswith("the run is quarantined: version ")
        assert said in reason
        assert set(states(await run.state()).values()) == {"none"}
        await run.cancel()
        assert (await run.state()).state is tm.RunState.CANCELLED


@pytest.mark.parametrize(("statement", "said"), DAMAGE)
async def test_a_run_goes_on_when_its_version_is_loaded_again(statement: str, said: str, sqlite: str) -> None:
    """W-5, W-19: this is the advice that the run's reason gives."""
    made = await begun(sqlite)
    damage(sqlite, statement)
    async with tm.testing.node(sqlite, load=[]) as node:
        await node.advance("2s")
        run = node.run_handle(made)
        assert said in (await run.state()).reason
        await node.load(flow_of())
        await node.advance("2h")
        result = await run.state()
    assert (result.ok, result.reason, result.outputs["total"]) == (True, "", 12)


@pytest.mark.parametrize("is_loaded", [True, False])
async def test_an_output_that_cannot_be_read_is_the_error_of_its_task(is_loaded: bool, sqlite: str) -> None:
    """W-5: also where the code is not loaded, and values are plain; all others are there."""
    made = await begun(sqlite)
    damage(sqlite, "UPDATE attempts SET value = x'c1' WHERE task = 'numbers' AND element = ?", UNMAPPED)
    damage(sqlite, "UPDATE attempts SET value = x'c1' WHERE task = 'doubled' AND element = 1")
    async with tm.testing.node(sqlite, load=[flow_of()] if is_loaded else []) as node:
        found = await node.run_handle(made).state()
    numbers, doubled = found.tasks["numbers"], found.tasks["doubled"]
    assert states(found) == {"numbers": "success", "doubled": "success", "total": "deferred"}
    assert numbers.error is not None
    assert numbers.error.type == "UnreadableOutput"
    assert "MessagePack data is malformed" in numbers.error.message
    assert doubled.error == doubled.mapped[1].error is not None
    assert (numbers.output, doubled.output) == (None, [2, 6])
    assert [one.output for one in doubled.mapped] == [2, None, 6]
    assert found.outputs == {}
