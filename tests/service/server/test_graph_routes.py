"""Graphs, reactors, accumulators and dead letters over HTTP."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import tidemill as tm
from tests.service.package_folders import package, without_child_processes
from tests.service.server.graph_samples import double, market
from tests.service.server.serving_node import Served, create_tenant, served
from tidemill.server.routes import pushes

RECEIPT_FIELDS = {"accepted", "sequence", "outcome", "reason"}
EVENTS = "/accumulators/orderbook/events"
COMMANDS = "/reactors/market/commands"


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with a market, and a graph that is only called."""
    async with tm.Node(load=[*market(), double()]) as node, served(node) as one:
        yield one


async def push(server: Served, body: Any, **headers: str) -> httpx.Response:
    """Push an event."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await server.http.post(EVENTS, content=content, headers=headers)


def problem_of(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the code of a problem."""
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


async def test_graphs_are_listed_shown_and_called(server: Served) -> None:
    """http.md, row graphs."""
    page = (await server.http.get("/graphs")).json()
    assert ([one["name"] for one in page["items"]], page["total"], page["next"]) == (["double", "maker"], 2, None)
    graph = (await server.http.get("/graphs/maker")).json()
    assert (graph["reactor"], [one["name"] for one in graph["nodes"]]) == ("market", ["price"])
    assert graph["edges"][0]["source"] == "orderbook"
    called = await server.http.post("/graphs/double/call", json={"inputs": {"number": 4}})
    assert (called.status_code, called.json()["outputs"]) == (200, {"out": 8})


async def test_calls_of_graphs_that_cannot_be_made_say_why(server: Served) -> None:
    """http.md: unknown names with suggestions, wrong types with the path, and states that do not allow it."""
    unknown = await server.http.get("/graphs/makr")
    assert (problem_of(unknown), unknown.json()["suggestions"]) == ((404, "graph_not_found"), ["maker"])
    bound = await server.http.post("/graphs/maker/call", json={"inputs": {}})
    assert problem_of(bound) == (409, "graph_bound")
    wrong = await server.http.post("/graphs/double/call", json={"inputs": {"number": "four"}})
    assert problem_of(wrong) == (400, "invalid_input")
    extra = await server.http.post("/graphs/double/call", json={"input": {}})
    assert problem_of(extra) == (400, "invalid_request")
    assert extra.json()["errors"][0]["path"] == "input"


async def test_one_event_is_answered_with_its_receipt(server: Served) -> None:
    """http.md: 200 for accepted ones and dead letters; a receipt has exactly four fields."""
    emitted = await push(server, {"bid": 1.0, "ask": 1.1})
    assert (emitted.status_code, emitted.json()) == (
        200,
        {"accepted": True, "sequence": 1, "outcome": "emitted", "reason": None},
    )
    suppressed = (await push(server, {"bid": -1.0})).json()
    assert (suppressed["accepted"], suppressed["outcome"]) == (True, "suppressed")
    dead = await push(server, {"bid": "high"})
    assert (dead.status_code, dead.json()["outcome"], dead.json().keys()) == (200, "dead_lettered", RECEIPT_FIELDS)
    assert "$.bid" in dead.json()["reason"]
    packed = await push(server, msgspec.msgpack.encode({"bid": 2.0}), **{"content-type": "application/msgpack"})
    assert packed.json()["sequence"] == 2


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/x-ndjson", b'{"bid": 1.0}\n\n{"bid": -1}\r\n{"bid": \n{"bid": 4.0}'),
        (
            "application/msgpack",
            b"".join(map(msgspec.msgpack.encode, [{"bid": 1.0}, {"bid": -1.0}, {"bid": []}, {"bid": 4.0}])),
        ),
    ],
)
async def test_many_events_get_one_receipt_each(server: Served, content_type: str, body: bytes) -> None:
    """http.md: NDJSON or a msgpack stream; a bad line has its own receipt, and the others count."""
    answer = await push(server, body, **{"content-type": content_type})
    assert answer.status_code == 200
    receipts = answer.json()["receipts"]
    assert [one["outcome"] for one in receipts] == ["emitted", "suppressed", "dead_lettered", "emitted"]
    assert [one["sequence"] for one in receipts if one["outcome"] == "emitted"] == [1, 2]


MALFORMED = [
    ("application/json", b'{"bid": 1.0', (400, "malformed_body")),
    ("application/json", b"", (400, "malformed_body")),
    ("application/json", b"\xff\xfe", (400, "malformed_body")),
    ("application/json", b"[" * 100_000, (400, "malformed_body")),
    ("application/msgpack", b"\x81\xa3bid", (400, "malformed_body")),
    ("application/msgpack", b"\xc1", (400, "malformed_body")),
    ("application/msgpack", b"\xdd\xff\xff\xff\xff", (400, "malformed_body")),
    ("application/msgpack", b"", (400, "malformed_body")),
    ("text/csv", b"1,2", (415, "unsupported_media_type")),
    ("application/x-ndjson", b"1\n" * 100_001, (413, "too_many_events")),
    ("application/json", b" " * (pushes.PUSH_LIMIT + 1), (413, "body_too_large")),
]


async def test_malformed_bodies_have_their_own_answers(server: Served) -> None:
    """S-7: truncated, deep and oversized bodies; the node goes on, and nothing was pushed."""
    for content_type, body, expected in MALFORMED:
        answer = await push(server, body, **{"content-type": content_type})
        assert problem_of(answer) == expected, (content_type, body[:20])
    assert (await push(server, {"bid": 1.0})).json()["sequence"] == 1


async def test_a_deep_event_is_a_dead_letter_or_malformed_but_never_a_crash(server: Served) -> None:
    """S-7: nesting inside an otherwise valid event."""
    deep = b'{"bid": 1.0, "more": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    answer = await push(server, deep)
    assert answer.status_code in (200, 400)
    assert (await push(server, {"bid": 1.0})).status_code == 200


async def test_rejected_events_are_conflicts_with_a_code() -> None:
    """http.md: 409 `accumulator_down`, `paused`, and 429 `queue_full` with `retry-after`."""
    load = market(strategy="sequential", capacity=1, overflow="reject")
    async with tm.testing.node(load=load) as node, served(node) as server:
        await server.http.post(COMMANDS, json={"command": "pause"})
        assert (await push(server, {"bid": 1.0})).status_code == 200
        full = await push(server, {"bid": 2.0})
        assert (problem_of(full), full.headers["retry-after"]) == ((429, "queue_full"), "1")
        listed = (await push(server, b'{"bid": 1}\n', **{"content-type": "application/x-ndjson"})).json()
        assert (listed["receipts"][0]["outcome"], listed["receipts"][0]["code"]) == ("rejected", "queue_full")
        await node.break_accumulator("orderbook")
        assert problem_of(await push(server, {"bid": 3.0})) == (409, "accumulator_down")


async def test_a_push_to_a_paused_reactor_with_a_full_queue_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """http.md: 409 `paused`; a request does not wait forever for an operator."""
    monkeypatch.setattr(pushes, "PATIENCE_SECONDS", 0.05)
    async with tm.Node(load=market(strategy="sequential", capacity=1)) as node, served(node) as server:
        await server.http.post(COMMANDS, json={"command": "pause"})
        await push(server, {"bid": 1.0})
        assert problem_of(await push(server, {"bid": 2.0})) == (409, "paused")
        resumed = await server.http.post(COMMANDS, json={"command": "resume"})
        assert resumed.json()["state"]["paused"] is False
        assert (await push(server, {"bid": 3.0})).status_code == 200
        await node.settle()
        firings = (await server.http.get("/reactors/market/firings")).json()
        assert [one["inputs"]["orderbook"]["bid"] for one in firings["items"]] == [3.0, 1.0]


async def test_reactors_show_the_fields_of_their_state(server: Served) -> None:
    """http.md: the fields of tm.ReactorState and tm.AccumulatorState, and the event's JSON Schema."""
    await push(server, {"bid": 1.5})
    state = (await server.http.get("/reactors/market")).json()
    assert tuple(state) == tm.ReactorState.__struct_fields__
    assert (state["health"], state["fires"], state["cache"]["orderbook"]["bid"]) == ("live", 1, 1.5)
    assert [one["fires"] for one in (await server.http.get("/reactors")).json()["items"]] == [1]
    accumulator = (await server.http.get("/accumulators/orderbook")).json()
    assert set(tm.AccumulatorState.__struct_fields__) <= set(accumulator)
    assert accumulator["event_schema"]["$defs"]["Quote"]["required"] == ["bid"]
    listed = (await server.http.get("/accumulators")).json()
    assert [one["name"] for one in listed["items"]] == ["orderbook"]
    timeseries = (await server.http.get("/reactors/market/timeseries")).json()
    assert (len(timeseries["per_minute"]), sum(timeseries["per_minute"])) == (60, 1)


async def test_commands_answer_with_the_firing_and_the_state(server: Served) -> None:
    """http.md: POST /reactors/{name}/commands."""
    fired = await server.http.post(COMMANDS, json={"command": "fire_with", "inputs": {"orderbook": {"bid": 2}}})
    assert fired.status_code == 200
    assert fired.json()["firing"]["results"]["maker"]["outputs"] == {"price": 2.0}
    paused = (await server.http.post(COMMANDS, json={"command": "pause"})).json()
    assert (paused["firing"], paused["state"]["paused"]) == (None, True)
    for command in ("force_fire", "resume", "restart"):
        assert (await server.http.post(COMMANDS, json={"command": command})).status_code == 200
    recoveries = (await server.http.get("/reactors/market/recoveries")).json()
    assert [one["action"] for one in recoveries["items"]] == ["restarted"]
    restarted = await server.http.post("/accumulators/orderbook/restart")
    assert (restarted.status_code, restarted.json()["health"]) == (200, "socket_only")


BAD_COMMANDS: list[tuple[dict[str, Any], tuple[int, str], str]] = [
    ({"command": "pasue"}, (400, "invalid_request"), "did you mean 'pause'"),
    ({"command": "pause", "inputs": {"orderbook": 1}}, (400, "unexpected_inputs"), "takes no inputs"),
    ({"command": "fire_with"}, (400, "empty_inputs"), "needs at least one input"),
    ({"command": "fire_with", "inputs": {"ordrbook": 1}}, (404, "accumulator_not_found"), "'orderbook'"),
    ({"command": "fire_with", "inputs": {"orderbook": {"bid": "x"}}}, (400, "invalid_input"), "$.bid"),
    ({"command": "force_fire"}, (409, "incomplete_inputs"), "no value yet"),
    ({}, (400, "invalid_request"), "command"),
]


async def test_bad_commands_say_what_is_wrong(server: Served) -> None:
    """http.md: unknown commands with a suggestion, wrong types with the path to the field."""
    for body, expected, said in BAD_COMMANDS:
        answer = await server.http.post(COMMANDS, json=body)
        assert problem_of(answer) == expected, body
        assert said in answer.json()["detail"]


async def test_an_invalid_input_names_its_field(server: Served) -> None:
    """S-8: a form made from the boundaries shows the problem beside the field that has it."""
    answer = await server.http.post(COMMANDS, json={"command": "fire_with", "inputs": {"orderbook": {"bid": "x"}}})
    expected = {"path": "inputs.orderbook.bid", "message": "expected Quote: Expected `float`, got `str`"}
    assert answer.json()["errors"] == [expected]


async def test_firings_are_paged_newest_first_while_new_ones_come(server: Served) -> None:
    """http.md: cursors survive inserts: no item twice, none missed."""
    for bid in range(7):
        await push(server, {"bid": bid})
    seen, cursor = [], None
    while True:
        query = {"limit": 3} | ({} if cursor is None else {"cursor": cursor})
        page = (await server.http.get("/reactors/market/firings", params=query)).json()
        seen += [one["inputs"]["orderbook"]["bid"] for one in page["items"]]
        await push(server, {"bid": 100.0})
        if (cursor := page["next"]) is None:
            break
    assert seen == [6, 5, 4, 3, 2, 1, 0]
    assert page["total"] == 7 + 2
    assert problem_of(await server.http.get("/reactors/market/firings", params={"cursor": "!"})) == (
        400,
        "invalid_cursor",
    )
    assert problem_of(await server.http.get("/reactors/market/firings", params={"limit": 0})) == (
        400,
        "invalid_request",
    )


async def test_dead_letters_are_listed_shown_replayed_and_dropped(server: Served) -> None:
    """http.md: dead letters of accumulators and of reactors."""
    await push(server, {"bid": "one"})
    await push(server, {"bid": "two"})
    await push(server, {"bid": 13})
    base, of_reactor = "/accumulators/orderbook/dead-letters", "/reactors/market/dead-letters"
    page = (await server.http.get(base, params={"limit": 1})).json()
    second = (await server.http.get(base, params={"limit": 1, "cursor": page["next"]})).json()
    newest, oldest = page["items"][0], second["items"][0]
    assert (newest["event"], oldest["event"], page["total"], second["next"]) == (
        {"bid": "two"},
        {"bid": "one"},
        2,
        None,
    )
    firing = (await server.http.get(of_reactor)).json()["items"][0]
    assert (firing["kind"], firing["inputs"]) == ("firing", {"orderbook": {"bid": 13, "ask": 0}})
    assert (await server.http.get(f"{base}/{oldest['id']}")).json() == oldest
    assert (await server.http.get(f"{of_reactor}/{firing['id']}")).json() == firing
    replayed = (await server.http.post(f"{base}/{oldest['id']}/replay")).json()
    assert (replayed["receipt"]["outcome"], replayed["firing"]) == ("dead_lettered", None)
    refired = (await server.http.post(f"{of_reactor}/{firing['id']}/replay")).json()
    assert refired["firing"]["attempt"] == 2
    for path in (f"{base}/{newest['id']}", f"{of_reactor}/{firing['id']}"):
        assert (await server.http.delete(path)).status_code == 204
        assert problem_of(await server.http.delete(path)) == (404, "dead_letter_not_found")
        assert problem_of(await server.http.get(path)) == (404, "dead_letter_not_found")
        assert problem_of(await server.http.post(f"{path}/replay")) == (404, "dead_letter_not_found")
    left = (await server.http.get(of_reactor)).json()["items"]
    assert [(one["id"], one["attempts"]) for one in left] == [(oldest["id"], 2)]


async def test_dead_letters_of_the_tenant_have_one_list(server: Served) -> None:
    """One list, and the same verbs, whatever the dead letters are of; an edited event is pushed instead."""
    for event in ({"bid": "one"}, {"bid": 13}):
        await push(server, event)
    listed = (await server.http.get("/dead-letters")).json()["items"]
    assert [(one["kind"], one["source"]) for one in listed] == [("firing", "market"), ("event", "orderbook")]
    of_source = (await server.http.get("/dead-letters", params={"source": "orderbook"})).json()
    assert of_source["items"] == listed[1:]
    firing, event = (f"/dead-letters/{one['id']}" for one in listed)
    assert (await server.http.get(event)).json() == listed[1]
    nothing = await server.http.post(f"{event}/replay", content=b"null", headers={"content-type": "application/json"})
    assert nothing.json()["receipt"]["outcome"] == "dead_lettered"
    edited = await server.http.post(f"{event}/replay", json={"event": {"bid": 1}})
    assert edited.json()["receipt"]["outcome"] == "emitted"
    assert problem_of(await server.http.get(event)) == (404, "dead_letter_not_found")
    assert problem_of(await server.http.post(f"{firing}/replay", json={"event": 1})) == (409, "not_editable")
    assert (await server.http.delete(firing)).status_code == 204
    assert (await server.http.get("/dead-letters")).json()["total"] == 0


MISSPELT = [
    ("GET", "/reactors/markt"),
    ("GET", "/reactors/markt/firings"),
    ("GET", "/reactors/markt/timeseries"),
    ("GET", "/reactors/markt/recoveries"),
    ("GET", "/reactors/markt/dead-letters"),
    ("GET", "/accumulators/orderbok"),
    ("POST", "/accumulators/orderbok/events"),
    ("POST", "/accumulators/orderbok/restart"),
    ("GET", "/accumulators/orderbok/dead-letters"),
]


async def test_unknown_names_have_suggestions_and_other_tenants_have_none(server: Served) -> None:
    """http.md: 404 with the name that was meant; S-5: what belongs to another tenant is unknown."""
    acme = await create_tenant(server)
    for method, path in MISSPELT:
        kind, meant = ("reactor", "market") if path.startswith("/reactors") else ("accumulator", "orderbook")
        body = {} if method == "POST" else None
        answer = await server.http.request(method, path, json=body)
        assert problem_of(answer) == (404, f"{kind}_not_found"), path
        assert answer.json()["suggestions"] == [meant]
        correct = path.replace("markt", "market").replace("orderbok", "orderbook")
        elsewhere = await server.http.request(method, correct, json=body, headers=acme)
        assert (problem_of(elsewhere), elsewhere.json()["suggestions"]) == ((404, f"{kind}_not_found"), [])


async def test_a_shared_reactor_is_read_as_tenant_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-30, S-5: `tenant/name`, with the slash as it is or escaped."""
    without_child_processes(monkeypatch)
    code = (
        "import tidemill as tm\n\n@tm.passthrough\ndef tick(event: int) -> int:\n    return event\n\n"
        "market = tm.Reactor('market', [tick])\nsecret = tm.Reactor('secret', [tick])\n"
    )
    folder = package(tmp_path / "market", code, manifest="[reactors.market]\nshared = true\n")
    async with tm.Node() as node, served(node) as server:
        await node.load(folder, tenant="acme")
        await node.push("tick", 1, tenant="acme")
        for path in ("/reactors/acme/market", "/reactors/acme%2Fmarket"):
            assert (await server.http.get(path)).json()["name"] == "market"
        assert (await server.http.get("/reactors/acme/market/firings")).json()["total"] == 1
        assert sum((await server.http.get("/reactors/acme/market/timeseries")).json()["per_minute"]) == 1
        assert problem_of(await server.http.get("/reactors/acme/secret")) == (404, "reactor_not_found")
