"""The contract of sources, against real servers that are killed: PostgreSQL, Valkey."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.system.sources.valkey import ValkeyServer, valkey_server
from tidemill.testing.sources import Check, SourceUnderTest, checks

TABLE = "CREATE TABLE numbers (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number int, filler text)"
NOTIFY = """
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NOTIFY numbers; RETURN NULL; END $$;
CREATE TRIGGER tell AFTER INSERT ON numbers FOR EACH STATEMENT EXECUTE FUNCTION tell()
"""


class PostgresUnderTest(SourceUnderTest):
    """A table of its own on a server that is killed."""

    def __init__(self, server: PostgresServer, url: str, source: tm.Source) -> None:
        self._server = server
        self._url = url
        self._source = source

    def make_source(self) -> tm.Source:
        return self._source

    async def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        await self._insert([(event["number"], event["filler"]) for event in events])

    async def append_invalid(self) -> None:
        await self._insert([(None, "")])

    async def _insert(self, rows: list[tuple[int | None, str]]) -> None:
        connection = await asyncpg.connect(self._url)
        await connection.execute(
            "INSERT INTO numbers (number, filler) SELECT * FROM unnest($1::int[], $2::text[])",
            *([row[position] for row in rows] for position in (0, 1)),
        )
        await connection.close()

    async def stop_server(self) -> None:
        await asyncio.to_thread(self._server.kill)

    async def start_server(self) -> None:
        await asyncio.to_thread(self._server.start)

    async def open_connections(self) -> int | None:
        count: int = await self._server.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tidemill source %'"
        )
        return count


@pytest.fixture(scope="module")
def killed_postgres() -> Iterator[PostgresServer]:
    """A server that the checks kill and start."""
    server = PostgresServer(fsync=True)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.mark.parametrize("channel", [None, "numbers"])
@pytest.mark.parametrize("check", checks())
async def test_postgres(check: Check, channel: str | None, killed_postgres: PostgresServer) -> None:
    """With polling alone, and woken by notifications."""
    url = await killed_postgres.fresh_database()
    connection = await asyncpg.connect(url)
    await connection.execute(f"{TABLE}; {NOTIFY}")
    await connection.close()
    every = "20ms" if channel is None else "10s"
    source = tm.sources.Postgres(table="numbers", columns=["number", "filler"], channel=channel, every=every, url=url)
    await check(PostgresUnderTest(killed_postgres, url, source))


class ValkeyUnderTest(SourceUnderTest):
    """A stream on a server that is killed."""

    def __init__(self, server: ValkeyServer, source: tm.Source) -> None:
        self._server = server
        self._source = source

    def make_source(self) -> tm.Source:
        return self._source

    async def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        async with self._server.connected() as client, client.pipeline(transaction=False) as pipeline:
            for event in events:
                pipeline.xadd("numbers", {"event": msgspec.json.encode(event)})
            await pipeline.execute()

    async def append_invalid(self) -> None:
        async with self._server.connected() as client:
            await client.xadd("numbers", {"other": b"\xff"})

    async def stop_server(self) -> None:
        self._server.kill()

    async def start_server(self) -> None:
        await self._server.start()

    async def open_connections(self) -> int | None:
        async with self._server.connected() as client:
            return sum(one["name"].startswith("tidemill-source-") for one in await client.client_list())


@pytest.mark.parametrize("check", checks())
async def test_redis(check: Check, tmp_path: Path) -> None:
    """The checkpoint alone decides."""
    async with valkey_server(tmp_path) as server:
        await check(ValkeyUnderTest(server, tm.sources.Redis(stream="numbers", field="event", url=server.url)))


OWN_POSITIONS = "resumes_after_every_checkpoint"
"""A group decides where to continue: its acknowledged entries do not come again."""


@pytest.mark.parametrize("check", [check for check in checks() if check.__name__ != OWN_POSITIONS])
async def test_redis_in_a_group(check: Check, tmp_path: Path) -> None:
    """The group decides, and the checkpoint drops what was delivered and not acknowledged."""
    async with valkey_server(tmp_path) as server:
        source = tm.sources.Redis(stream="numbers", field="event", group="readers", url=server.url)
        await check(ValkeyUnderTest(server, source))
