"""Faults of SQLite: each raises an error that explains it, leaves nothing half written, and is recovered from."""

import asyncio
import os
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from tests.contract.disks import files_limited_to, small_disk, without_root
from tests.contract.samples import block, journal, outcomes, part
from tidemill.kernel.errors import StoreError
from tidemill.storage.sqlite.connections import BUSY_TIMEOUT
from tidemill.storage.sqlite.database import FileDatabase
from tidemill.storage.sqlite.store import SqliteStore
from tidemill.storage.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database is."""
    return tmp_path / "tidemill.db"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Store]:
    """Open a store and close it again."""
    store = SqliteStore(str(path))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def positions(store: Store) -> list[int]:
    """Return the positions in the one journal of these tests."""
    return [found.position for found in await store.checkpoints.read_blocks([journal()])]


async def refusal(store: Store, position: int, size: int = 10) -> str:
    """Append something that must be refused; return the sentence."""
    with pytest.raises(StoreError) as caught:
        await store.checkpoints.append([block(position, payload=bytes(size))])
    return str(caught.value)


async def test_a_busy_file_is_reported_in_time_and_works_again(path: Path) -> None:
    """Reads continue meanwhile."""
    async with opened(path) as store:
        await store.checkpoints.append([block(1)])
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with asyncio.timeout(BUSY_TIMEOUT + 2):
                assert f"{path}: another process is writing to it" in await refusal(store, 2)
            assert await positions(store) == [1]
            other.execute("ROLLBACK")
        await store.checkpoints.append([block(3)])
        assert await positions(store) == [1, 3]


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
async def test_a_busy_file_cannot_be_opened_until_it_is_free(path: Path, mode: str) -> None:
    """Neither to make a schema, nor to turn the log on."""
    store = SqliteStore(str(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"PRAGMA journal_mode = {mode}")
        other.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(BUSY_TIMEOUT + 2):
            with pytest.raises(StoreError, match="another process is writing to it"):
                await store.open()
        other.execute("ROLLBACK")
        await store.open()
    await store.checkpoints.append([block(1)])
    await store.close()


async def test_only_the_owner_can_read_a_new_file(tmp_path: Path) -> None:
    """Params, outputs and logs of all tenants are in it. The mode of a file that is there is left alone."""
    before = os.umask(0o022)
    try:
        for name, mode in [("new.db", 0o600), ("old.db", 0o644)]:
            path = tmp_path / name
            if mode == 0o644:
                path.touch(mode)
            async with opened(path) as store:
                await store.checkpoints.append([block(1)])
                modes = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.glob(f"{name}*")}
            assert modes == dict.fromkeys([name, f"{name}-wal", f"{name}-shm"], mode)
    finally:
        os.umask(before)


async def test_a_path_may_have_any_name(tmp_path: Path) -> None:
    """Also one that would mean something else in the address that SQLite is given."""
    folder = tmp_path / "50% of #1? 🌊"
    folder.mkdir()
    async with opened(folder / "tide mill?mode=memory.db") as store:
        await store.checkpoints.append([block(1)])
    assert [one.name for one in folder.iterdir()] == ["tide mill?mode=memory.db"]


async def test_a_full_disk_is_reported_and_recovers_when_there_is_space(tmp_path: Path) -> None:
    """G-26. A page limit stands in for the disk where the system does not let us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder) as disk:
        async with opened(folder / "tidemill.db") as store:
            await store.checkpoints.append([block(1)])
            if disk:
                disk.fill()
                assert "the disk is full; free some space" in await fill_up(store)
                before = await positions(store)
                disk.free()
            else:
                await limit_pages(store)
                assert "the disk is full; free some space" in await refusal(store, 2, size=1_000_000)
                before = await positions(store)
            await store.checkpoints.append([block(1_000_000)])
            assert await positions(store) == [*before, 1_000_000]
            assert await store.check_integrity() == []


async def fill_up(store: Store) -> str:
    """Append until the room that the log still had is used up; return the refusal."""
    for position in range(2, 1_000):
        try:
            await store.checkpoints.append([block(position, payload=bytes(5_000))])
        except StoreError as error:
            assert max(await positions(store)) == position - 1
            return str(error)
    raise AssertionError("the disk never filled up")


async def limit_pages(store: Store) -> None:
    """Let the connection that writes have no more pages than it has; a new one is free of it."""
    assert isinstance(store, SqliteStore)
    await store._database._writer.run(lambda connection: connection.execute("PRAGMA max_page_count = 1"))


async def test_a_disk_full_for_a_while_refuses_and_forgets_nothing(tmp_path: Path) -> None:
    """G-24: what was acknowledged is there, what was refused is not, and the file is sound; also after reopening."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder) as disk, files_limited_to(2**40 if disk else 300_000):
        path = folder / "tidemill.db"
        acknowledged = []
        async with opened(path) as store:
            for position in range(400):
                try:
                    await store.checkpoints.append([block(position, payload=bytes(5_000))])
                except StoreError:
                    continue
                acknowledged.append(position)
            assert 0 < len(acknowledged) < 400
            assert await positions(store) == acknowledged
        async with opened(path) as store:
            assert await positions(store) == acknowledged
            assert await store.check_integrity() == []


async def test_a_log_that_filled_the_disk_is_cleared_away(tmp_path: Path) -> None:
    """A checkpoint over itself needs no more room in the file, only in the log; no operator is needed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder) as disk:
        async with opened(folder / "tidemill.db") as store:
            assert [await outcome(store, generation) for generation in range(1, 5)] == ["done"] * 4
        async with opened(folder / "tidemill.db") as store:
            results = [await outcome(store, generation) for generation in range(5, 45)]
            assert ("refused" in results) == (disk is not None)
            assert results.count("done") > 30
            assert await store.check_integrity() == []


async def outcome(store: Store, generation: int) -> str:
    """Save a checkpoint of many pages; return what became of it."""
    (result,) = await outcomes(store.checkpoints.save([part(generation, payload=bytes([generation]) * 100_000)]))
    return result


async def test_a_disk_that_refuses_to_write_is_told_and_recovers(path: Path) -> None:
    """G-26: the store reconnects after an error of the disk."""
    async with opened(path) as store:
        await store.checkpoints.append([block(1)])
        with files_limited_to(64 * 1024):
            assert "the disk reports an error; check the disk" in await refusal(store, 2, size=1_000_000)
            assert await positions(store) == [1]
        await store.checkpoints.append([block(3, payload=bytes(1_000_000))])
        assert await positions(store) == [1, 3]
        assert await store.check_integrity() == []


async def test_a_file_that_may_not_be_written_to_is_told_at_once() -> None:
    """On opening, not at the first write."""
    with without_root() as folder:
        path = folder / "tidemill.db"
        async with opened(path) as store:
            await store.checkpoints.append([block(1)])
        path.chmod(0o400)
        with pytest.raises(StoreError, match="it may not be written to; give this user the right to write"):
            await SqliteStore(str(path)).open()
        path.chmod(0o600)
        async with opened(path) as store:
            assert await positions(store) == [1]


async def test_a_file_that_was_deleted_is_not_written_to(path: Path) -> None:
    """What is acknowledged can be found again: SQLite alone would write to a file without a name."""
    async with opened(path) as store:
        await store.checkpoints.append([block(1)])
        away = path.with_name("away.db")
        path.rename(away)
        assert "the file was deleted or moved while in use; put it back" in await refusal(store, 2)
        with pytest.raises(StoreError, match="deleted or moved"):
            await positions(store)
        assert not path.exists()
        away.rename(path)
        await store.checkpoints.append([block(3)])
        assert await positions(store) == [1, 3]


async def test_author_code_that_moves_the_process_does_not_take_the_file_away(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-5: a relative path is one from where the store was made, whether it is open by then or not."""
    elsewhere = path.with_name("elsewhere")
    elsewhere.mkdir()
    monkeypatch.chdir(path.parent)
    store = SqliteStore(path.name)
    monkeypatch.chdir(elsewhere)
    await store.open()
    try:
        await store.checkpoints.append([block(1)])
        assert await positions(store) == [1]
        assert (await store.read_schema_state()).found > 0
        assert await store.check_integrity() == []
    finally:
        await store.close()
    assert path.exists()
    assert list(elsewhere.iterdir()) == []


async def test_a_relative_path_in_a_folder_that_is_gone_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And an absolute one is none the worse for it."""
    (path.parent / "gone").mkdir()
    monkeypatch.chdir(path.parent / "gone")
    (path.parent / "gone").rmdir()
    with pytest.raises(StoreError, match=r"tidemill.db: the working directory of this process is gone; name"):
        SqliteStore(path.name)
    assert SqliteStore(str(path)).title.endswith(str(path))


async def test_a_restored_backup_is_taken_up_once_the_old_log_is_gone(path: Path) -> None:
    """SQLite alone would read the old log into the restored file."""
    backup = path.with_name("backup.db")
    async with opened(path) as store:
        await store.checkpoints.append([block(1)])
    shutil.copy(path, backup)
    async with opened(path) as store:
        await store.checkpoints.append([block(2)])
        path.unlink()
        shutil.copy(backup, path)
        assert f"{path}-wal belongs to the old one; delete" in await refusal(store, 3)
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink()
        await store.checkpoints.append([block(4)])
        assert await positions(store) == [1, 4]
        assert await store.check_integrity() == []


async def test_an_empty_file_put_in_place_becomes_a_database(path: Path) -> None:
    """An operator can start over without a restart."""
    async with opened(path) as store:
        await store.checkpoints.append([block(1)])
        for one in path.parent.iterdir():
            one.unlink()
        path.touch()
        await store.checkpoints.append([block(2)])
        assert await positions(store) == [2]


@pytest.mark.parametrize("content", [b"tea for two, and two for tea\n" * 200, b"SQLite format 3\x00" + b"\xff" * 4080])
async def test_a_file_that_is_no_database_is_refused(path: Path, content: bytes) -> None:
    """And left as it is."""
    path.write_bytes(content)
    store = SqliteStore(str(path))
    for ask in (store.open, store.read_schema_state):
        with pytest.raises(StoreError, match=r"tidemill\.db: the file is (not a SQLite database|damaged)"):
            await ask()
    assert path.read_bytes() == content
    (problem,) = await store.check_integrity()
    assert "the file is" in problem


async def test_damage_inside_the_file_is_found(path: Path) -> None:
    """G-23: never silently empty."""
    async with opened(path) as store:
        await store.checkpoints.append([block(position, payload=bytes(500)) for position in range(100)])
        await store.checkpoints.save([part()])
    content = bytearray(path.read_bytes())
    content[-4096 * 8 :] = b"\xaa" * 4096 * 8  # the newest pages: some of the journal
    path.write_bytes(content)
    async with opened(path) as store:
        assert await store.check_integrity()
        with pytest.raises(StoreError, match="the file is damaged; restore it from a backup"):
            await store.checkpoints.read_all_blocks()


def missing_folder(folder: Path) -> Path:
    return folder / "missing" / "tidemill.db"


def a_folder(folder: Path) -> Path:
    return folder


@pytest.mark.parametrize(
    ("make_path", "sentence"), [(missing_folder, "missing does not exist; create it"), (a_folder, "this is a folder")]
)
async def test_a_path_that_cannot_hold_a_file_is_refused(
    tmp_path: Path, make_path: Callable[[Path], Path], sentence: str
) -> None:
    """Nothing is created on the way."""
    with pytest.raises(StoreError, match=sentence):
        await SqliteStore(str(make_path(tmp_path))).open()
    assert list(tmp_path.iterdir()) == []


async def test_looking_at_the_schema_creates_no_file(path: Path) -> None:
    """Neither the file nor a log beside one that is there."""
    store = SqliteStore(str(path))
    assert (await store.read_schema_state()).found == 0
    assert list(path.parent.iterdir()) == []
    async with opened(path):
        pass
    assert (await store.read_schema_state()).found > 0
    assert list(path.parent.iterdir()) == [path]


async def test_the_title_names_the_path_as_given() -> None:
    """An operator knows it again."""
    assert SqliteStore("data/tidemill.db").title == "SQLite database data/tidemill.db"


async def test_a_closed_store_leaves_no_thread_and_no_log(path: Path) -> None:
    """Everything is in the one file, which may be copied."""
    before = set(threading.enumerate())
    async with opened(path) as store:
        await store.checkpoints.append([block(1)])
        await positions(store)
        threads = set(threading.enumerate()) - before
    for thread in threads:
        thread.join(5)
    assert [thread.name for thread in threads if thread.is_alive()] == []
    assert len(threads) >= 2
    assert list(path.parent.iterdir()) == [path]


async def test_a_read_neither_waits_for_a_write_nor_sees_it_early(path: Path) -> None:
    """The transaction is open, its row written, and the reader sees the state before it."""
    database = FileDatabase(str(path))
    await database.open()
    written, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO pauses VALUES ('public', 'r')")
        loop.call_soon_threadsafe(written.set)
        may_end.wait(30)

    def pauses(connection: sqlite3.Connection) -> list[tuple[str, str]]:
        return connection.execute("SELECT * FROM pauses").fetchall()

    async with asyncio.TaskGroup() as group:
        group.create_task(database.transact([slow]), name="slow write")
        await written.wait()
        assert await database.read(pauses) == []
        may_end.set()
    assert await database.read(pauses) == [("public", "r")]
    await database.close()


async def test_a_file_of_another_application_is_refused_and_left_alone(tmp_path: Path) -> None:
    """F15: our tables never mix with those of another application, whatever their version says."""
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
        connection.execute("PRAGMA user_version = 1")
    before = path.read_bytes()
    store = SqliteStore(str(path))
    with pytest.raises(StoreError, match="tables of another application; name another file"):
        await store.open()
    with pytest.raises(StoreError, match="tables of another application"):
        await store.read_schema_state()
    assert path.read_bytes() == before
