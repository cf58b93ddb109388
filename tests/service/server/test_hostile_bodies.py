"""Hostile bodies: malformed JSON and msgpack on every route that takes a body is the caller's error, never ours."""

import re
from collections.abc import AsyncIterator

import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, served
from tidemill.server.route_table import ROUTES

JSON = {
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"value":' * 50_000 + b"1" + b"}" * 50_000,
    "not a number": b'{"value": NaN, "params": {"a": Infinity}}',
    "many digits": b'{"value": ' + b"9" * 5_000 + b"}",
    "large exponent": b'{"value": 1e999999, "slots": 1e400}',
    "the same key twice": b'{"value": 1, "value": 2, "params": {}, "params": []}',
    "a lone surrogate": b'{"value": "\\ud800", "name": "\\udfff", "text": "\\ud800"}',
    "not UTF-8": b'{"value": "\xff\xfe"}',
    "NUL": b'{"value": "\\u0000", "name": "a\\u0000b", "text": "\\u0000", "reason": "\\u0000"}',
    "truncated": b'{"value": "',
    "another type": b'{"value": {"a": [1]}, "name": [], "params": 7, "role": 1, "inputs": "x", "paused": "yes"}',
    "null": b"null",
    "a text": b'"text"',
    "empty": b"",
    "SQL": b'{"value": "\'; DROP TABLE runs; --", "name": "x\' OR \'1\'=\'1", "reason": "$1 ? %s"}',
}
MSGPACK = {
    "four billion elements": b"\xdd\xff\xff\xff\xff",
    "four billion bytes": b"\xc6\xff\xff\xff\xff",
    "deep lists": b"\x91" * 100_000 + b"\xc0",
    "an extension": b"\x81\xa5value\xd4\x2a\x00",
    "a time outside the calendar": b"\x81\xa5value\xc7\x0c\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff",
    "truncated": b"\x81\xa5val",
    "a never used byte": b"\xc1",
}
BODIES = [("application/json", name, body) for name, body in JSON.items()] + [
    ("application/msgpack", name, body) for name, body in MSGPACK.items()
]


@pytest.fixture
async def server(sqlite: str) -> AsyncIterator[Served]:
    """A server without authentication, on a database file."""
    async with tm.Node(sqlite) as node, served(node) as server:
        yield server


@pytest.mark.parametrize(("media_type", "name", "body"), BODIES, ids=[f"{one[0][12:]}: {one[1]}" for one in BODIES])
async def test_a_hostile_body_is_answered_as_an_error_of_the_caller(
    server: Served, media_type: str, name: str, body: bytes
) -> None:
    """Faults 82 to 84: no status above 499, no traceback; and the server goes on."""
    for route in ROUTES:
        if route.method not in ("POST", "PUT", "PATCH"):
            continue
        path = re.sub(r"\{\w+:str\}", "absent", route.path)
        headers = {"content-type": media_type}
        answer = await server.http.request(route.method, f"{server.url}{path}", content=body, headers=headers)
        assert answer.status_code < 500, (route.method, path, name, answer.text)
        assert "Traceback" not in answer.text
        assert answer.status_code < 300 or answer.json()["code"], (route.method, path, name)
    assert (await server.http.get("/version")).status_code == 200


async def test_a_body_that_is_too_large_is_not_read_to_its_end(server: Served) -> None:
    """Fault 83."""
    body = b'{"value": "' + b"x" * (9 * 1024 * 1024) + b'"}'
    answer = await server.http.put("/variables/large", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
