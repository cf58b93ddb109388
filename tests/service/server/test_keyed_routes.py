"""Keyed reactors over HTTP: one reactor for its readers, and the state and the firings of single keys."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidemill as tm
from tests.service.keyed_samples import PARTITIONS, keyed, order
from tests.service.server.serving_node import Served, served
from tidemill.client.calls import encode_key
from tidemill.server.routes.reactors import read_key

COMMANDS = "/reactors/orders/commands"


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with a keyed reactor."""
    async with tm.Node(load=keyed().load) as node, served(node) as one:
        yield one


async def test_a_keyed_reactor_is_one_reactor_with_many_keys(server: Served) -> None:
    """http.md: GET /reactors/{name} sums the partitions; with `key` it has the cache of that key."""
    for number, key in enumerate("abc"):
        answer = await server.http.post("/accumulators/placed/events", json=order(key, number))
        assert answer.status_code == 200, answer.text
    state = (await server.http.get("/reactors/orders")).json()
    assert (state["name"], state["fires"], len(state["partitions"])) == ("orders", 3, PARTITIONS)
    assert (state["keys"]["total"], [one["name"] for one in await listed(server, "/reactors")]) == (3, ["orders"])
    one = (await server.http.get("/reactors/orders", params={"key": "b"})).json()
    assert (one["name"], one["cache"]["placed"]) == ("orders", order("b", 1))
    missing = await server.http.get("/reactors/orders", params={"key": "z"})
    assert (missing.status_code, missing.json()["code"]) == (404, "key_not_found")


async def test_a_command_fires_one_key(server: Served) -> None:
    """http.md: POST /reactors/{name}/commands; GET /reactors/{name}/firings of a key."""
    refused = await server.http.post(COMMANDS, json={"command": "force_fire"})
    assert (refused.status_code, refused.json()["code"]) == (400, "key_required")
    body = {"command": "fire_with", "inputs": {"placed": order("a", 7)}, "key": "a"}
    fired = (await server.http.post(COMMANDS, json=body)).json()
    assert (fired["firing"]["key"], fired["state"]["name"]) == ("a", "orders")
    again = (await server.http.post(COMMANDS, json={"command": "force_fire", "key": "a"})).json()
    await server.http.post("/accumulators/placed/events", json=order("b", 1))
    firings = await listed(server, "/reactors/orders/firings?key=a")
    assert [one["id"] for one in firings] == [again["firing"]["id"], fired["firing"]["id"]]


async def listed(server: Served, path: str) -> list[dict[str, Any]]:
    """Return the items of a list."""
    items: list[dict[str, Any]] = (await server.http.get(path)).json()["items"]
    return items


@pytest.mark.parametrize("key", ["a", "7", "true", '"', 7, -(2**40), ("a", 7), ("a", ("b", 1))])
def test_a_client_sends_any_key_that_json_has(key: Any) -> None:
    """The server reads what the client writes, and text that is typed by hand."""
    as_lists = [list(one) if isinstance(one, tuple) else one for one in key] if isinstance(key, tuple) else key
    assert read_key(encode_key(key)) == as_lists


@pytest.mark.parametrize("text", ["AAPL", "true", "1.5", "null", "{}", "[", ""])
def test_other_text_is_the_key_itself(text: str) -> None:
    """A symbol needs no quotes."""
    assert read_key(text) == text


def test_bytes_have_no_json_form() -> None:
    """They would arrive as text, which is another key."""
    with pytest.raises(tm.RequestError, match="no JSON form"):
        encode_key(("a", b"b"))
