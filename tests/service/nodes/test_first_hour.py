"""What a new user tries first: loading one object, an accumulator without a function, a source that the test gives."""

import sys
from collections.abc import AsyncIterator

import pytest

import tidemill as tm


class Tick(tm.Boundary):
    price: float


ticks = tm.passthrough("ticks", Tick)
market = tm.Reactor("market", [ticks])
maker = tm.Graph("maker", reactor=market)


@maker.node
def place(ticks: Tick) -> Tick | None:
    return ticks if ticks.price > 10 else None


orders = tm.Workflow("orders", params=Tick, triggers=[tm.on_output(maker.place)])


@orders.task
def book(params: Tick) -> float:
    return params.price


@tm.stream(tm.Kafka(topic="prices", servers="kafka.invalid:9092"))
def prices(event: Tick) -> Tick:
    return event


@tm.stream(tm.Kafka(topic="news", servers="kafka.invalid:9092"))
def news(event: str) -> str:
    return event


feed = tm.Reactor("feed", [prices, news], durability="boundary")


async def test_a_workflow_brings_the_graph_and_the_reactor_that_start_it() -> None:
    """`load=` follows objects, and loads what is given as well only once."""
    for load in ([orders], [orders, market], [maker, orders], [market, maker, orders]):
        async with tm.testing.node(load=load) as node:
            await node.push(ticks, Tick(11.0))
            await node.advance("1s")
            (run,) = await node.runs("orders")
            assert (await run.wait()).output(book) == 11.0


async def test_a_workflow_brings_the_graphs_that_its_tasks_call() -> None:
    """A task that calls a graph refers to it."""
    pricing = tm.Graph("pricing")

    @pricing.node
    def double(price: float) -> float:
        return price * 2

    flow = tm.Workflow("flow")

    @flow.task
    def price() -> float:
        return 2.0

    called = flow.call(pricing)
    async with tm.testing.node(load=[flow]) as node:
        assert (await (await node.start(flow)).wait()).output(called) == {"double": 4.0}
        assert node.registry.graphs() == ["pricing"]


def test_an_accumulator_without_a_function_is_called_and_checked_like_one() -> None:
    """Its name and the type of its events are all that there is to say."""
    assert ticks(Tick(1.0)) == Tick(1.0)
    assert (ticks.name, ticks.event_type, ticks.boundary_type, str(ticks.kind)) == ("ticks", Tick, Tick, "passthrough")
    assert ticks.location.file == __file__
    with pytest.raises(tm.DefinitionError, match="a passthrough accumulator's name is an identifier, not 'my ticks'"):
        tm.passthrough("my ticks", Tick)
    with pytest.raises(tm.DefinitionError, match=r'it takes the type of its events, tm.passthrough\("ticks", Book\)'):
        tm.passthrough("ticks")
    with pytest.raises(tm.DefinitionError, match=r"test_first_hour.py:\d+: with a type it takes a name"):
        tm.passthrough(Tick, Tick)


class Generator:
    """A source that says from where it was read."""

    def __init__(self) -> None:
        self.started_at: list[int | None] = []

    async def start(self, checkpoint: int | None) -> AsyncIterator[tuple[Tick, int]]:
        """Yield the next two prices."""
        self.started_at.append(checkpoint)
        for number in (1, 2):
            yield Tick((checkpoint or 0) + number), (checkpoint or 0) + number


async def test_a_test_gives_a_stream_a_list_of_events_or_a_source() -> None:
    """In place of the declared source; other streams are fed by push. A successor reads on after the last event."""
    source = Generator()
    async with tm.testing.node("memory://", load=[feed], sources={"prices": source}) as node:
        await node.advance("1s")
        assert node.reactor("feed").state().cache["prices"] == {"price": 2.0}
        assert (await node.push(news, "rain")).accepted
        node = await node.crash()
        await node.advance("1s")
        assert (source.started_at, node.reactor("feed").state().cache["prices"]) == ([None, 2], {"price": 4.0})
    async with tm.testing.node(load=[feed], sources={"prices": [Tick(5.0), {"price": 6.0}]}) as node:
        await node.advance("1s")
        assert node.reactor("feed").state().cache["prices"] == {"price": 6.0}
        assert node.reactor("feed").state().accumulators["prices"].health == "socket_only"  # the list has ended


async def test_a_source_for_an_unknown_stream_is_an_error() -> None:
    """A misspelt name would be a test that tests nothing."""
    with pytest.raises(tm.DefinitionError, match=r"sources= names 'prizes'.*did you mean 'prices'"):
        async with tm.testing.node(load=[feed], sources={"prizes": []}):
            pass


def run_cell(code: str, names: dict[str, object]) -> None:
    """Run a cell of a notebook."""
    exec(compile(code, "<cell>", "exec"), names)


CELL = """
@w.task
def fetch() -> int:
    return {number}

@g.node
def double(price: int) -> int:
    return price * {number}

@tm.passthrough
def orders(event: int) -> int:
    return event

desk = tm.Reactor("desk", [orders])
"""


def test_a_cell_of_a_notebook_may_run_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new task or node replaces the one of its name; in a program two of one name stay an error."""
    names: dict[str, object] = {"tm": tm, "w": tm.Workflow("w"), "g": tm.Graph("g"), "__name__": "__main__"}
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    run_cell(CELL.format(number=1), names)
    run_cell(CELL.format(number=2), names)
    workflow, graph = names["w"], names["g"]
    assert isinstance(workflow, tm.Workflow)
    assert isinstance(graph, tm.Graph)
    assert workflow.run().outputs == {"fetch": 2}
    assert graph(price=3).outputs == {"double": 6}
    monkeypatch.delattr(sys, "ps1")
    run_cell(CELL.format(number=3), names)
    with pytest.raises(tm.DefinitionError, match="task 'fetch' is declared twice"):
        workflow.check()
    with pytest.raises(tm.DefinitionError, match="node 'double' is declared twice"):
        graph.check()
