"""SQLite files for tests: copies of one that has Tidemill's tables, which is made once in each process."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tidemill.storage.sqlite.connections import connect_writer


def create_database(path: Path) -> None:
    """Create a file that has Tidemill's tables, and nothing in them.

    To apply all migrations to a new file takes 10 ms, longer than most tests need for everything else.
    """
    path.write_bytes(_empty_database())


@cache
def _empty_database() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder, "empty.db")
        connect_writer(str(path), create=True).close()
        return path.read_bytes()
