"""`tidemill.server.asgi`: the API, the pages and the sockets of a node inside another application."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar, asgi, get
from websockets.asyncio.client import connect

import tidemill as tm
from tests.service.server.serving_node import served_app
from tidemill.client import AsyncClient
from tidemill.server import asgi as tidemill_app
from tidemill.server.mounted import MountedApp


@tm.passthrough
def numbers(event: int) -> int:
    return event


reactor = tm.Reactor("numbers", [numbers])


class Starlette:
    """Mounts an application as Starlette and FastAPI do: the path keeps the prefix, which `root_path` names."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a connection; what the outer application keeps in a scope stays its own."""
        assert scope["path"].startswith("/tidemill/")
        await self._app({**scope, "root_path": "/tidemill", "user": object(), "app": self}, receive, send)


class Dispatcher:
    """Chooses an application by the path, as one writes it around Django's; the inner one has to know its prefix."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a connection."""
        await self._app(scope, receive, send)


def mounted_in_litestar(inner: Any) -> Litestar:
    """Mount an application in a Litestar application that has a route too."""

    @get("/hello")
    async def hello() -> str:
        return "hello"

    @asgi("/tidemill", is_mount=True, copy_scope=True)
    async def tidemill(scope: Any, receive: Any, send: Any) -> None:
        await inner(scope, receive, send)

    return Litestar([hello, tidemill], openapi_config=None, logging_config=None)


def mounted(kind: str, node: tm.Node) -> Any:
    """Return an application in which that of a node is mounted at /tidemill."""
    if kind == "starlette":
        return Starlette(tidemill_app(node, auth=False))
    inner = tidemill_app(node, prefix="/tidemill", auth=False)
    return mounted_in_litestar(inner) if kind == "litestar" else Dispatcher(inner)


@pytest.mark.parametrize("kind", ["starlette", "litestar", "dispatcher"])
async def test_everything_of_a_node_is_reached_below_a_prefix(kind: str) -> None:
    """Requests, addresses in answers, pages, the documentation of the API, and a WebSocket."""
    async with tm.Node(load=[reactor]) as node, served_app(node, mounted(kind, node)) as server:
        at = f"{server.url}/tidemill"
        async with httpx.AsyncClient(base_url=at) as http:
            pushed = await http.post("/api/v1/accumulators/numbers/events", json=7)
            assert (pushed.status_code, pushed.json()["accepted"]) == (200, True)
            made = await http.post("/api/v1/keys", json={"role": "read"})
            assert made.headers["location"] == "/tidemill/api/v1/keys"
            assert (await http.get("/api/docs")).status_code == 200
            page = await http.get("/reactors/numbers", headers={"accept": "text/html"})
            assert "/tidemill/" in page.text
            assert (await http.get("/metrics")).status_code == 200
        async with AsyncClient(at) as client:
            assert (await client.reactor("numbers").state()).fires == 1
        async with connect(f"{at.replace('http', 'ws')}/ws/accumulators/numbers") as socket:
            await socket.send('{"event": 8}')
            assert '"accepted":true' in str(await socket.recv())


async def test_a_mounted_node_asks_for_keys_unless_the_outer_application_does() -> None:
    """As a server, and from any host: who mounts it without says that it has decided."""
    async with tm.Node() as node:
        for auth, status in ((True, 401), (False, 200)):
            transport = httpx.ASGITransport(MountedApp(node, prefix=None, auth=auth))
            async with httpx.AsyncClient(transport=transport, base_url="http://shop.example") as http:
                assert (await http.get("/api/v1/me")).status_code == status
                foreign = await http.get("/api/v1/me", headers={"origin": "https://evil.example"})
                assert foreign.status_code == (403 if status == 200 else 401)


async def test_alone_on_a_server_the_application_opens_and_closes_the_node() -> None:
    """The `lifespan` of ASGI; a node that cannot start says so."""
    node = tm.Node(load=[reactor])
    events: list[str] = []

    async def receive() -> Any:
        events.append("open" if node.is_running else "closed")
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        events.append(message["type"])

    await MountedApp(node, prefix=None, auth=False)({"type": "lifespan"}, receive, send)
    assert events == ["closed", "lifespan.startup.complete", "open", "lifespan.shutdown.complete"]
    assert not node.is_running


async def test_the_web_ui_knows_below_what_path_it_is_served(tmp_path: Path) -> None:
    """Its addresses begin with the prefix, and it reads the prefix for those that it makes."""
    (tmp_path / "ui").mkdir()
    (tmp_path / "ui/index.html").write_text('<html><head><script src="/theme.js"></script></head></html>')
    async with tm.Node() as node:
        mounted_app = MountedApp(node, prefix="/tide mill", auth=False, static=tmp_path)
        transport = httpx.ASGITransport(mounted_app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop.example/tide%20mill") as http:
            page = await http.get("/runs", headers={"accept": "text/html"})
    assert '<meta name="tidemill-root" content="/tide mill" /><script src="/tide mill/theme.js">' in page.text
