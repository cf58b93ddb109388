"""Cooldown and dedup of on_output against a model, through pushes, waits, ends of runs, crashes and reloads."""

from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tidemill.storage.workflow_ports import RunFilter
from tidemill.workflows.records import RunRow

COOLDOWN = timedelta(seconds=60)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("alarm"), st.sampled_from("ab")),
        st.tuples(st.just("wait"), st.sampled_from([1, 29, 30, 60, 61])),
        st.tuples(st.just("end"), st.sampled_from("ab")),
        st.tuples(st.sampled_from(["crash", "reload"]), st.none()),
    ),
    max_size=14,
)


class Alarms:
    """Reactor `r`, graph `g`, whose node `alarm` gives a key, and a workflow that runs until it is cancelled."""

    def __init__(self, cooldown: str | None) -> None:
        self._cooldown = cooldown

        @tm.passthrough
        def key(event: str) -> str:
            return event

        reactor = tm.Reactor("r", [key], durability="boundary", strategy="sequential")
        graph = tm.Graph("g", reactor=reactor)

        @graph.node
        def alarm(key: str) -> str:
            return key

        self.load = [reactor, graph, self.flow()]

    def flow(self) -> tm.Workflow:
        """Return the workflow, as at every reload."""
        trigger = tm.on_output("g", "alarm", dedup="output", cooldown=self._cooldown)
        flow = tm.Workflow("w", triggers=[trigger], max_active_runs=100)

        @flow.task
        def act(ctx: tm.Context) -> None:
            ctx.defer(for_="100d")

        return flow


class Model:
    """What must have been started."""

    def __init__(self, *, has_cooldown: bool) -> None:
        self._has_cooldown = has_cooldown
        self._now = timedelta()
        self._last: dict[str, timedelta] = {}
        self._active: set[str] = set()
        self.started: list[str] = []
        self.suppressed = 0

    def wait(self, seconds: int) -> None:
        self._now += timedelta(seconds=seconds)

    def end(self, key: str) -> None:
        self._active.discard(key)

    def alarm(self, key: str) -> None:
        cooling = key in self._last and self._now - self._last[key] < COOLDOWN
        if cooling if self._has_cooldown else key in self._active:
            self.suppressed += 1
            return
        self.started.append(key)
        self._last[key] = self._now
        self._active.add(key)


@given(story=steps, has_cooldown=st.booleans())
@settings(max_examples=40, deadline=None)
async def test_runs_start_as_the_model_says(story: list[tuple[str, Any]], has_cooldown: bool) -> None:
    """api.md: one run per key and cooldown, counted from the firing that started it; `dedup` alone, while active."""
    model, alarms = Model(has_cooldown=has_cooldown), Alarms("60s" if has_cooldown else None)
    suppressed = 0
    async with tm.testing.node(store="memory://", load=alarms.load) as node:
        for step, value in story:
            if step == "alarm":
                model.alarm(value)
                await node.push("key", value)
                await node.settle()
            elif step == "wait":
                model.wait(value)
                await node.advance(value)
            elif step == "end":
                model.end(value)
                await end_runs(node, value)
            elif step == "reload":
                await node.load(alarms.flow())
            else:
                suppressed += int(node.metrics()["subscription_suppressed_total"])
                node = await node.crash()
                await node.settle()
        found = [key for key, _ in await started_runs(node)]
        suppressed += int(node.metrics()["subscription_suppressed_total"])
    assert found == model.started
    assert suppressed == model.suppressed


async def end_runs(node: Any, key: str) -> None:
    """Cancel the active runs of a key."""
    for own, row in await started_runs(node):
        if own == key and not row.state.is_terminal:
            await node.run_handle(row.id).cancel()
    await node.settle()


async def started_runs(node: Any) -> list[tuple[str, RunRow]]:
    """Return the key and the row of every run, oldest first."""
    rows = await node.probe.workflows.store.runs.find(RunFilter(tenant="public", limit=1000))
    return [(msgspec.msgpack.decode(row.params)["output"], row) for row in rows]
