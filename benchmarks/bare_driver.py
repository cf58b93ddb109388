"""The bare driver of SQLite: rows in durable commits of many, without an engine; the ceiling of every durable event."""

import sqlite3
from pathlib import Path
from time import perf_counter, process_time

ROWS_PER_COMMIT = 256
PAYLOAD = b"x" * 48  # about what an event of the market maker weighs in the journal


class BareDriver:
    """Writes rows to a file of its own. It takes turns with the engine, so that both meet the same machine."""

    def __init__(self, folder: Path) -> None:
        self.connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute("CREATE TABLE raw (number INTEGER PRIMARY KEY, payload BLOB)")
        self._number = 0
        self.wall: list[float] = []
        """Seconds per row, round by round."""
        self.cpu: list[float] = []
        """Seconds of CPU per row, round by round."""

    def run(self, rows: int) -> None:
        """Write about so many rows, in whole commits."""
        commits = max(1, rows // ROWS_PER_COMMIT)
        began, used = perf_counter(), process_time()
        for _ in range(commits):
            self.connection.execute("BEGIN IMMEDIATE")
            numbers = range(self._number, self._number + ROWS_PER_COMMIT)
            self.connection.executemany("INSERT INTO raw VALUES (?, ?)", [(number, PAYLOAD) for number in numbers])
            self.connection.execute("COMMIT")
            self._number += ROWS_PER_COMMIT
        self.wall.append((perf_counter() - began) / (commits * ROWS_PER_COMMIT))
        self.cpu.append((process_time() - used) / (commits * ROWS_PER_COMMIT))

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
