"""Workflows that the values of graphs start: a decision starts work."""

import math
from typing import Any

import pytest

import tidemill as tm
from tests.service.server.serving_node import served
from tests.service.triggers.alerts import Alert, Plant, Reading, cooler, degrees, heat
from tidemill.engine.workflows.starts.starter import RunStarter
from tidemill.kernel.errors import StoreError

SUPPRESSED = "subscription_suppressed_total"


async def never(*_: Any) -> None:
    """Fail in place of starting a run."""
    raise StoreError("down")


# -- what starts, and with what


async def test_a_value_is_the_params_of_a_run() -> None:
    """api.md, a decision starts work: typed end to end; other variants and None start nothing."""
    seen: list[Any] = []
    async with tm.testing.node(load=[*Plant().load, cooler(seen)]) as node:
        await heat(node, 99.0, 101.0, 0.0)
        (firing,) = [one for one in node.reactor("r").firings() if one.inputs["reading"].celsius == 101.0]
        alert = Alert(sensor="a", celsius=101.0)
        assert seen == [(alert, firing.id, {"reading": {"sensor": "a", "celsius": 101.0}})]
        assert node.metrics()["subscription_runs_total"] == 1


async def test_a_run_names_its_firing_and_the_firing_its_runs() -> None:
    """The link from a run to the event, and back from a firing to the run."""
    async with tm.testing.node(load=[*Plant().load, cooler([])]) as node, served(node) as server:
        await heat(node, 99.0, 101.0)
        (run,) = await node.runs()
        info = await run.info()
        assert (info.origin, info.cause, info.parent, info.actor) == ("firing", "r", None, None)
        firings = (await server.http.get("/reactors/r/firings")).json()["items"]
        assert [one["runs"] for one in firings if one["id"] == info.firing] == [[run.id]]
        assert [one["runs"] for one in firings if one["id"] != info.firing] == [[]]
        found = (await server.http.get("/runs", params={"started_by": info.firing})).json()["items"]
        assert [one["id"] for one in found] == [run.id]


async def test_without_params_a_run_reads_the_value_from_its_context() -> None:
    """api.md: ctx["output"], ctx["firing_id"] and ctx["inputs"]."""
    seen: list[Any] = []
    plant = Plant()
    flow = tm.Workflow("w", triggers=[tm.on_output(plant.graph.audit)])

    @flow.task
    def act(ctx: tm.Context) -> None:
        seen.append((ctx["output"], ctx["inputs"], ctx["firing_id"]))

    async with tm.testing.node(load=[*plant.load, flow]) as node:
        await heat(node, 20.0)
        (firing,) = node.reactor("r").firings()
    assert seen == [({"line": "a: 20.0"}, {"reading": {"sensor": "a", "celsius": 20.0}}, firing.id)]


async def test_params_may_declare_what_they_take() -> None:
    """As the params of on_firing may."""

    class Taken(tm.Params):
        output: dict[str, str]
        limit: int = 3

    seen: list[Any] = []
    flow = tm.Workflow("w", params=Taken, triggers=[tm.on_output("monitor", "audit")])

    @flow.task
    def act(params: Taken) -> None:
        seen.append(params)

    async with tm.testing.node(load=[*Plant().load, flow]) as node:
        await heat(node, 20.0)
    assert seen == [Taken(output={"line": "a: 20.0"})]


async def test_a_workflow_with_a_boundary_as_params_starts_by_hand_too() -> None:
    """api.md: `params=` takes a tm.Boundary class as well; a task may call its params as it likes."""
    flow = tm.Workflow("w", params=Alert)

    @flow.task
    def act(alert: Alert) -> float:
        return alert.celsius

    @flow.task
    def check(act: float, given: Alert) -> bool:
        return act == given.celsius

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("w", sensor="a", celsius=7.0)
        assert (await run.wait()).outputs["check"] is True
        with pytest.raises(tm.RequestError, match="'celsius' takes float"):
            await node.start("w", sensor="a", celsius="hot")
    assert flow.run(sensor="a", celsius=7.0).outputs["check"] is True


async def test_several_nodes_and_workflows_have_runs_of_their_own() -> None:
    """One run per subscription and firing."""
    seen: list[Any] = []
    plant = Plant()
    both = tm.Workflow("both", triggers=[tm.on_output(plant.graph, "alert"), tm.on_output(plant.graph.audit)])

    @both.task
    def act(ctx: tm.Context) -> None:
        seen.append(ctx["output"])

    also = tm.Workflow("also", triggers=[tm.on_firing("r"), tm.on_output(plant.graph.audit)])

    @also.task
    def follow() -> None: ...

    async with tm.testing.node(load=[*plant.load, both, also, cooler([], "third")]) as node:
        await heat(node, 101.0)
        assert {len(await node.runs(name)) for name in ("both", "also")} == {2}
        assert len(await node.runs("third")) == 1
    assert {"line": "a: 101.0"} in seen
    assert len(seen) == 2


async def test_an_asynchronous_graph_starts_runs_as_well() -> None:
    seen: list[Any] = []
    async with tm.testing.node(load=[*Plant(asynchronous=True, strategy="sequential").load, cooler(seen)]) as node:
        await heat(node, 101.0, 102.0)
    assert degrees(seen) == [101.0, 102.0]


async def test_another_graph_that_fails_does_not_matter_and_its_own_does() -> None:
    """A decision counts when the call of its graph succeeded, as a window is fed then."""
    seen: list[Any] = []
    lines: list[Any] = []
    plant = Plant(fails=lambda reading: True)
    other = tm.Graph("other", reactor=plant.reactor)

    @other.node
    def alert(reading: Reading) -> Alert:
        return Alert(sensor="other", celsius=reading.celsius)

    on_other = tm.Workflow("w", params=Alert, triggers=[tm.on_output(other.alert)])

    @on_other.task
    def act(params: Alert) -> None:
        lines.append(params.sensor)

    audits = tm.Workflow("audits", triggers=[tm.on_output("monitor", "audit")])

    @audits.task
    def look() -> None: ...

    async with tm.testing.node(load=[*plant.load, other, on_other, cooler(seen), audits]) as node:
        await heat(node, 101.0)
        assert (seen, lines, await node.runs("audits")) == ([], ["other"], [])


async def test_a_retry_that_succeeds_starts_the_run_of_its_firing() -> None:
    """A retried firing keeps its id, and so has one run."""
    seen: list[Any] = []
    broken = [True, True, False, False]
    plant = Plant(fails=lambda reading: broken.pop(0), on_error=tm.Retry(3, delay="1s"))
    async with tm.testing.node(load=[*plant.load, cooler(seen)]) as node:
        await heat(node, 101.0)
        assert seen == []
        await node.advance("5s")
        assert [(params.celsius, firing) for params, firing, _ in seen] == [(101.0, node.reactor("r").firings()[0].id)]


async def test_a_replay_of_a_dead_firing_starts_its_run(store: str) -> None:
    """The decision was made at last, under the id of its firing; a crash right after it loses nothing."""
    seen: list[Any] = []
    broken = [True, False]
    plant = Plant(fails=lambda reading: bool(broken) and broken.pop(0))
    async with tm.testing.node(store, load=[*plant.load, cooler(seen)]) as node:
        await heat(node, 101.0)
        (dead,) = await node.reactor("r").dead_letters()
        assert seen == []
        firing = await node.reactor("r").replay(dead.id)
        assert await node.reactor("r").dead_letters() == []
        await node.settle()
        assert [(params.celsius, id_) for params, id_, _ in seen] == [(101.0, firing.id)]
        node = await node.crash()
        await node.settle()
        assert len(await node.runs("cool")) == 1


async def test_a_manual_firing_counts() -> None:
    """As it does for on_firing."""
    seen: list[Any] = []
    async with tm.testing.node(load=[*Plant().load, cooler(seen)]) as node:
        await node.reactor("r").fire_with({"reading": Reading(sensor="b", celsius=150.0)})
        await node.settle()
        await node.reactor("r").force_fire()
        await node.settle()
    assert degrees(seen) == [150.0, 150.0]


async def test_a_firing_in_a_pause_of_the_workflow_starts_nothing() -> None:
    seen: list[Any] = []
    async with tm.testing.node(load=[*Plant().load, cooler(seen)]) as node:
        await node.pause("cool")
        await heat(node, 101.0)
        await node.resume("cool")
        await heat(node, 102.0)
    assert degrees(seen) == [102.0]


# -- conditions


def is_extreme(alert: Alert) -> bool:
    """A condition, as authors write it."""
    return isinstance(alert, Alert) and alert.celsius > 150


def sensor_of(alert: Alert) -> str:
    """What an alert is about."""
    return alert.sensor


def has_sensor_a(payload: dict[str, Any]) -> bool:
    """A condition of on_firing."""
    return bool(payload["reading"]["sensor"] == "a")


@pytest.mark.parametrize(
    "when", [is_extreme, "output.celsius > 150.0", "inputs.reading.celsius > 150.0 && firing_id.startsWith('r-')"]
)
async def test_a_condition_selects_values(when: Any) -> None:
    """api.md: CEL over output, inputs and firing_id, or a function of the value."""
    seen: list[Any] = []
    async with tm.testing.node(load=[*Plant().load, cooler(seen, when=when)]) as node:
        await heat(node, 101.0, 151.0)
    assert degrees(seen) == [151.0]


async def test_a_function_may_be_the_condition_of_on_firing() -> None:
    """api.md: on_firing takes a function of the payload."""
    flow = tm.Workflow("w", triggers=[tm.on_firing("r", when=has_sensor_a)])

    @flow.task
    def act() -> None: ...

    async with tm.testing.node(load=[*Plant().load, flow]) as node:
        await heat(node, 20.0, sensor="a")
        await heat(node, 20.0, sensor="b")
        assert len(await node.runs("w")) == 1


# -- alarms that repeat


async def test_a_cooldown_leaves_out_what_repeats() -> None:
    """api.md: one run per cooldown, counted from the firing that started it; the rest is counted."""
    seen: list[Any] = []
    async with tm.testing.node(load=[*Plant().load, cooler(seen, cooldown="5m")]) as node:
        await heat(node, 101.0, 102.0)
        await node.advance("4m59s")
        await heat(node, 103.0)
        await node.advance("1s")
        await heat(node, 104.0)
        await node.advance("4m59s")
        await heat(node, 105.0)
        assert degrees(seen) == [101.0, 104.0]
        assert node.metrics()[SUPPRESSED] == 3


@pytest.mark.parametrize("dedup", ["output.sensor", sensor_of])
async def test_a_cooldown_is_per_key(dedup: Any) -> None:
    """api.md: one run per key and cooldown."""
    seen: list[Any] = []
    async with tm.testing.node(load=[*Plant().load, cooler(seen, cooldown="5m", dedup=dedup)]) as node:
        await heat(node, 101.0, 102.0, sensor="a")
        await heat(node, 103.0, 104.0, sensor="b")
        assert degrees(seen) == [101.0, 103.0]
        assert node.metrics()[SUPPRESSED] == 2


async def test_without_a_cooldown_a_key_has_one_run_while_that_is_active() -> None:
    """api.md: `dedup` alone."""
    begun: list[float] = []
    flow = tm.Workflow("w", params=Alert, triggers=[tm.on_output("monitor", "alert", dedup="output.sensor")])

    @flow.task
    def act(params: Alert, ctx: tm.Context) -> None:
        begun.append(params.celsius)
        ctx.defer(for_="1h")

    async with tm.testing.node(load=[*Plant().load, flow]) as node:
        await heat(node, 101.0, 102.0, sensor="a")
        await heat(node, 103.0, sensor="b")
        await node.advance("30m")
        await heat(node, 104.0, sensor="a")
        assert (begun, node.metrics()[SUPPRESSED]) == ([101.0, 103.0], 2)
        await node.advance("31m")
        await heat(node, 105.0, sensor="a")
        assert begun[-1] == 105.0


def forgetful(alert: Alert) -> None:
    """A key whose author forgot to return it."""
    assert alert.sensor


async def test_a_function_that_returns_no_key_is_an_error() -> None:
    """It would make all alerts the same, and start one run in place of all."""
    plant = Plant()
    async with tm.testing.node(load=[*plant.load, cooler([], dedup=forgetful)]) as node:
        await heat(node, 101.0)
        await node.advance("20s")
        (dead,) = await node.reactor("r").dead_letters()
        assert dead.error == "dedup=forgetful gave None, and not what the value is about"


async def test_a_cooldown_outlives_the_process(store: str) -> None:
    """api.md: durable across restarts."""
    seen: list[Any] = []
    load = [*Plant(durability="boundary").load, cooler(seen, cooldown="1h", dedup=sensor_of)]
    async with tm.testing.node(store, load=load) as node:
        await heat(node, 101.0)
        node = await node.crash()
        await heat(node, 102.0)
        await node.advance("59m")
        node = await node.crash()
        await heat(node, 103.0)
        assert degrees(seen) == [101.0]
        await node.advance("2m")
        await heat(node, 104.0)
        assert degrees(seen) == [101.0, 104.0]


# -- what outlives the process


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_a_value_that_was_not_delivered_is_delivered_after_a_crash(
    store: str, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """graphs.md: the firing's record commits before the firing counts as done; its values are part of the record."""
    seen: list[Any] = []
    plant = Plant(durability=durability)
    async with tm.testing.node(store, load=[*plant.load, cooler(seen, when=is_extreme)]) as node:
        with monkeypatch.context() as patch:
            patch.setattr(RunStarter, "start", never)
            await node.push("reading", Reading(sensor="a", celsius=200.0))
            await node.probe.graphs.write_checkpoint()
            fired = node.reactor("r").firings()[0].id
            assert node.probe.graphs.in_delivery("r") == [{"cool"}]
        for _ in range(2):
            node = await node.crash()
            await node.settle()
            alert = Alert(sensor="a", celsius=200.0)
            assert seen == [(alert, fired, {"reading": {"sensor": "a", "celsius": 200.0}})]
            assert node.probe.graphs.undelivered("r") == []


async def test_a_reload_keeps_what_was_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-6: of the workflow, and of the graph; the newer versions get it."""
    seen: list[Any] = []
    async with tm.testing.node(load=[*Plant().load, cooler(seen)]) as node:
        with monkeypatch.context() as patch:
            patch.setattr(RunStarter, "start", never)
            await node.push("reading", Reading(sensor="a", celsius=200.0))
            await node.advance("1s")
            await node.load(cooler(seen))
            newer = tm.Graph("monitor", reactor="r")

            @newer.node
            def alert(reading: Reading) -> Alert:
                return Alert(sensor="newer", celsius=reading.celsius)

            await node.load(newer)
        await node.advance("1m")
        await heat(node, 99.0)
        assert [params.sensor for params, *_ in seen] == ["a", "newer"]


async def test_a_value_that_cannot_be_stored_is_described() -> None:
    """G-26: firings continue, and the run gets what can be told."""
    graph_seen: list[Any] = []

    @tm.passthrough
    def a(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a])
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def out(a: int) -> Any:
        return {"nan": math.nan, "odd": object}

    flow = tm.Workflow("w", triggers=[tm.on_output(graph.out)])

    @flow.task
    def act(ctx: tm.Context) -> None:
        graph_seen.append(ctx["output"])

    async with tm.testing.node(load=[reactor, graph, flow]) as node:
        await node.push("a", 1)
        await node.settle()
    ((output,),) = [graph_seen]
    assert output["odd"] == "<class 'object'>"
