"""`tidemill reactor` and `tidemill accumulator` with a server."""

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tidemill as tm
from tests.service.cli.served_commands import CommandLine
from tests.service.server.graph_samples import market
from tests.service.server.serving_node import Served, served
from tests.unit.cli.command_line import run
from tidemill.cli.completions import complete_accumulator, complete_reactor


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with reactor `market` over accumulator `orderbook`."""
    async with tm.Node(load=market()) as node, served(node) as one:
        yield one


@pytest.fixture
def cli(server: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line with the server."""
    return CommandLine(server, monkeypatch, capsys)


async def test_a_reactor_is_shown_and_commanded(server: Served, cli: CommandLine) -> None:
    """server.md: list, show, fire, force-fire, fire-with, pause, resume, restart, state, events."""
    assert [(one["name"], one["fires"]) for one in await cli.json("reactor", "list")] == [("market", 0)]
    assert (await cli.json("reactor", "pause", "market"))["paused"]
    assert "has changed since" in await cli.text("reactor", "fire", "market")
    await server.node.push("orderbook", {"bid": 2.0})
    assert (await cli.json("reactor", "state", "market"))["dirty"] == {"orderbook": True}
    assert "maker.price: 2.0" in await cli.text("reactor", "fire", "market")
    assert (await cli.json("reactor", "fire", "market")) is None
    assert (await cli.json("reactor", "force-fire", "market"))["manual"]
    fired = await cli.json("reactor", "fire-with", "market", '{"orderbook": {"bid": 7}}')
    assert fired["results"]["maker"]["outputs"] == {"price": 7.0}
    assert await cli.code("reactor", "fire-with", "market", '{"orderbook": {"bid": 13}}') == 1
    shown = await cli.text("reactor", "show", "market")
    assert all(word in shown for word in ("market", "orderbook", "unlucky"))
    assert len((await cli.json("reactor", "show", "market"))["firings"]) == 4
    assert "is resumed" in await cli.text("reactor", "resume", "market")
    assert "is restarted" in await cli.text("reactor", "restart", "market")
    assert [one["action"] for one in await cli.json("reactor", "events", "market")] == ["restarted"]
    assert "did you mean" in await cli.error("reactor", "pause", "markt")
    assert await cli.code("reactor", "fire-with", "market", "[1]") == 2


async def test_events_are_pushed_from_a_file(
    server: Served, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """server.md: one event per line; what was not accepted is named by its line, with exit code 1. "-" reads stdin."""
    file = tmp_path / "events.ndjson"
    file.write_text("".join(json.dumps({"bid": number}) + "\n" for number in range(1, 301)))
    assert await cli.text("accumulator", "push", "orderbook", str(file)) == "300 events pushed: 300 emitted\n"
    file.write_text('{"bid": 1}\n\n{"bid": "much"}\n{"bid": 2}\n')
    assert await cli.code("accumulator", "push", "orderbook", str(file), "-o", "json") == 1
    report = json.loads(cli.printed())
    assert (report["events"], [one["line"] for one in report["problems"]]) == (3, [3])
    file.write_text('{"bid": 1}\n{"bid"\n')
    assert "line 2 is not JSON" in await cli.error("accumulator", "push", "orderbook", str(file))
    assert (await cli.json("accumulator", "list"))[0]["emitted"] == 303
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"bid": 1}\n{"bid": 2}\n')))
    assert await cli.text("accumulator", "push", "orderbook", "-") == "2 events pushed: 2 emitted\n"
    assert "cannot be read" in await cli.error("accumulator", "push", "orderbook", str(tmp_path / "nothing"))
    assert "orderbok" in await cli.error("accumulator", "push", "orderbok", str(file))


async def test_dead_letters_are_listed_replayed_and_dropped(server: Served, cli: CommandLine) -> None:
    """server.md: list, show, replay, drop, for events of all accumulators."""
    for bid in ("much", "more"):
        await server.node.push("orderbook", {"bid": bid})
    listed = await cli.json("dead-letter", "list", "--source", "orderbook")
    assert [one["event"] for one in listed] == [{"bid": "more"}, {"bid": "much"}]
    newest, oldest = (one["id"] for one in listed)
    assert (await cli.json("dead-letter", "show", newest))["event"] == {"bid": "more"}
    assert await cli.code("dead-letter", "replay", oldest[-12:]) == 1
    assert "got `str` - at `$.bid`" in cli.printed()
    assert await cli.code("dead-letter", "replay", "--all", "-o", "json") == 1
    assert [(one["id"], one["ok"]) for one in json.loads(cli.printed())] == [(oldest, False), (newest, False)]
    assert await cli.text("dead-letter", "drop", oldest) == f"dead letter {oldest} is dropped\n"
    assert "shows the ids" in await cli.error("dead-letter", "drop", oldest)
    assert [one["dropped"] for one in await cli.json("dead-letter", "drop", "--all")] == [True]
    assert await cli.text("dead-letter", "list") == "no dead letters\n"


async def test_an_event_is_edited_before_it_is_replayed(server: Served, cli: CommandLine) -> None:
    """The other event goes the way of any push; a firing has no event."""
    await server.node.push("orderbook", {"bid": "much"})
    (letter,) = await cli.json("dead-letter", "list")
    assert await cli.code("dead-letter", "replay", letter["id"], "--event", '{"bid": 13}') == 0
    assert cli.printed() == "emitted\n"
    (failed,) = await cli.json("dead-letter", "list")
    assert (failed["kind"], failed["inputs"]["orderbook"]["bid"]) == ("firing", 13.0)
    assert "only an event can be edited" in await cli.error("dead-letter", "replay", failed["id"], "--event", "{}")
    assert await cli.code("dead-letter", "replay", failed["id"]) == 1
    why = failed["error"]
    assert cli.printed() == f"firing {failed['firing_id']} failed: {why}\n"
    assert await cli.code("dead-letter", "replay", "--all") == 1
    assert cli.printed() == f"{failed['id']}: firing {failed['firing_id']} failed: {why}\n"


async def test_an_edited_event_may_come_from_standard_input(
    server: Served, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for the inputs of `reactor fire-with`: what `dead-letter show` prints can be edited in a pipe."""
    await server.node.push("orderbook", {"bid": "much"})
    (letter,) = await cli.json("dead-letter", "list")
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"bid": 12}'))
    assert await cli.text("dead-letter", "replay", letter["id"], "--event", "-") == "emitted\n"
    assert "this is not JSON" in await cli.error("dead-letter", "replay", letter["id"], "--event", "{")


async def test_accumulators_are_shown_and_restarted(cli: CommandLine) -> None:
    """The JSON Schema of the events tells a producer what to send."""
    shown = await cli.json("accumulator", "show", "orderbook")
    assert shown["event_schema"]
    assert "is restarted" in await cli.text("accumulator", "restart", "orderbook")
    assert "orderbook" in await cli.text("accumulator", "list")


async def test_a_shell_completes_names(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """server.md: names as well as verbs; a server that is away completes nothing, and is no error."""
    monkeypatch.setenv("TIDEMILL_SERVER", server.url)
    assert await asyncio.to_thread(complete_reactor, "mar") == ["market"]
    assert await asyncio.to_thread(complete_accumulator, "") == ["orderbook"]
    assert await asyncio.to_thread(complete_reactor, "x") == []
    monkeypatch.setenv("TIDEMILL_SERVER", "http://127.0.0.1:9")
    assert await asyncio.to_thread(complete_reactor, "mar") == []


async def test_loaded_graphs_are_shown(cli: CommandLine) -> None:
    """`graph list`, `show` and `code` with a server show what it has loaded."""
    assert await cli.json("graph", "list") == [{"graph": "maker", "reactor": "market", "nodes": ["price"]}]
    (node,) = await cli.json("graph", "show", "maker")
    assert (node["node"], node["terminal"]) == ("price", True)
    assert "def " in await cli.text("graph", "code", "maker")
    assert "did you mean 'maker'" in await cli.error("graph", "show", "make")


async def test_a_graph_without_a_reactor_is_called(server: Served, cli: CommandLine) -> None:
    """The exit code says whether its nodes succeeded; a bare store has no graph to call."""
    graph = tm.Graph("double")

    @graph.node
    def half(number: int) -> float:
        return 1 / number

    await server.node.load(graph)
    assert (await cli.json("graph", "call", "double", '{"number": 2}'))["outputs"] == {"half": 0.5}
    assert await cli.code("graph", "call", "double", '{"number": 0}') == 1
    assert "ZeroDivisionError" in cli.printed()
    assert "market" in await cli.error("graph", "call", "maker", "{}")


def test_a_store_without_a_server_runs_no_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operation that needs running graphs says what it works with."""
    asyncio.run(_create(address := f"sqlite:///{tmp_path / 'store.db'}"))
    assert run(monkeypatch, "graph", "call", "double", "{}", "--store", address) == 2
    assert "this works with a running server" in capsys.readouterr().err


async def _create(address: str) -> None:
    async with tm.Node(address):
        pass
