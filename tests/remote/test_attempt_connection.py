"""The calls of an attempt through proxies: whose refusals count, and what becomes of calls that are too large."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tidemill.attempt.attempt import Attempt
from tidemill.attempt.connection import LeaseTimer, NotWantedError, ServerConnection, TooLargeError
from tidemill.attempt.logs import LogSender
from tidemill.engine.workflows.executors.forkserver.protocol import RESULT_DECODER
from tidemill.engine.workflows.executors.remote.unit_results import NOT_WANTED
from tidemill.kernel.errors import OperationError
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.attempt_results import Failed, Succeeded

Handler = Callable[[httpx.Request], httpx.Response]


def connect(handle: Handler, lease: LeaseTimer | None = None) -> ServerConnection:
    """Return a connection to a scripted server."""
    connection = ServerConnection("http://server", "tma_x", lease or LeaseTimer())
    connection._http._transport = httpx.MockTransport(handle)
    return connection


def refuse(status: int, code: str) -> httpx.Response:
    """Return a refusal of Tidemill."""
    return httpx.Response(status, json={"status": status, "code": code, "detail": "no"})


@pytest.mark.parametrize("status", [301, 401, 403, 404, 405, 409, 429, 502])
async def test_a_refusal_of_a_proxy_may_pass(status: int) -> None:
    """W-11: an ingress that has no route for a moment does not end the attempt."""
    answers = iter([httpx.Response(status, text="404 page not found"), httpx.Response(200)])
    async with connect(lambda _: next(answers)) as connection:
        await connection.post("/heartbeat", None, type(None), 5.0)
    assert next(answers, None) is None


@pytest.mark.parametrize(("status", "kind"), [(401, OperationError), (404, OperationError), (409, NotWantedError)])
async def test_a_refusal_of_tidemill_is_final(status: int, kind: type[Exception]) -> None:
    async with connect(lambda _: refuse(status, "attempt_ended")) as connection:
        with pytest.raises(kind):
            await connection.post("/heartbeat", None, type(None), 5.0)


async def test_an_attempt_whose_order_is_gone_ends_as_one_that_is_not_wanted(tmp_path: Path) -> None:
    """Executors, exit code 10: a server deletes orders some time after their attempts are over."""
    async with connect(lambda _: refuse(401, "invalid_attempt_token")) as connection:
        assert await Attempt(connection, tmp_path).run() == NOT_WANTED


async def test_a_proxy_that_refuses_one_call_for_good_ends_it() -> None:
    """Heartbeats get through and renew the lease, so that would never end the call."""
    now = 0.0
    lease = LeaseTimer(90.0, lambda: now)

    def handle(_: httpx.Request) -> httpx.Response:
        nonlocal now
        now += 60.0
        lease.renew(now)
        return httpx.Response(403, text="blocked")

    async with connect(handle, lease) as connection:
        with pytest.raises(
            OperationError, match="a proxy before the server refuses a call of the attempt: 403: blocked"
        ):
            await connection.post("/result", None, type(None), 5.0)
    assert now == 120.0


async def test_a_result_that_a_proxy_does_not_let_through_is_a_failure(tmp_path: Path) -> None:
    """It would be too large again: the attempt must not run once more as a lost one."""
    results: list[Any] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if len(request.content) > 1000:
            return httpx.Response(413, text="<html>413 Request Entity Too Large</html>")
        results.append(RESULT_DECODER.decode(msgspec.msgpack.decode(request.content)["result"]))
        return httpx.Response(204)

    async with connect(handle) as connection:
        await Attempt(connection, tmp_path)._report(Succeeded(b"x" * 5000))
    (message,) = results
    result = message.to_ending(datetime(2026, 1, 1, tzinfo=UTC))
    assert isinstance(result, Failed)
    assert "more than the server takes, or a proxy before it: 413" in result.error.message


async def test_a_log_that_is_too_large_for_a_proxy_is_sent_in_smaller_batches() -> None:
    """Only a record that is too large alone is left out, and counted."""
    messages: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if len(request.content) > 1000:
            return httpx.Response(413)
        messages.extend(one["message"] for one in msgspec.msgpack.decode(request.content)["records"])
        return httpx.Response(204)

    def record(message: str) -> LogRecord:
        return LogRecord(at=datetime(2026, 1, 1, tzinfo=UTC), message=message)

    async with connect(handle) as connection:
        logs = LogSender(connection)
        logs.add([record(f"{number}" * 50) for number in range(10)])
        logs.add([record("x" * 2000), record("last")])
        await logs.flush()
        await logs.flush()
    assert messages[:10] == [f"{number}" * 50 for number in range(10)]
    assert messages[10:] == ["last", "[... 1 records left out ...]"]


async def test_a_call_of_the_code_that_is_too_large_is_an_error_of_the_call() -> None:
    async with connect(lambda _: refuse(413, "body_too_large")) as connection:
        with pytest.raises(TooLargeError):
            await connection.post("/calls", {"call": b"x" * 100}, type(None), 5.0)
