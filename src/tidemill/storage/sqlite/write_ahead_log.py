"""The write-ahead log of a database file gets its usual size early, because commits into a growing log are slower.

A commit waits until its part of the log is on the disk. If the log has become longer, the file system must also write
the new length and the new blocks of the file, into a separate journal: that is a second wait. SQLite begins with an
empty log, lets it grow to about 1,000 pages, and then overwrites it from the start. So only the commits until then are
slow, several hundred of them, and each process that opens the file alone begins with an empty log again.

A few commits are over before it is worth while: a command that writes a row does not wait for 4 MB of zeros.

SQLite ignores what follows the last commit in the log, even after a crash: old pages are there all the time.
"""

import os
import shutil
import sqlite3
from contextlib import suppress

from tidemill.storage.sqlite.connections import BUSY_TIMEOUT, transaction
from tidemill.storage.sqlite.errors import LOCK_CODES, primary_error_code

TRANSACTIONS_BEFORE_STRETCH = 32
LOG_SIZE = 1_050 * (4_096 + 24)
"""Bytes: the pages until SQLite copies the log into the file, with their headers, and some more for the last commit."""
MIN_FREE_SPACE = 64 * LOG_SIZE
"""Bytes on the disk: on one that is nearly full, the log grows as far as it is needed, and no further."""


def stretch_log(connection: sqlite3.Connection, path: str) -> None:
    """Bring the log of a file to its usual size, unless it has that already or another process is writing."""
    log = f"{path}-wal"
    with suppress(OSError):  # a quota, or a disk that is full now: then the log grows as far as it can, as before
        if _is_too_short(log) and shutil.disk_usage(os.path.dirname(path)).free >= MIN_FREE_SPACE:
            _append_in_transaction(connection, log)


def _is_too_short(log: str) -> bool:
    try:
        return os.stat(log).st_size < LOG_SIZE
    except FileNotFoundError:  # the first transaction creates it
        return True


def _append_in_transaction(connection: sqlite3.Connection, log: str) -> None:
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        with transaction(connection, "IMMEDIATE"):  # no other connection writes to the log meanwhile
            _append_zeros(log)
    except sqlite3.OperationalError as error:
        if primary_error_code(error) not in LOCK_CODES:
            raise
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT * 1000:.0f}")


def _append_zeros(log: str) -> None:
    with open(log, "r+b", buffering=0) as file:
        file.write(bytes(max(0, LOG_SIZE - file.seek(0, os.SEEK_END))))
