"""Transactions on a SQLite connection."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal


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
