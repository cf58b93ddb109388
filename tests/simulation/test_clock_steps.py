"""Any interleaving of time and steps of the wall clock: what waits for seconds waits for exactly as many.

Hypothesis writes the story: how long to wait between two steps, and how far each goes. Beside the waiting run another
one works, so that changes are made right after a step, before any timer is due.
"""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.service.workflows.faults import Neighbour

DELAYS = [8.0, 16.0]  # of the two retries
WAIT = 20.0  # of the deferral
CALM = {"tick_interval": "5s", "lease_ttl": "30s"}
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 1, 7]), st.sampled_from(["2h", "-1h", "5s", "-5s", "300ms", "-30d", "400d"])),
    max_size=5,
)


class World:
    """Workflows that wait, and when the code of each was called, on the monotonic clock."""

    def __init__(self) -> None:
        self.calls: dict[str, list[float]] = {"retried": [], "deferred": []}
        self.flow = tm.Workflow("flow", max_active_runs=100)
        self.busy = tm.Workflow("busy", max_active_runs=100)

        @self.flow.task(retry=tm.Retry(2, delay=DELAYS[0], backoff=2.0))
        def retried() -> None:
            self._note("retried")
            if len(self.calls["retried"]) <= len(DELAYS):
                raise ValueError("down")

        @self.flow.task
        def deferred(ctx: tm.Context) -> None:
            self._note("deferred")
            ctx.defer(for_=WAIT)

        @self.busy.task
        def works() -> int:
            return 1

    def _note(self, name: str) -> None:
        self.calls[name].append(self.node.clock.monotonic())

    async def play(self, steps: list[tuple[int, str]]) -> None:
        """Start a run, step the clock as told, and let everything end."""
        self.node = Neighbour("memory://", load=[self.flow, self.busy], settings=CALM)
        async with self.node as node:
            run = await node.start("flow")
            for seconds, step in steps:
                await node.advance(seconds)
                node.clock.step(step)
                await (await node.start("busy")).wait()
            await node.advance("40s")
            assert (await run.state()).ok, await run.state()


@given(steps=STEPS)
def test_retries_and_deferrals_count_seconds_through_any_steps(steps: list[tuple[int, str]]) -> None:
    """W-4: neither shorter nor longer, but for steps that are too short to be noticed."""
    world = World()
    asyncio.run(world.play(steps))
    waits = {name: [after - before for before, after in pairwise(calls)] for name, calls in world.calls.items()}
    tolerance = 0.1 + 0.3 * len(steps)  # a step of 300 ms is not told from a clock that drifts
    assert waits["retried"] == pytest.approx(DELAYS, abs=tolerance)
    assert waits["deferred"] == pytest.approx([WAIT], abs=tolerance)
