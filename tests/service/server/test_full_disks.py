"""Readiness on a full disk: no request that writes should come, until there is space again."""

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import tidemill as tm
from tests.contract.disks import files_limited_to, small_disk
from tests.postgres import PostgresServer
from tests.service.server.serving_node import Served, served
from tidemill.kernel.errors import StoreError
from tidemill.server import readiness

TABLESPACE_SIZE = 32 * 1024 * 1024  # a database, with the tables of Tidemill and their indexes
NO_SPACE = [
    "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '53100'; END $$",
    *(
        f"CREATE TRIGGER fail BEFORE INSERT ON tidemill.{table} FOR EACH ROW EXECUTE FUNCTION fail()"
        for table in ("runs", "notes")
    ),
]


class Texts(tm.Params):
    """The params of a run."""

    text: str


SPACE = ["DROP FUNCTION fail CASCADE"]
TOLD = re.compile("the disk of the store is full|The log of the server has the reason")
FULL = re.compile("disk is full; free some space|the disk reports an error")  # the second one by a limit of files
flow = tm.Workflow("flow", params=Texts)


@flow.task
def measure(params: Texts) -> int:
    """Return the length of a text."""
    return len(params.text)


class Place(NamedTuple):
    """A store whose disk can be filled. Where mounting is not permitted, the database behaves as on a full disk."""

    address: str
    fill: Callable[[], Awaitable[object]]
    free: Callable[[], Awaitable[object]]


@asynccontextmanager
async def sqlite_place(folder: Path) -> AsyncIterator[Place]:
    """Yield a place for a database file."""
    with small_disk(folder) as disk, ExitStack() as limits:

        async def fill() -> None:
            if disk is not None:
                disk.fill()
            else:
                limits.enter_context(files_limited_to((folder / "tidemill.db-wal").stat().st_size))

        async def free() -> None:
            if disk is not None:
                disk.free()
            limits.close()

        yield Place(f"sqlite:///{folder}/tidemill.db", fill, free)


async def execute_all(server: PostgresServer, statements: list[str], address: str) -> None:
    """Execute statements in a database."""
    for statement in statements:
        await server.execute(statement, address.rpartition("/")[2].partition("?")[0])


@asynccontextmanager
async def postgres_place(server: PostgresServer) -> AsyncIterator[Place]:
    """Yield a database in a tablespace on its own disk."""
    folder = server.folder / "disk"
    folder.mkdir()
    with small_disk(folder, TABLESPACE_SIZE) as disk:
        if disk is None:
            address = await server.fresh_store()
            yield Place(
                address, partial(execute_all, server, NO_SPACE, address), partial(execute_all, server, SPACE, address)
            )
            return
        owner = server.folder.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        await server.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        await server.execute("CREATE DATABASE small TABLESPACE small")

        async def fill() -> None:
            disk.fill()

        async def free() -> None:
            disk.free()

        yield Place(server.url("small"), fill, free)
        server.stop("immediate")


@pytest.fixture(params=["sqlite", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A store whose disk can be filled."""
    if request.param == "sqlite":
        context = sqlite_place(tmp_path)
    else:
        context = postgres_place(request.getfixturevalue("own_postgres"))
    async with context as found:
        yield found


async def start_until_refused(node: tm.Node) -> str:
    """Start runs until the room that the database still had is used up; return the refusal."""
    for _ in range(1000):
        try:
            await node.start("flow", text=secrets.token_hex(50_000))
        except StoreError as error:
            return str(error)
    raise AssertionError("the disk never filled up")


async def readiness_of(server: Served) -> tuple[int, str]:
    """Return the status of the answer, and what it says about the store."""
    answer = await server.http.get(f"{server.url}/health/ready")
    [reason] = [one["reason"] for one in answer.json()["checks"] if one["name"] == "store"]
    return answer.status_code, reason


async def test_a_server_whose_disk_is_full_is_not_ready_until_there_is_space(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """The store still answers reads, and small writes may still find room; both say nothing about the next run."""
    async with tm.Node(place.address, load=[flow]) as node, served(node) as server:
        assert await readiness_of(server) == (200, "")
        await place.fill()
        assert FULL.search(await start_until_refused(node))
        for _ in range(3):
            caplog.clear()
            status, reason = await readiness_of(server)
            assert (status, bool(TOLD.search(reason))) == (503, True), reason
            assert [one for one in caplog.records if one.name == readiness.__name__ and FULL.search(one.getMessage())]
        await place.free()
        async with asyncio.timeout(20):
            while (await readiness_of(server))[0] != 200:
                pass
        run = await node.start("flow", text="short")
        assert (await run.wait(20)).outputs == {"measure": 5}
