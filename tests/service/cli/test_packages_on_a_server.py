"""Packages with a server: `client.upload`, and `tidemill package upload`, `list` and `unload`."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tidemill as tm
from tests.service.cli.served_commands import CommandLine
from tests.service.package_folders import package, without_child_processes
from tests.service.server.serving_node import Served, served
from tidemill.client import AsyncClient, Client

MARKET = """\
import tidemill as tm

@tm.passthrough
def tick(event: int) -> int:
    return event

market = tm.Reactor("market", [tick])
"""


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    without_child_processes(monkeypatch)


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node that loads what is published."""
    async with tm.Node(settings={"load_published": True}) as node, served(node) as one:
        yield one


async def test_a_package_is_uploaded_and_withdrawn(server: Served, tmp_path: Path) -> None:
    """http.md: `client.upload` takes an archive, or a folder; the server has loaded it when it returns."""
    folder = package(tmp_path / "market", MARKET)

    def upload() -> str:
        with Client(server.url) as client:
            return client.upload(folder).state

    assert await asyncio.to_thread(upload) == "loaded"
    async with AsyncClient(server.url) as client:
        assert [(one.name, one.published) for one in await client.packages()] == [("market", "1.0.0")]
        assert (await client.package("market")).version == "1.0.0"
        package(tmp_path / "market", MARKET, "0.9.0")
        with pytest.raises(tm.RequestError) as refused:
            await client.upload(folder)
        assert refused.value.code == "downgrade"
        assert (await client.upload(str(folder), allow_downgrade=True)).published == "0.9.0"
        await client.unload("market")
        with pytest.raises(tm.RequestError) as gone:
            await client.unload("market")
        assert gone.value.code == "package_not_found"


async def test_the_commands_do_the_same(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """server.md: `package upload`, `list` and `unload`."""
    cli = CommandLine(server, monkeypatch, capsys)
    folder = package(tmp_path / "market", MARKET)
    assert await cli.text("package", "upload", str(folder), "--no-import") == "market 1.0.0 is published, loaded\n"
    (listed,) = await cli.json("package", "list")
    assert (listed["name"], listed["version"], listed["state"]) == ("market", "1.0.0", "loaded")
    assert "market" in await cli.text("package", "list")
    assert (await cli.json("package", "status", "market"))["steps"]
    assert await cli.text("package", "errors") == "no package has failed to load\n"
    assert await cli.text("package", "unload", "market") == "package 'market' is no longer published\n"
    assert await cli.code("package", "unload", "market") != 0


DESK = """\
import tidemill as tm

desk = tm.Graph("desk", reactor="market")

@desk.node
def out(tick: int) -> int:
    return tick
"""


async def test_an_upload_says_what_the_package_waits_for(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """D17: and it is loaded as soon as another package provides that."""
    cli = CommandLine(server, monkeypatch, capsys)
    desk, market = package(tmp_path / "desk", DESK), package(tmp_path / "market", MARKET)
    uploaded = await cli.text("package", "upload", str(desk), "--no-import")
    assert uploaded == "desk 1.0.0 is published, waiting for reactor 'market'\n"
    assert (await cli.json("package", "status", "desk"))["waiting_for"] == ["reactor 'market'"]
    listed = await cli.text("package", "list")
    assert "waiting for" in listed
    assert "reactor 'market'" in listed
    await cli.text("package", "upload", str(market), "--no-import")
    async with asyncio.timeout(10):
        while (await cli.json("package", "status", "desk"))["state"] != "loaded":  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.02)
    assert "waiting for" not in await cli.text("package", "list")


SHOP = """\
import tidemill as tm

class Total(tm.Boundary):
    {field}: float = 0.0

@tm.passthrough(state=Total)
def total(event: float, state: Total) -> Total:
    return Total(state.{field} + event)

shop = tm.Reactor("shop", [total])
"""
LOST = (
    "accumulator 'total': a boundary of it has fields that its class does not have, and their values are lost: spent; "
)


async def test_a_check_names_the_kept_state_that_a_package_does_not_read(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """D9: before it is published; nothing was reported before the state was gone."""
    cli = CommandLine(server, monkeypatch, capsys)
    folder = package(tmp_path / "shop", SHOP.format(field="spent"))
    async with AsyncClient(server.url) as client:
        assert (await client.upload(folder)).state == "loaded"
        await client.push("total", 5.0)
        package(folder, SHOP.format(field="revenue"), "2.0.0")
        checked = await client.check_package(folder)
        assert checked.unread[0].startswith(LOST)
        assert (checked.values, checked.complete) == (2, True)
        assert await cli.code("package", "check", str(folder), "--state") == 1
        assert LOST.strip("; ") in capsys.readouterr().err
        package(folder, SHOP.format(field="spent"), "2.0.0")
        assert "it reads all 2 kept values" in await cli.text("package", "check", str(folder), "--state")
        assert (await client.package("shop")).version == "1.0.0"


async def test_a_server_that_refuses_unread_state_rejects_the_upload(tmp_path: Path) -> None:
    """D9: a published version that nodes refuse would be missing after their next start."""
    folder = package(tmp_path / "shop", SHOP.format(field="spent"))
    settings = {"load_published": True, "unread_state": "refuse"}
    async with tm.Node(settings=settings) as node, served(node) as server, AsyncClient(server.url) as client:
        assert (await client.upload(folder)).state == "loaded"
        await client.push("total", 5.0)
        package(folder, SHOP.format(field="revenue"), "2.0.0")
        with pytest.raises(tm.RequestError, match="spent") as refused:
            await client.upload(folder)
        assert refused.value.code == "unread_state"
        assert [one.published for one in await client.packages()] == ["1.0.0"]
