"""Two nodes on one file, each of which is made leader again and again behind the other's back."""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.service.workflows.faults import Neighbour
from tests.simulation.flows import Recipe, World, turns
from tidemill.engine.workflows.leader.election import LEASE_NAME
from tidemill.kernel.errors import StoreError
from tidemill.testing.probes.workflows import WorkflowProbe

FLOW = [Recipe(seconds=1.0), Recipe(failures=1, retries=2, after=(0,)), Recipe(is_mapped=True, seconds=2.0, after=(0,))]
STEPS = 25


async def advance(nodes: list[Neighbour], seconds: float) -> None:
    """Move the clock that both share, and let both of them calm down."""
    clock = nodes[0].clock
    target = clock.monotonic() + seconds
    while (due := clock.next_wakeup()) is not None and due <= target:
        clock.advance_to(due)
        for node in nodes:
            await node.advance("0s")
    clock.advance_to(target)
    for node in nodes:
        await node.advance("0s")


async def depose(nodes: list[Neighbour], chance: Random) -> None:
    """Give the lease to one of the two as if the other were dead, while both believe that they lead."""
    winner, loser = chance.sample(nodes, 2)
    leadership = WorkflowProbe.of(winner).election
    epoch = await WorkflowProbe.of(winner).store.leases.acquire(
        LEASE_NAME, WorkflowProbe.of(winner).owner.id, 3.0, [WorkflowProbe.of(loser).owner.id]
    )
    if epoch is not None and leadership.term is None:
        await turns()


@pytest.mark.parametrize("seed", range(4))
async def test_no_attempt_runs_twice_under_two_leaders(tmp_path: Path, seed: int) -> None:
    """F9, W-8, contract 63: late writes are refused and counted; every history is legal; every run ends once."""
    chance, world = Random(seed), World(FLOW)
    store = f"sqlite:///{tmp_path}/tidemill.db"
    async with (
        Neighbour(store, load=[world.flow], clock=world.clock) as one,
        Neighbour(store, load=[world.flow], clock=world.clock) as two,
    ):
        nodes = [one, two]
        started = []
        for _ in range(STEPS):
            await depose(nodes, chance)
            node = chance.choice(nodes)
            with suppress(StoreError):  # "no longer in office": a caller that gets it knows that there is no run
                started.append((await node.start(world.flow)).id)
            await advance(nodes, chance.choice([0.1, 0.5, 1.0, 2.5]))
            await world.check(one, is_one_leader=False)
        for _ in range(200):
            records = await world.check(one, is_one_leader=False)
            if all(record.run.state.is_terminal for record in records):
                break
            await advance(nodes, 3.0)
        assert {record.run.id for record in records} >= set(started)
        assert {str(record.run.state) for record in records} == {"success"}
        assert sum(node.metrics()["fenced_writes_total"] for node in nodes) > 0
        assert sum(node.metrics()["run_errors_total"] for node in nodes) == 0
