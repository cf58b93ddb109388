"""Evidence: what store, servers and notes say in the end, as the audit takes it."""

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import msgspec

from tests.installation.audit import Book, Evidence, Page, StoredRun
from tests.installation.front import Front
from tests.installation.package_under_test import ACCOUNTS, AttemptNote, FiringNote
from tests.system.journal_lines import complete_lines
from tests.system.workflow_nodes import all_runs
from tidemill.storage.store import Store

Note = TypeVar("Note", AttemptNote, FiringNote)

SUCCESSES = "SELECT run, task, count(*) FROM {schema}attempts WHERE outcome = 'success' GROUP BY run, task"
FIRES = "SELECT dedup, at FROM {schema}fires WHERE workflow = 'page' AND dedup IS NOT NULL"


async def gather_evidence(
    store: Store, address: str, front: Front, folder: Path, *, before: frozenset[str], until: datetime
) -> Evidence:
    """Read everything, of a quiet installation; slots after a moment do not count, since they still begin."""
    runs = [run for run in await read_runs(store) if run.slot is None or run.slot <= until]
    ids = {run.id for run in runs}
    successes = await _query(address, SUCCESSES)
    return Evidence(
        journal=front.journal.read(),
        runs=runs,
        successes={(run, task): count for run, task, count in successes if run in ids},
        fires=[(topic, _to_time(at)) for topic, at in await _query(address, FIRES)],
        books=await _read_books(front),
        attempts=_read_notes(folder / "attempts", AttemptNote),
        firings=_read_notes(folder / "firings", FiringNote),
        logged={path.stem: path.read_text("utf-8", "replace").splitlines() for path in folder.glob("*.log")},
        read_before=before,
        until=until,
    )


async def read_runs(store: Store) -> list[StoredRun]:
    """Return all runs, oldest first."""
    return [
        StoredRun(run.id, run.workflow, run.state.value, msgspec.msgpack.decode(run.params), run.slot)
        for run in await all_runs(store)
    ]


async def _read_books(front: Front) -> list[Book]:
    """Return what the reactors have applied, as servers answer."""
    ledger = _book("ledger", "", await front.get("/reactors/ledger"))
    return [ledger, *[_book("accounts", one, await front.get(f"/reactors/accounts?key={one}")) for one in ACCOUNTS]]


def _read_notes(path: Path, kind: type[Note]) -> list[Note]:
    """Return the lines that functions of the package have noted."""
    return [msgspec.json.decode(line, type=kind) for line in complete_lines(path)]


def _book(reactor: str, account: str, state: dict[str, Any]) -> Book:
    (ledger,) = state["cache"].values() or [None]
    return Book(reactor, account, msgspec.convert((ledger or {}).get("pages", {}), dict[str, Page]))


async def _query(address: str, statement: str) -> Sequence[Sequence[Any]]:
    if address.startswith("sqlite:///"):
        connection = sqlite3.connect(address.removeprefix("sqlite:///"))
        try:
            return connection.execute(statement.format(schema="")).fetchall()
        finally:
            connection.close()
    session = await asyncpg.connect(address)
    try:
        found: Sequence[Sequence[Any]] = await session.fetch(statement.format(schema="tidemill."))
        return found
    finally:
        await session.close()


def _to_time(stored: datetime | int) -> datetime:
    """Return a time as PostgreSQL stores it, or as SQLite does: in microseconds."""
    if isinstance(stored, datetime):
        return stored
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=stored)
