"""Stores as real nodes leave them, and damage done to them behind Tidemill's back."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import tidemill as tm
from tests.service.samples import pair
from tidemill.engine.graphs.audit.report import StoreReport, audit_store
from tidemill.engine.graphs.durability.journal_blocks import journal_checksum_seed, unpack_blocks
from tidemill.kernel.clock import DEFAULT_START
from tidemill.storage.queries import build_block
from tidemill.storage.sqlite.connections import APPLICATION_ID, MIGRATIONS
from tidemill.storage.sqlite.store import SqliteStore

SAME_DAY = DEFAULT_START + timedelta(hours=12)


async def fill(path: Path, durability: str = "boundary", *, tenant: str = "public", events: int = 6) -> None:
    """Leave a store behind as a node does that dies of kill -9: reactor `r`, accumulators `a` and `b`, a dead letter.

    Its journal holds what came after the older of two snapshots.
    """
    sample = pair(durability=durability, strategy="sequential")
    living = path.with_suffix(".living")
    async with tm.testing.node(f"sqlite:///{living}", load=sample.load, tenant=tenant) as node:
        for number in range(events):
            await node.push("a", number)
            await node.push("b", number)
            await node.settle()
            await node.advance("1s")
        await node.push("a", "no number")
        await node.push("b", 100)
        await node.settle()
        await node.push("b", 101)
        copy(living, path)
    if durability != "none":  # the process that owned these parts lives on: it runs this test
        change(path, "UPDATE part_owners SET owner = NULL")


def copy(source: Path, target: Path) -> None:
    """Copy a store as it is now, also while a node writes to it."""
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


def change(path: Path, *statements: str) -> None:
    """Do something to the rows of a store that no Tidemill would do."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, f"nothing to change: {statement}"
        connection.commit()


def make_version_20(path: Path) -> None:
    """Turn the journal of a store into the one that schema version 20 had: one row for each entry."""
    columns = "tenant, accumulator, position, layout, checksum, payload"
    found = [build_block(*row) for row in rows(path, f"SELECT {columns} FROM journal")]
    entries = [
        (
            *one.key,
            one.position,
            crc32(one.payload, journal_checksum_seed(*one.key) ^ one.position).to_bytes(4),
            one.payload,
        )
        for one in unpack_blocks(found)
    ]
    older = path.with_suffix(".older")
    with closing(sqlite3.connect(older)) as connection:
        for migration in MIGRATIONS[:20]:
            for statement in migration.statements:
                connection.execute(statement)
        connection.execute("ATTACH DATABASE ? AS newer", (str(path),))
        for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            common = ", ".join(_columns(connection, "main", table) & _columns(connection, "newer", table))
            connection.execute(f"DELETE FROM {table}")
            if table != "journal":
                connection.execute(f"INSERT INTO {table} ({common}) SELECT {common} FROM newer.{table}")
        connection.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", entries)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 20")
        connection.commit()
    older.replace(path)


def _columns(connection: sqlite3.Connection, schema: str, table: str) -> set[str]:
    return {name for _, name, *_ in connection.execute(f"PRAGMA {schema}.table_info({table})")}


def rows(path: Path, question: str) -> Sequence[Any]:
    """Ask a store something."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(question).fetchall()


async def look_at(path: Path, now: datetime = SAME_DAY) -> StoreReport:
    """Examine a store as the doctor does, on the day that virtual clocks begin with."""
    store = SqliteStore(str(path))
    await store.open_read_only()
    try:
        return await audit_store(store, now)
    finally:
        await store.close()
