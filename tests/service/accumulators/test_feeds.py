"""Feeds: results of nodes that are pushed into accumulators of any reactor."""

import asyncio
from types import ModuleType
from typing import Any

import pytest

import tidemill as tm


class Alert(tm.Boundary):
    value: int


def source(name: str = "market", **options: Any) -> tuple[tm.Reactor, tm.Graph]:
    """Return a reactor over `prices`, and a graph for it without nodes."""

    @tm.passthrough
    def prices(event: int) -> int:
        return event

    reactor = tm.Reactor(name, [prices], **options)
    return reactor, tm.Graph(f"{name}_graph", reactor=reactor)


def decide(graph: tm.Graph, feeds: Any) -> None:
    """Let a graph feed an alert for each price above 10, and fail for 13."""

    @graph.node(feeds=feeds)
    def alarm(prices: int) -> Alert | None:
        if prices == 13:
            raise ValueError("unlucky")
        return Alert(value=prices) if prices > 10 else None


def sink(**options: Any) -> tuple[tm.Accumulator, tm.Reactor, tm.Graph, list[int]]:
    """Return an accumulator of alerts, its reactor and graph, and the values that the graph saw."""

    @tm.passthrough
    def alerts(event: Alert) -> Alert:
        return event

    reactor = tm.Reactor("risk", [alerts], **options)
    graph = tm.Graph("risk_graph", reactor=reactor)
    seen: list[int] = []

    @graph.node
    def note(alerts: Alert) -> None:
        seen.append(alerts.value)

    return alerts, reactor, graph, seen


def module(name: str, *definitions: Any) -> ModuleType:
    """Return a module, which is a package, with these definitions."""
    made = ModuleType(name)
    for number, one in enumerate(definitions):
        setattr(made, f"definition_{number}", one)
    return made


@pytest.mark.parametrize("by_name", [False, True])
async def test_a_result_is_pushed_into_an_accumulator_of_another_reactor(by_name: bool) -> None:
    """G-14: in order, when the firing succeeds; None and a failed firing push nothing."""
    alerts, risk, risk_graph, seen = sink(strategy="sequential")
    market, graph = source()
    decide(graph, "alerts" if by_name else alerts)
    async with tm.testing.node(load=[market, graph, risk, risk_graph]) as node:
        for price in (5, 11, 13, 12, 14):
            await node.push("prices", price)
        await node.settle()
        assert node.reactor("risk").state().accumulators["alerts"].emitted == 3
    assert seen == [11, 12, 14]


async def test_a_node_that_is_skipped_or_runs_beside_others_feeds_what_it_returned() -> None:
    """G-14: several nodes may feed one accumulator, and an async graph feeds as well."""
    _, risk, risk_graph, seen = sink(strategy="sequential")
    market, graph = source()

    @graph.node
    def choose(prices: int) -> int | str:
        return prices if prices > 10 else "low"

    @graph.node(feeds="alerts")
    async def high(choose: int) -> Alert:
        await asyncio.sleep(0)
        return Alert(value=choose)

    @graph.node(feeds="alerts")
    def low(choose: str) -> Alert:
        return Alert(value=len(choose))

    async with tm.testing.node(load=[market, graph, risk, risk_graph]) as node:
        for price in (5, 11):
            await node.push("prices", price)
            await node.settle()
    assert seen == [3, 11]


async def test_a_manual_firing_a_retry_and_a_replay_feed_once_each() -> None:
    """G-13, G-15: whenever the graph succeeds."""
    _, risk, risk_graph, seen = sink(strategy="sequential")
    market, graph = source(on_error=tm.Retry(1, delay="1s"))
    failures = 3

    @graph.node(feeds="alerts")
    def alarm(prices: int) -> Alert:
        nonlocal failures
        if prices == 2 and failures:
            failures -= 1
            raise ValueError("not yet")
        return Alert(value=prices)

    async with tm.testing.node(load=[market, graph, risk, risk_graph]) as node:
        await node.push("prices", 1)
        await node.reactor("market").force_fire()
        await node.push("prices", 2)
        await node.advance("1s")
        (letter,) = await node.reactor("market").dead_letters()
        with pytest.raises(IndexError):
            seen[2]
        await node.reactor("market").replay(letter.id)
        await node.reactor("market").replay(letter.id)
        await node.settle()
    assert seen == [1, 1, 2]


async def test_a_fed_window_and_a_fed_batch_of_another_reactor_work_as_if_pushed() -> None:
    """G-5: a window that another reactor's graph feeds sets its flag, a batch flushes by size."""
    recent = tm.window("recent", Alert, capacity=2)

    @tm.batch(every="1h", max_size=2)
    def pairs(events: list[Alert]) -> int:
        return sum(one.value for one in events)

    risk = tm.Reactor("risk", [recent, pairs])
    market, graph = source()
    decide(graph, recent)

    @graph.node(feeds=pairs)
    def again(alarm: Alert) -> Alert:
        return alarm

    async with tm.testing.node(load=[risk, market, graph]) as node:
        for price in (11, 12, 14):
            await node.push("prices", price)
        await node.settle()
        state = node.reactor("risk").state()
    assert state.cache == {"recent": [{"value": 12}, {"value": 14}], "pairs": 23}
    assert state.fires >= 3


# -- types and loops


async def test_the_types_of_a_feed_are_checked_at_load() -> None:
    """G-17: by object with the graph, by name when the accumulator is known; nothing is loaded."""
    alerts, risk, _, _ = sink()
    for feeds in (alerts, "alerts"):
        market, graph = source()

        @graph.node(feeds=feeds)
        def alarm(prices: int) -> int:
            return prices

        async with tm.testing.node(load=[risk, market]) as node:
            with pytest.raises(tm.DefinitionError, match="node 'alarm' returns int, but accumulator 'alerts' takes"):
                await node.load(graph)
            assert node.registry.graphs() == []


async def test_an_accumulator_that_is_not_loaded_is_named_with_a_suggestion() -> None:
    """G-27: like a reactor that is not loaded."""
    _, risk, _, _ = sink()
    market, graph = source()
    decide(graph, "alert")
    async with tm.testing.node(load=[risk, market]) as node:
        with pytest.raises(tm.RequestError, match=r"accumulator 'alert' not loaded \(did you mean 'alerts'") as raised:
            await node.load(graph)
    assert raised.value.code == "accumulator_not_found"


@pytest.mark.parametrize("thing", [3, len, tm.Reactor])
def test_only_an_accumulator_or_its_name_can_be_fed(thing: Any) -> None:
    """G-17."""
    _, graph = source()
    decide(graph, thing)
    with pytest.raises(tm.DefinitionError, match="which is neither an accumulator nor the name of one"):
        graph.check()


def test_a_graph_that_feeds_its_own_reactor_is_rejected_unless_a_window_or_a_batch_ends_the_loop() -> None:
    """G-17: found with the graph alone."""

    @tm.passthrough
    def again(event: int) -> int:
        return event

    @tm.batch(every="1s")
    def later(events: list[int]) -> int:
        return sum(events)

    past = tm.window("past", int, capacity=3)
    reactor = tm.Reactor("r", [again, later, past])
    for fed, is_loop in ((again, True), (later, False), (past, False), ("again", True), ("past", False)):
        graph = tm.Graph("g", reactor=reactor)

        @graph.node(feeds=fed)
        def out(again: int) -> int:
            return again

        if is_loop:
            with pytest.raises(tm.DefinitionError, match="feeds 'again' of its own reactor 'r'"):
                graph.check()
        else:
            graph.check()


def looping(kind: str) -> list[Any]:
    """Return reactors `one` and `two` over `first` and `second`, and graphs that feed them to each other."""

    @tm.passthrough
    def first(event: int) -> int:
        return event

    if kind == "batch":

        @tm.batch(every="1s")
        def second(events: list[int]) -> int:
            return sum(events)

    else:

        @tm.passthrough
        def second(event: int) -> int:
            return event

    one, two = tm.Reactor("one", [first]), tm.Reactor("two", [second])
    forth, back = tm.Graph("forth", reactor=one), tm.Graph("back", reactor=two)

    @forth.node(feeds="second")
    def ahead(first: int) -> int | None:
        return first + 1 if first < 5 else None

    @back.node(feeds="first")
    def around(second: int) -> int:
        return second + 1

    return [one, two, forth, back]


async def test_a_loop_over_reactors_is_rejected_when_a_later_load_closes_it() -> None:
    """G-17, P-4: with the whole loop; what is loaded stays."""
    one, two, forth, back = looping("passthrough")
    async with tm.testing.node(load=[one, two, forth]) as node:
        with pytest.raises(tm.DefinitionError) as raised:
            await node.load(back)
        (problem,) = raised.value.problems
        assert problem.message == (
            "reactors feed one another in a loop, one -> two -> one: node 'ahead' of graph 'forth' feeds 'second'; "
            "node 'around' of graph 'back' feeds 'first'; feed a window or a batch instead"
        )
        assert node.registry.graphs() == ["forth"]
        await node.unload("graph:forth")
        await node.load(back)
        with pytest.raises(tm.DefinitionError, match="in a loop"):
            await node.load(forth)


async def test_a_loop_through_a_batch_runs_at_the_pace_of_the_batch() -> None:
    """G-5: it does not starve the node."""
    async with tm.testing.node(load=looping("batch")) as node:
        await node.push("first", 1)
        await node.settle()
        assert node.reactor("two").state().fires == 0
        await node.advance("5s")
        assert node.reactor("two").state().fires == 2
        assert node.reactor("one").state().cache == {"first": 5}


# -- packages


async def test_a_fed_reactor_cannot_be_unloaded_or_changed_while_another_package_feeds_it() -> None:
    """G-28, P-4: the guard names the graph, and nothing has changed."""
    _, risk, risk_graph, seen = sink()
    market, graph = source()
    decide(graph, "alerts")

    @tm.passthrough
    def alerts(event: str) -> str:
        return event

    async with tm.testing.node(load=[module("sink", risk, risk_graph), module("source", market, graph)]) as node:
        with pytest.raises(tm.RequestError, match=r"reactor 'risk' has 1 bound subscriber\(s\): \['market_graph'\]"):
            await node.unload("sink")
        with pytest.raises(tm.RequestError, match="accumulator 'alerts' is fed by graph 'market_graph'") as raised:
            await node.load(module("sink", tm.Reactor("risk", [alerts])))
        assert raised.value.code == "reactor_in_use"
        await node.push("prices", 11)
        await node.settle()
        assert seen == [11]
        await node.unload("source")
        await node.unload("sink")
        assert node.registry.accumulators() == []


async def test_values_are_converted_to_the_class_of_the_other_package() -> None:
    """P-5: packages may each have their own copy of the class."""
    code = "import tidemill as tm\nclass Alert(tm.Boundary):\n    value: int\n"
    ours, theirs = ModuleType("shared"), ModuleType("shared")
    exec(code, vars(ours))
    exec(code, vars(theirs))
    classes = []

    @tm.passthrough
    def alerts(event: theirs.Alert) -> int:  # type: ignore[name-defined]
        classes.append(type(event))
        return event.value

    market, graph = source()

    @graph.node(feeds="alerts")
    def alarm(prices: int) -> ours.Alert:  # type: ignore[name-defined]
        return ours.Alert(value=prices)

    async with tm.testing.node(load=[tm.Reactor("risk", [alerts]), market, graph]) as node:
        await node.push("prices", 11)
        await node.settle()
        assert node.reactor("risk").state().cache == {"alerts": 11}
    assert classes == [theirs.Alert]


async def test_results_stay_in_the_tenant_of_their_graph() -> None:
    """G-30: the same names in two tenants do not meet."""
    async with tm.testing.node() as node:
        sinks = {}
        for tenant in ("acme", "beta"):
            _, risk, risk_graph, sinks[tenant] = sink()
            market, graph = source()
            decide(graph, "alerts")
            for one in (risk, risk_graph, market, graph):
                await node.load(one, tenant=tenant)
        await node.push("prices", 11, tenant="acme")
        await node.settle()
    assert sinks == {"acme": [11], "beta": []}


# -- back-pressure


async def test_a_full_target_slows_its_source_and_loses_nothing() -> None:
    """G-12: a blocking queue holds results back, the source stops firing, and all of them come in order."""
    _, risk, risk_graph, seen = sink(strategy="sequential", capacity=2)
    market, graph = source(strategy="sequential")
    decide(graph, "alerts")
    count = 400
    async with tm.testing.node(load=[risk, risk_graph, market, graph]) as node:
        await node.reactor("risk").pause()
        for price in range(100, 100 + count):
            await node.push("prices", price)
        await node.settle()
        fires = node.reactor("market").state().fires
        assert node.reactor("risk").state().queued == 2
        assert fires < count
        assert node.reactor("market").state().queued == count - fires
        await node.reactor("risk").resume()
        await node.settle()
        assert node.reactor("market").state().fires == count
    assert seen == list(range(100, 100 + count))


async def test_a_target_that_rejects_drops_and_counts() -> None:
    """G-4, G-12: the source goes on."""
    _, risk, risk_graph, seen = sink(strategy="sequential", capacity=2, overflow="reject")
    market, graph = source(strategy="sequential")
    decide(graph, "alerts")
    async with tm.testing.node(load=[risk, risk_graph, market, graph]) as node:
        await node.reactor("risk").pause()
        for price in range(100, 110):
            await node.push("prices", price)
        await node.settle()
        assert node.reactor("market").state().fires == 10
        assert node.reactor("risk").state().dropped == {"full": 8}
        await node.reactor("risk").resume()
    assert seen == [100, 101]


async def test_a_result_waits_for_a_crashed_accumulator() -> None:
    """G-19: it is pushed when the accumulator is back."""
    _, risk, risk_graph, seen = sink(strategy="sequential")
    market, graph = source(strategy="sequential")
    decide(graph, "alerts")
    async with tm.testing.node(load=[risk, risk_graph, market, graph]) as node:
        await node.break_accumulator("alerts")
        await node.push("prices", 11)
        await node.push("prices", 12)
        await node.settle()
        assert seen == []
        await node.advance("2s")
    assert seen == [11, 12]


async def test_a_result_that_does_not_fit_is_a_dead_letter_of_the_target() -> None:
    """G-7: where the annotation promises nothing."""
    _, risk, risk_graph, _ = sink()
    market, graph = source()

    @graph.node(feeds="alerts")
    def alarm(prices: int):
        return {"value": "high"}

    async with tm.testing.node(load=[risk, risk_graph, market, graph]) as node:
        await node.push("prices", 11)
        await node.settle()
        (letter,) = await node.reactor("risk").dead_letters()
    assert letter.event == {"value": "high"}


# -- durability


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_a_crash_loses_no_result_that_a_checkpoint_of_its_source_holds(durability: Any) -> None:
    """G-23, G-24: results that wait for their target are pushed after the restart, at least once and in order."""
    _, risk, risk_graph, seen = sink(strategy="sequential", capacity=1, durability="boundary")
    market, graph = source(strategy="sequential", durability=durability)
    decide(graph, "alerts")
    async with tm.testing.node("memory://", load=[risk, risk_graph, market, graph]) as node:
        await node.reactor("risk").pause()
        for price in (11, 12, 14, 15):
            await node.push("prices", price)
        await node.advance("1s")
        assert seen == []
        node = await node.crash()
        await node.reactor("risk").resume()
        await node.advance("1s")
        await node.settle()
    assert sorted(set(seen)) == [11, 12, 14, 15]
    assert [value for index, value in enumerate(seen) if value not in seen[:index]] == [11, 12, 14, 15]


async def test_a_boundary_source_that_crashes_before_any_checkpoint_feeds_after_its_restart() -> None:
    """G-24: the journal brings the event back, its firing runs again, and so does its feed."""
    _, risk, risk_graph, seen = sink(strategy="sequential", durability="boundary")
    market, graph = source(strategy="sequential", durability="boundary")
    decide(graph, "alerts")
    async with tm.testing.node("memory://", load=[risk, risk_graph, market, graph]) as node:
        await node.break_accumulator("alerts")
        assert (await node.push("prices", 11)).accepted
        node = await node.crash()
        await node.settle()
    assert seen
    assert set(seen) == {11}


async def test_a_node_that_closes_delivers_what_it_can_first() -> None:
    """Q-6: an orderly end loses no result."""
    _, risk, risk_graph, seen = sink(strategy="sequential")
    market, graph = source(strategy="sequential")
    decide(graph, "alerts")
    async with tm.testing.node(load=[risk, risk_graph, market, graph]) as node:
        for price in range(100, 150):
            await node.push("prices", price)
    assert seen == list(range(100, 150))
