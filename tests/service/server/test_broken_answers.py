"""Answers that fail after they have begun: no status can say it, so the connection ends, and the log says why."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

import tidemill as tm
from tests.service.server.serving_node import client_of
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.errors import StoreError
from tidemill.server import serving as module
from tidemill.server.metrics import ServerMetrics
from tidemill.server.request_context import RequestContext
from tidemill.server.serving import serving
from tidemill.telemetry.tracing import NoSpans

App = Callable[[Any, Any, Any], Awaitable[None]]
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}


async def fail_in_a_stream(scope: Any, receive: Any, send: Any) -> None:
    """Begin an answer, and fail as a store does."""
    await send(START)
    await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
    raise StoreError("the store cannot be reached")


async def fail_after_the_end(scope: Any, receive: Any, send: Any) -> None:
    """Complete an answer, and fail then."""
    await send(START)
    await send({"type": "http.response.body", "body": b"done", "more_body": False})
    raise StoreError("the store cannot be reached")


async def go_on(scope: Any, receive: Any, send: Any) -> None:
    """Begin an answer that does not end."""
    await send(START)
    await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
    await asyncio.Event().wait()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The log, errors of the ASGI server included."""
    caplog.set_level(logging.WARNING)
    return caplog


async def break_answer(app: App, act: Callable[[httpx.Response], Awaitable[object]]) -> float:
    """Answer with an application, read the answer, and return how many answers were broken."""
    async with tm.Node() as node:
        context = RequestContext(app, ServerMetrics(node), NoSpans(), SystemClock())
        async with (
            client_of("") as client,
            serving(context, "127.0.0.1", 0) as url,
            client.stream("GET", url, headers={"x-request-id": "mine"}) as answer,
        ):
            await act(answer)
        return float(node.metrics()["http_answers_broken_total"])


async def test_an_answer_that_fails_ends_the_connection_and_is_logged_once(log: pytest.LogCaptureFixture) -> None:
    """The client sees that the answer is not complete."""

    async def read(answer: httpx.Response) -> None:
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            await answer.aread()

    assert await break_answer(fail_in_a_stream, read) == 1
    assert [(one.getMessage(), one.__dict__["request_id"]) for one in log.records] == [("answer.broken", "mine")]
    assert "the store cannot be reached" in log.records[0].__dict__["error"]


async def test_an_error_after_the_answer_does_not_harm_it(log: pytest.LogCaptureFixture) -> None:
    """The client has it, and the connection stays."""
    assert await break_answer(fail_after_the_end, httpx.Response.aread) == 1
    assert [one.getMessage() for one in log.records] == ["answer.broken"]


async def test_an_answer_that_the_end_of_the_server_cancels_is_logged_once(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line each, without a traceback of the ASGI server."""
    monkeypatch.setattr(module, "DRAIN_SECONDS", 0.05)
    async with tm.Node() as node, client_of("") as client:
        context = RequestContext(go_on, ServerMetrics(node), NoSpans(), SystemClock())
        async with serving(context, "127.0.0.1", 0) as url:
            answer = await client.send(client.build_request("GET", url), stream=True)
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            await answer.aread()
        assert [one.getMessage() for one in log.records] == [
            "1 requests had not ended 0.05 s after the server began to stop",
            "answer.broken",
        ]
        assert not [one for one in log.records if one.exc_info]
