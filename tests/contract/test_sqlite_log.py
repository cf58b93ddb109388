"""The write-ahead log of a SQLite file: it gets its usual size early, and nothing is lost on the way to it."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.disks import files_limited_to, small_disk
from tests.contract.samples import block, journal
from tidemill.storage.sqlite import write_ahead_log
from tidemill.storage.sqlite.connections import BUSY_TIMEOUT, connect_writer
from tidemill.storage.sqlite.store import SqliteStore
from tidemill.storage.sqlite.write_ahead_log import LOG_SIZE, TRANSACTIONS_BEFORE_STRETCH, stretch_log

INSERT = (
    "INSERT INTO journal (tenant, accumulator, position, checksum, payload) VALUES ('public', 'a', ?, x'00', x'01')"
)


def log_size(path: Path) -> int:
    """Return the size of the log of a file."""
    return path.with_name(f"{path.name}-wal").stat().st_size


async def test_the_log_of_a_busy_store_has_its_size_and_keeps_it(tmp_path: Path) -> None:
    """A commit into a growing log waits for the disk twice."""
    path = tmp_path / "new.db"
    store = SqliteStore(str(path))
    await store.open()
    sizes = []
    for position in range(400):
        await store.checkpoints.append([block(position)])
        sizes.append(log_size(path))
    await store.close()
    assert max(sizes[: TRANSACTIONS_BEFORE_STRETCH - 1]) < LOG_SIZE / 4, "a few commits are not worth it"
    assert set(sizes[TRANSACTIONS_BEFORE_STRETCH:]) == {LOG_SIZE}


def test_a_log_that_is_longer_stays_as_it_is(tmp_path: Path) -> None:
    """Another process may have stretched it, or large commits."""
    path = tmp_path / "shared.db"
    with closing(connect_writer(str(path), create=True)) as connection:
        connection.execute("INSERT INTO journal VALUES ('public', 'a', 1, x'00', zeroblob(?), x'')", (2 * LOG_SIZE,))
        before = log_size(path)
        stretch_log(connection, str(path))
        assert log_size(path) == before > LOG_SIZE


def test_another_writer_is_not_waited_for(tmp_path: Path) -> None:
    """The log stays short then, and the next transaction waits as patiently as before."""
    path = tmp_path / "busy.db"
    with closing(connect_writer(str(path), create=True)) as connection, closing(sqlite3.connect(path)) as other:
        (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
        other.execute("BEGIN IMMEDIATE")
        stretch_log(connection, str(path))
        other.rollback()
        assert log_size(path) < LOG_SIZE
        connection.execute(INSERT, (1,))
        assert connection.execute("PRAGMA busy_timeout").fetchone() == (patience,) == (BUSY_TIMEOUT * 1000,)


def test_a_small_disk_is_left_to_the_data(tmp_path: Path) -> None:
    """A disk that is nearly full must not become full without need."""
    path = tmp_path / "small.db"
    with small_disk(tmp_path) as disk, closing(connect_writer(str(path), create=True)) as connection:
        before = log_size(path)
        stretch_log(connection, str(path))
        assert log_size(path) == (before if disk else LOG_SIZE)


def test_a_limit_of_the_system_is_no_error(tmp_path: Path) -> None:
    """The log becomes as long as it may, and the next transaction works."""
    path = tmp_path / "limited.db"
    with closing(connect_writer(str(path), create=True)) as connection:
        limit = log_size(path) + 10_000
        with files_limited_to(limit):
            stretch_log(connection, str(path))
            connection.execute(INSERT, (1,))
        assert log_size(path) == limit
        assert connection.execute("SELECT position FROM journal").fetchall() == [(1,)]


KILLED = """
import os, sys
from tidemill.storage.sqlite import write_ahead_log
from tidemill.storage.sqlite import write_ahead_log
from tidemill.storage.sqlite.connections import BUSY_TIMEOUT, connect_writer

path, kept, share = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
connection = connect_writer(path, create=True)
for position in range(kept):
    connection.execute(sys.argv[4], (position,))

def die_while_writing(log):
    with open(log, "r+b", buffering=0) as file:
        length = file.seek(0, os.SEEK_END)
        file.write(bytes(int((write_ahead_log.LOG_SIZE - length) * share)))
    os.kill(os.getpid(), 9)

write_ahead_log._append_zeros = die_while_writing
write_ahead_log.stretch_log(connection, path)
"""


@pytest.mark.parametrize("share", [0, 0.000_01, 0.377, 1])
@pytest.mark.parametrize("kept", [0, 7])
async def test_a_death_while_the_log_is_stretched_loses_nothing(tmp_path: Path, kept: int, share: float) -> None:
    """G-24: kill -9 before, during and after the write, into an empty log and into one with commits."""
    path = tmp_path / "killed.db"
    command = [sys.executable, "-c", KILLED, str(path), str(kept), str(share), INSERT]
    ended = await asyncio.to_thread(subprocess.run, command, check=False, timeout=60)
    assert ended.returncode == -9
    store = SqliteStore(str(path))
    await store.open()
    for position in range(kept, 50):
        await store.checkpoints.append([block(position)])
    assert [one.position for one in await store.checkpoints.read_blocks([journal()])] == list(range(50))
    assert log_size(path) == LOG_SIZE
    assert await store.check_integrity() == []
    await store.close()


def test_no_other_connection_commits_while_the_log_is_stretched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-24: its commit would be overwritten with zeros."""
    path = str(tmp_path / "contested.db")
    refused: list[str] = []
    append_zeros = write_ahead_log._append_zeros
    with closing(connect_writer(path, create=True)) as connection, closing(connect_writer(path, create=False)) as other:
        other.execute("PRAGMA busy_timeout = 0")

        def commit_meanwhile(log: str) -> None:
            with pytest.raises(sqlite3.OperationalError) as caught:
                other.execute(INSERT, (1,))
            refused.append(str(caught.value))
            append_zeros(log)

        monkeypatch.setattr(write_ahead_log, "_append_zeros", commit_meanwhile)
        stretch_log(connection, path)
        other.execute(INSERT, (2,))
        assert connection.execute("SELECT position FROM journal").fetchall() == [(2,)]
    assert refused == ["database is locked"]
