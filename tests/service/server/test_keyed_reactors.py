"""Keyed reactors over HTTP and WebSocket: their partitions, and the state, the firings and the commands of one key."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import tidemill as tm
from tests.service.server.graph_samples import market
from tests.service.server.keyed_samples import keyed_market
from tests.service.server.live_client import ask, live
from tests.service.server.serving_node import Served, served

REACTOR = "/reactors/market"
TRADES = (
    {"symbol": "BTC", "price": 1.0},
    {"symbol": "42", "price": 2.0},
    {"symbol": "SAP", "price": 3.0, "venue": "X"},
)


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node whose market has had one trade of each of three keys."""
    async with tm.Node(load=keyed_market()) as node, served(node) as one:
        for trade in TRADES:
            await node.push("trades", trade)
        yield one


async def command(server: Served, **body: Any) -> httpx.Response:
    """Give the market a command."""
    return await server.http.post(f"{REACTOR}/commands", json=body)


def problem_of(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the code of a problem."""
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


async def test_the_state_has_the_partitions_with_owner_and_keys(server: Served) -> None:
    state = (await server.http.get(REACTOR)).json()
    assert (state["key"], state["cache"], state["fires"]) == (None, {}, 3)
    assert state["keys"] == {"total": 3, "active": 3, "stored": 0}
    assert [one["number"] for one in state["partitions"]] == [0, 1, 2, 3]
    assert sum(one["keys"]["active"] for one in state["partitions"]) == 3
    assert all(one["health"] == "live" for one in state["partitions"])


@pytest.mark.parametrize(
    ("text", "key", "price"), [("BTC", "BTC", 1.0), ("42", 42, 2.0), ('["X","SAP"]', ["X", "SAP"], 3.0)]
)
async def test_one_key_is_read(server: Served, text: str, key: Any, price: float) -> None:
    """The state and the firings of one key, by its text."""
    state = (await server.http.get(REACTOR, params={"key": text})).json()
    assert (state["name"], state["key"], state["cache"]["trades"]["price"]) == ("market", key, price)
    assert list(state["accumulators"]) == ["trades"]
    page = (await server.http.get(f"{REACTOR}/firings", params={"key": text})).json()
    assert [(one["key"], one["inputs"]["trades"]["price"]) for one in page["items"]] == [(key, price)]


async def test_a_key_is_fired(server: Served) -> None:
    fired = (await command(server, command="fire_with", inputs={"trades": TRADES[2]}, key=["X", "SAP"])).json()
    assert (fired["firing"]["key"], fired["firing"]["manual"]) == (["X", "SAP"], True)
    assert (fired["state"]["name"], fired["state"]["key"]) == ("market", ["X", "SAP"])
    forced = (await command(server, command="force_fire", key=42)).json()
    assert forced["firing"]["results"]["maker"]["outputs"] == {"double": 4.0}
    page = (await server.http.get(f"{REACTOR}/firings")).json()
    assert sorted(str(one["key"]) for one in page["items"]) == sorted(["42"] * 2 + ["BTC"] + ["['X', 'SAP']"] * 2)


async def test_keys_that_are_not_there_say_why(server: Served) -> None:
    """errors.md: a key is required to fire, must be one, and belongs to no command for all keys."""
    assert problem_of(await command(server, command="force_fire")) == (400, "key_required")
    assert problem_of(await command(server, command="force_fire", key=1.5)) == (400, "invalid_event_key")
    assert problem_of(await command(server, command="force_fire", key={"a": 1})) == (400, "invalid_event_key")
    assert problem_of(await command(server, command="pause", key="BTC")) == (400, "unexpected_key")
    unknown = await server.http.get(REACTOR, params={"key": '"42"'})
    assert problem_of(unknown) == (404, "key_not_found")
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    assert problem_of(await command(server, command="force_fire", key=deep)) == (400, "invalid_event_key")
    async with tm.Node(load=market()) as node, served(node) as other:
        assert problem_of(await command(other, command="force_fire", key="BTC")) == (400, "no_keys")
        for path in (REACTOR, f"{REACTOR}/firings"):
            assert problem_of(await other.http.get(path, params={"key": "BTC"})) == (400, "no_keys")


async def test_dead_letters_have_the_key(server: Served) -> None:
    await server.node.push("trades", {"symbol": "SAP", "price": -1.0, "venue": "X"})
    (letter,) = (await server.http.get(f"{REACTOR}/dead-letters")).json()["items"]
    assert (letter["kind"], letter["key"]) == ("firing", ["X", "SAP"])


async def test_commands_over_websocket_take_a_key(server: Served) -> None:
    async with live(server, "/ws/reactors/market") as socket:
        read = await ask(socket, {"id": 1, "command": "state", "key": 42})
        assert read["result"]["state"]["cache"]["trades"]["price"] == 2.0
        fired = await ask(socket, {"id": 2, "command": "force_fire", "key": ["X", "SAP"]})
        assert fired["result"]["firing"]["key"] == ["X", "SAP"]
        missing = await ask(socket, {"id": 3, "command": "force_fire"})
        assert missing["error"]["code"] == "key_required"
        refused = await ask(socket, {"id": 4, "command": "watch", "key": "BTC"})
        assert refused["error"]["errors"][0]["path"] == "key"


async def test_any_server_of_a_store_reads_and_fires_a_key(tmp_path: Path) -> None:
    """G-31: the node that runs the partition answers, whatever the type of the key."""
    address = f"sqlite:///{tmp_path}/tidemill.db"
    async with tm.Node(address, load=keyed_market()) as owner, tm.Node(address) as other, served(other) as server:
        await owner.push("trades", TRADES[2])
        forced = (await command(server, command="force_fire", key=["X", "SAP"])).json()
        assert forced["firing"]["key"] == ["X", "SAP"]
        params = {"key": '["X","SAP"]'}
        state = (await server.http.get(REACTOR, params=params)).json()
        assert (state["key"], list(state["accumulators"])) == (["X", "SAP"], ["trades"])
        assert (await server.http.get(f"{REACTOR}/firings", params=params)).json()["total"] == 2
        assert problem_of(await command(server, command="force_fire")) == (400, "key_required")
        partitions = (await server.http.get(REACTOR)).json()["partitions"]
        assert {one["owner"] for one in partitions} == {owner._owner.id}
