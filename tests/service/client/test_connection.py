"""The connection of a client: identity, errors, retries, and a key that no text shows."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidemill as tm
from tests.service.client.cutting_proxy import cutting_proxy
from tests.service.server.serving_node import Served, create_tenant, served
from tidemill.api.runs import RunInfo
from tidemill.client import AsyncClient, Client
from tidemill.client.asynchronous.transport import AsyncTransport
from tidemill.client.calls import get, make
from tidemill.client.connection import Connection
from tidemill.engine.access import idempotency
from tidemill.engine.access.idempotency import IdempotentRequests, KeyedRequest
from tidemill.kernel.errors import NotFoundError

QUICK = tm.Retry(2, delay="1ms")


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node without anything loaded."""
    async with tm.Node() as node, served(node) as one:
        yield one


async def test_both_clients_ask_who_they_are(server: Served) -> None:
    """http.md: AsyncClient is the same as Client, with await."""
    async with AsyncClient(server.url) as client:
        me, version = await client.me(), await client.version()
    assert (me.tenant, me.role, version.version) == ("public", "admin", tm.__version__)

    def ask() -> object:
        with Client(f"{server.url}/") as blocking:
            return blocking.me()

    assert await asyncio.to_thread(ask) == me


async def test_an_instance_admin_acts_for_another_tenant(server: Served) -> None:
    """http.md: the header `Tidemill-Tenant` names the tenant."""
    await create_tenant(server)
    async with AsyncClient(server.url, tenant="acme") as client:
        assert (await client.me()).tenant == "acme"


async def test_a_problem_is_raised_as_a_node_raises_it(server: Served) -> None:
    """http.md: the same exceptions as the node raises, with code and status."""
    async with AsyncTransport(Connection(server.url)) as transport:
        with pytest.raises(tm.RequestError) as refused:
            await transport.send(get("/nothing", dict))
    error = refused.value
    assert (error.code, error.status, isinstance(error, NotFoundError)) == ("route_not_found", 404, True)
    assert error.facts["request_id"]


async def test_a_server_that_is_away_is_an_operation_error() -> None:
    """http.md: `tm.OperationError` when the server is away; the message names the address, not the key."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        async with AsyncClient(url, key="tm_secret", retry=QUICK) as client:
            with pytest.raises(tm.OperationError, match="cannot be reached") as away:
                await client.me()
    assert url in str(away.value)
    assert "tm_secret" not in str(away.value)


async def test_a_page_that_is_no_server_of_ours_is_said_to_be_none() -> None:
    """A proxy's page or another program's answer is not taken for an error of Tidemill."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        client = AsyncClient(f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}")
        with pytest.raises(tm.OperationError, match="not as a Tidemill server does"):
            await client.me()
        await client.aclose()


async def test_a_read_whose_answer_is_lost_is_repeated(server: Served) -> None:
    """http.md: requests that may be repeated are; the caller sees nothing of it."""
    async with cutting_proxy(server.url) as proxy, AsyncClient(proxy.url, retry=QUICK) as client:
        proxy.lost_answers = 2
        assert (await client.version()).api == "v1"
        assert proxy.connections == 3
        proxy.lost_answers = 3
        with pytest.raises(tm.OperationError, match="cannot be reached"):
            await client.version()


async def test_the_key_is_in_no_text(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    """S-4: a key appears neither in the repr of a client nor in logs."""
    caplog.set_level(logging.DEBUG)
    async with AsyncClient(server.url, key="tm_canary") as client:
        await client.me()
        assert "tm_canary" not in repr(client)
        assert repr(client) == f"<AsyncClient {server.url}>"
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpcore", "hpack"))]
    assert ours
    assert "tm_canary" not in "".join(ours)


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "http://", "http://u:p@host", "http://host:99999"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """The message says how an address looks, and does not repeat a password."""
    with pytest.raises(tm.RequestError) as refused:
        Client(url)
    assert refused.value.code == "invalid_url"
    assert "u:p" not in str(refused.value)


REFUSALS = 8  # of two clients with one retry


class HeldRequests:
    """Holds the answers of a server back, until it has sent away so many calls meanwhile."""

    def __init__(self, requests: IdempotentRequests) -> None:
        self.begun, self.refused = asyncio.Event(), asyncio.Semaphore(0)
        self._begin, self._finish = requests.begin, requests.finish

    async def begin(self, *arguments: Any) -> KeyedRequest:
        """Begin a request."""
        try:
            return await self._begin(*arguments)
        except tm.RequestError as error:
            if error.code == "request_in_progress":
                self.refused.release()
            raise
        finally:
            self.begun.set()

    async def finish(self, *arguments: Any) -> None:
        """Keep an answer, when it may be sent."""
        for _ in range(REFUSALS):
            await self.refused.acquire()
        await self._finish(*arguments)


async def test_both_clients_wait_for_a_request_that_is_still_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """http.md: 409 `request_in_progress` says when to come again, and uses up no retry."""
    monkeypatch.setattr(idempotency, "PATIENCE", 0.01)
    once, flow = tm.Retry(1, delay="1ms"), tm.Workflow("flow")

    @flow.task
    def only() -> None:
        pass

    async with tm.Node(load=[flow], settings={"lease_ttl": 0.3}) as node, served(node) as server:
        held = HeldRequests(node.access.requests)
        monkeypatch.setattr(node.access.requests, "begin", held.begin)
        monkeypatch.setattr(node.access.requests, "finish", held.finish)
        call = make("/workflows/flow/runs", RunInfo, {"params": {}})

        def ask() -> RunInfo:
            with Client(server.url, retry=once) as client:
                return client._transport.send(call)

        async with AsyncClient(server.url, retry=once) as client, asyncio.TaskGroup() as group:
            first = group.create_task(client._transport.send(call), name="first")
            await held.begun.wait()
            refused = await server.http.post("/workflows/flow/runs", content=call.content, headers=call.headers)
            again = group.create_task(client._transport.send(call), name="asynchronous")
            blocking = group.create_task(asyncio.to_thread(ask), name="blocking")
    assert (refused.status_code, refused.json()["code"]) == (409, "request_in_progress")
    assert refused.headers["retry-after"] == "1"
    assert first.result() == again.result() == blocking.result()
