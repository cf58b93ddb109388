"""JSON answers are compressed if they are large (UD-16)."""

from collections.abc import AsyncIterator

import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, served


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A server with variables, whose list is large."""
    async with tm.Node() as node, served(node) as server:
        for number in range(100):
            await server.http.put(f"/variables/v{number}", json={"value": "x" * 20})
        yield server


async def read(server: Served, path: str, accept: str = "gzip") -> tuple[int, str | None, bytes]:
    """Return the length of an answer on the wire, how it is encoded, and its content."""
    answer = await server.http.get(path, headers={"accept-encoding": accept})
    return int(answer.headers["content-length"]), answer.headers.get("content-encoding"), answer.content


async def test_a_large_answer_is_compressed(server: Served) -> None:
    """UD-16: the same content, in a fraction of the bytes."""
    plain = await read(server, "/variables?limit=500", "identity")
    packed = await read(server, "/variables?limit=500", "br, gzip;q=0.8")
    assert (plain[1], packed[1]) == (None, "gzip")
    assert packed[2] == plain[2]
    assert packed[0] < plain[0] / 5


@pytest.mark.parametrize("accept", ["identity", "br", "gzip;q=0", ""])
async def test_a_client_that_takes_no_gzip_gets_none(server: Served, accept: str) -> None:
    """UD-16."""
    assert (await read(server, "/variables?limit=500", accept))[1] is None


async def test_small_answers_and_msgpack_stay_as_they_are(server: Served) -> None:
    """UD-16: a small answer costs nothing, and msgpack is for programs."""
    assert (await read(server, "/variables/v1"))[1] is None
    headers = {"accept-encoding": "gzip", "accept": "application/msgpack"}
    answer = await server.http.get("/variables?limit=500", headers=headers)
    assert "content-encoding" not in answer.headers


async def test_a_stream_arrives_as_it_is_written(server: Served) -> None:
    """UD-16: an event stream waits for nothing."""
    headers = {"accept": "text/event-stream", "accept-encoding": "gzip"}
    async with server.http.stream("GET", "/events?types=change.made", headers=headers, timeout=5) as events:
        assert "content-encoding" not in events.headers
        await server.http.put("/variables/one", json={"value": 1})
        assert "change.made" in [line async for line in _until(events.aiter_lines(), "event:")][-1]


async def _until(lines: AsyncIterator[str], start: str) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if line.startswith(start):
            return
