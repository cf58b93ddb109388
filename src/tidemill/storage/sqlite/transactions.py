"""Transactions on a SQLite connection."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal


class RunAgainError(Exception):
    """Asks for a transaction to be taken back and run again: a unit of it expected something else than it found."""


@contextmanager
def transaction(connection: sqlite3.Connection, kind: Literal["DEFERRED", "IMMEDIATE", "EXCLUSIVE"]) -> Iterator[None]:
    """Commit what happens inside, or take all of it back."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some faults have ended it already
            connection.execute("ROLLBACK")
        raise
