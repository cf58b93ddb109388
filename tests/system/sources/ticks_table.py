"""A table of ticks in a database of its own, for the tests of the PostgreSQL source."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from tests.postgres import PostgresServer
from tests.system.sources.reading import SourceReading

TABLE = "CREATE TABLE ticks (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, size int)"


@asynccontextmanager
async def connected(url: str, count: int = 1) -> AsyncIterator[list[Any]]:
    """Lend connections to a database."""
    connections = [await asyncpg.connect(url) for _ in range(count)]
    try:
        yield connections
    finally:
        for connection in connections:
            connection.terminate()


async def make_table(server: PostgresServer, *statements: str) -> str:
    """Make a database with the table of ticks; return its URL."""
    url = await server.fresh_database()
    async with connected(url) as [connection]:
        for statement in (TABLE, *statements):
            await connection.execute(statement)
    return url


def numbers(read: SourceReading) -> list[int]:
    """Return the numbers of the rows that were delivered."""
    return [checkpoint["number"] for checkpoint in read.checkpoints]
