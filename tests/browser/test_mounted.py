"""The web UI of a node that another application mounts below a path."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import Page, WebSocket, expect

import tidemill as tm
from tests.service.server.serving_node import served_app
from tests.service.server.test_mounted import mounted


@tm.passthrough
def numbers(event: int) -> int:
    return event


sums = tm.Reactor("sums", [numbers])
add = tm.Graph("add", reactor=sums)
flow = tm.Workflow("flow")


@add.node
def plus_one(numbers: int) -> int:
    return numbers + 1


@flow.task
def greet() -> str:
    return "hello"


@contextmanager
def serving_below_a_path(kind: str) -> Iterator[str]:
    """Serve an application that mounts a node, on a thread; yield the address of the node in it."""
    addresses: queue.Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        stop = asyncio.Event()
        async with tm.Node(load=[add, flow]) as node, served_app(node, mounted(kind, node)) as server:
            addresses.put((f"{server.url}/tidemill", asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    url, loop, stop = addresses.get(timeout=20)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=20)


@pytest.mark.parametrize("kind", ["starlette", "litestar"])
def test_the_pages_work_below_the_path_of_a_mount(page: Page, kind: str) -> None:
    """A start, links, live figures and deep links; every request and socket stays below the path."""
    strays: list[str] = []
    with serving_below_a_path(kind) as url, httpx.Client(base_url=f"{url}/api/v1") as api:

        def note(address: str) -> None:
            if not address.split("//")[1].partition("/")[2].startswith("tidemill/"):
                strays.append(address)

        def note_socket(socket: WebSocket) -> None:
            note(socket.url)

        page.on("request", lambda request: None if request.url.startswith("data:") else note(request.url))
        page.on("websocket", note_socket)
        page.goto(f"{url}/")
        page.get_by_role("link", name="Reactors", exact=True).click()
        expect(page).to_have_url(f"{url}/reactors")
        page.get_by_role("link", name="sums", exact=True).click()
        expect(page).to_have_url(f"{url}/reactors/sums")
        assert api.post("/accumulators/numbers/events", json=41).is_success
        expect(page.get_by_label("Firings", exact=True).get_by_text("plus_one 42")).to_be_visible()
        page.goto(f"{url}/workflows/flow")
        page.get_by_role("button", name="Start…").click()
        page.get_by_role("dialog").get_by_role("button", name="Start a run").click()
        expect(page).to_have_url(f"{url}/runs/{api.get('/runs').json()['items'][0]['id']}")
        expect(page.get_by_text("success").first).to_be_visible()
        page.reload()
        expect(page.get_by_text("success").first).to_be_visible()
        page.goto("about:blank")
    assert strays == []
