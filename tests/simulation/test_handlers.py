"""kill -9 at every transaction of a run and its handlers; and leaders that come and go meanwhile."""

import asyncio
from pathlib import Path
from random import Random

import pytest

import tidemill as tm
from tests.service.workflows.faults import Neighbour
from tests.simulation.test_crash_points import TURNS, Killer
from tests.simulation.test_two_leaders import advance, depose
from tidemill.storage.workflow_ports import RunFilter
from tidemill.testing.probes.workflows import WorkflowProbe


def flow() -> tm.Workflow:
    """Return a workflow whose runs fail, with a handler."""
    failing = tm.Workflow("w")

    @failing.task
    def fail() -> None:
        raise ValueError("no")

    @failing.on_failure
    def alert(report: tm.RunReport) -> str:
        return report.run

    return failing


async def story(node: tm.testing.TestNode) -> None:
    """Fail, fail once more, and fail another run."""
    run = await node.start("w")
    await node.settle()
    await run.retry()
    await node.settle()
    await node.start("w")
    await node.settle()


async def check_calls(probe: WorkflowProbe) -> int:
    """Check that each end of each run has called its handlers once; return how many ends there were."""
    runs = await probe.store.runs.find(RunFilter(tenant="public"))
    called = [row.caused_by for row in runs if row.workflow == "w.on_failure"]
    ends = []
    for row in runs:
        if row.workflow == "w":
            events = await probe.store.runs.read_events(row.id)
            ends += [row.id for event in events if event.task is None and event.after == "failed"]
    assert sorted(filter(None, called)) == sorted(ends)
    assert all(row.state == ("failed" if row.workflow == "w" else "success") for row in runs)
    return len(ends)


async def live_and_die(survive: int, *, takes_effect: bool) -> bool:
    """Tell the story with one death in it; return whether it was reached."""
    async with tm.testing.node(store="memory://", load=[flow()]) as node:
        killer = Killer(node, survive, takes_effect=takes_effect)
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(story(node), name="story")
            while not telling.done() and not killer.is_dead:  # noqa: ASYNC110 - either may come first
                await asyncio.sleep(0)
            for _ in range(TURNS if killer.is_dead else 0):
                await asyncio.sleep(0)
            telling.cancel()
        killer.lift()
        node = await node.crash()
        await node.advance("2m")  # a lost attempt is retried
        ends = await check_calls(node.probe.workflows)
        assert killer.is_dead or ends == 3
    return killer.is_dead


@pytest.mark.parametrize("takes_effect", [False, True])
async def test_a_death_at_any_transaction_neither_loses_nor_doubles_a_call(takes_effect: bool) -> None:
    """The end of a run and the run of its handlers are one transaction."""
    survive = 0
    while await live_and_die(survive, takes_effect=takes_effect):
        survive += 1
    assert survive > 8


@pytest.mark.parametrize("seed", range(3))
async def test_each_end_calls_its_handlers_once_under_two_leaders(tmp_path: Path, seed: int) -> None:
    """A leader that was deposed ends no run, and so calls no handler."""
    chance, failing = Random(seed), flow()
    store = f"sqlite:///{tmp_path}/tidemill.db"
    async with (
        Neighbour(store, load=[failing]) as one,
        Neighbour(store, load=[failing], clock=one.clock) as two,
    ):
        nodes = [one, two]
        for _ in range(12):
            await depose(nodes, chance)
            await chance.choice(nodes).start("w")
            await advance(nodes, chance.choice([0.1, 0.5, 1.0]))
        for _ in range(5):
            await advance(nodes, 3.0)
        assert await check_calls(WorkflowProbe.of(one)) == 12
