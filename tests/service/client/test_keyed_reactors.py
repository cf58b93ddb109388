"""Keyed reactors through the client and the command line."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidemill as tm
from tests.service.cli.served_commands import CommandLine
from tests.service.server.keyed_samples import Trade, keyed_market
from tests.service.server.serving_node import Served, served
from tidemill.client import AsyncClient

KEYS: tuple[Any, ...] = ("BTC", 42, ("X", "SAP"))


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node whose market has had one trade of each of three keys, priced 1, 2 and 3."""
    async with tm.Node(load=keyed_market()) as node, served(node) as one:
        for number, (symbol, venue) in enumerate((("BTC", ""), ("42", ""), ("SAP", "X")), 1):
            await node.push("trades", Trade(symbol, number, venue))
        yield one


@pytest.fixture
def cli(server: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line with the server."""
    return CommandLine(server, monkeypatch, capsys)


async def test_the_client_reads_and_fires_one_key(server: Served) -> None:
    async with AsyncClient(server.url, retry=tm.Retry(2, delay="1ms")) as client:
        reactor = client.reactor("market")
        state = await reactor.state()
        assert state.keys is not None
        assert (state.keys.total, len(state.partitions)) == (3, 4)
        for price, key in enumerate(KEYS, 1):
            assert (await reactor.state(key)).cache["trades"]["price"] == price
            fired = await reactor.force_fire(key)
            assert [one.id for one in await reactor.firings(limit=1, key=fired.key)] == [fired.id]
        fired = await reactor.fire_with({"trades": Trade("SAP", 9.0, "X")}, key=("X", "SAP"))
        assert (fired.key, fired.results["maker"].outputs) == (["X", "SAP"], {"double": 18.0})
        with pytest.raises(tm.RequestError) as raised:
            await reactor.force_fire()
        assert raised.value.code == "key_required"
        with pytest.raises(tm.RequestError) as raised:
            await reactor.state("42")
        assert raised.value.code == "key_not_found"


async def test_the_command_line_reads_and_fires_one_key(cli: CommandLine) -> None:
    assert (await cli.json("reactor", "state", "market", "--key", "42"))["cache"]["trades"]["price"] == 2.0
    assert len((await cli.json("reactor", "state", "market"))["partitions"]) == 4
    shown = await cli.text("reactor", "show", "market")
    assert all(word in shown for word in ("3 keys", "partition", "of key BTC"))
    of_one = await cli.text("reactor", "show", "market", "--key", '["X", "SAP"]')
    assert "of key BTC" not in of_one
    assert 'of key ["X","SAP"]' in of_one
    assert "for key BTC" in await cli.text("reactor", "fire", "market", "--key", "BTC")
    assert (await cli.json("reactor", "force-fire", "market", "--key", '["X", "SAP"]'))["key"] == ["X", "SAP"]
    inputs = '{"trades": {"symbol": "BTC", "price": 7}}'
    fired = await cli.json("reactor", "fire-with", "market", inputs, "--key", "BTC")
    assert fired["results"]["maker"]["outputs"] == {"double": 14.0}
    assert "say which with key" in await cli.error("reactor", "force-fire", "market")
