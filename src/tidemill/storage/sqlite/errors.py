"""Errors of SQLite, explained to operators."""

import sqlite3
from pathlib import Path

from tidemill.kernel.errors import DamagedStoreError, FullStoreError, StoreError
from tidemill.storage.sqlite.write_lock import find_lock_holder

ADVICE = {
    sqlite3.SQLITE_PROTOCOL: "another process is opening it and did not finish in time; try again",
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_IOERR: "the disk reports an error; check the disk and the system's log",
    sqlite3.SQLITE_READONLY: "it may not be written to; give this user the right to write to it, its -wal and "
    "-shm, and its folder",
    sqlite3.SQLITE_PERM: "it may not be opened; give this user the right to read and write it",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check the permissions of the file and its folder",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a backup",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database; name another one, or restore it from a backup",
}

LOCK_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
CORRUPTION_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def database_title(path: str) -> str:
    """Return the name of a database in messages."""
    return f"SQLite database {path}"


def is_database_fault(error: sqlite3.Error) -> bool:
    """Return whether the database is at fault, rather than the statement."""
    return isinstance(error, sqlite3.OperationalError | sqlite3.InternalError) or type(error) is sqlite3.DatabaseError


def primary_error_code(error: sqlite3.Error) -> int:
    """Return the primary result code; SQLITE_ERROR for the driver's own errors."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def to_store_error(error: sqlite3.Error, path: str, suffix: str = "") -> StoreError:
    """Return an error that says what failed, in which file, and what to do."""
    if isinstance(error, sqlite3.IntegrityError):
        what = "it already holds an entry that was to be new; make sure that no other node uses it"
    elif primary_error_code(error) in LOCK_CODES:
        what = explain_locked(path)
    elif primary_error_code(error) == sqlite3.SQLITE_CANTOPEN:
        what = explain_cannot_open(Path(path))
    else:
        what = ADVICE.get(primary_error_code(error), "it rejected the statement")
    kind = DamagedStoreError if primary_error_code(error) in CORRUPTION_CODES else StoreError
    if primary_error_code(error) == sqlite3.SQLITE_FULL:
        kind = FullStoreError
    return kind(f"{database_title(path)}: {what} ({error}){suffix}")


def explain_locked(path: str) -> str:
    """Return which process is writing to a file, as far as that can be seen."""
    found = "another process is writing to it and did not finish in time"
    holder = find_lock_holder(path)
    return f"{found}; try again" if holder is None else f"{found}: {holder}; {holder.advice}"


def explain_cannot_open(path: Path) -> str:
    """Return why a file cannot be opened, as far as that can be seen."""
    if path.is_dir():
        return "this is a folder; name a file in it"
    if path.parent.is_file():
        return f"{path.parent} is a file, not a folder"
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist; create it"
    return ADVICE[sqlite3.SQLITE_CANTOPEN]
