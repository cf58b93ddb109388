"""Backups: all rows of a store in a file, as of one moment, and back; nothing else changes, whatever goes wrong."""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from tests.contract.access_samples import variable
from tests.contract.conftest import ContractDatabase, MemoryDatabase, PostgresDatabase, SqliteFile
from tests.contract.package_samples import package
from tests.contract.run_samples import creation, everything, make, output_row, returned, run_of, run_row
from tests.contract.samples import NOON, block, letter, part
from tests.postgres import PostgresServer
from tidemill.kernel.errors import OperationError, RequestError, StoreError
from tidemill.storage.backup import BackupFile, BackupManifest, restore_backup, write_backup
from tidemill.storage.store import Store

AWKWARD = 'tab\tline\nreturn\rback\\slash \\N \\x41 "quote" 名前 🌊'


async def back_up(database: ContractDatabase, path: Path) -> BackupManifest:
    """Back up a database to a file."""
    async with database.store().open_snapshot() as snapshot:
        return await write_backup(snapshot, path, NOON, lambda _: None)


async def restore(path: Path, database: ContractDatabase, *, replace: bool = False) -> None:
    """Restore a file to a database."""
    file, store = BackupFile(path), database.store()
    file.check_fits(store.kind, (await store.read_schema_state()).known)
    async with store.open_replacement(file.manifest.schema_version, replace=replace) as target:
        await restore_backup(file, target, lambda _: None)


@asynccontextmanager
async def opened(database: ContractDatabase) -> AsyncIterator[Store]:
    """Open a store on a database for a block."""
    store = database.store()
    await store.open()
    yield store
    await store.close()


async def fill(store: Store) -> None:
    """Write rows of many kinds."""
    await store.checkpoints.save([part(payload=bytes(range(256)))])
    await store.checkpoints.append([block(1), block(2)])
    await store.dead_letters.upsert([letter("01")])
    await store.packages.publish(package(), b"archive" * 100_000, 0)
    await store.variables.upsert(variable(value=AWKWARD))
    await make(store, creation(run_row("r1", reason=AWKWARD), **returned(output_row("r1", value=b"\\x\n"))))


@pytest.fixture
async def other(database: ContractDatabase, tmp_path: Path, request: pytest.FixtureRequest) -> ContractDatabase:
    """A second, empty database of the same kind."""
    if isinstance(database, SqliteFile):
        return SqliteFile(tmp_path / "other.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return PostgresDatabase(server, await server.fresh_database())


async def test_a_backup_is_made_while_others_write_and_holds_one_moment(
    database: ContractDatabase, other: ContractDatabase, tmp_path: Path
) -> None:
    async with opened(database) as store:
        await fill(store)
        kept = await everything(store, ["r1"])
        async with database.store().open_snapshot() as snapshot:
            await make(store, creation(run_row("r2")))
            manifest = await write_backup(snapshot, tmp_path / "backup.zip", NOON, lambda _: None)
    assert (tmp_path / "backup.zip").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.glob("backup*")] == ["backup.zip"]
    assert {one.name: one.rows for one in manifest.tables}["runs"] == 1
    await restore(tmp_path / "backup.zip", other)
    async with opened(other) as restored:
        assert await everything(restored, ["r1"]) == kept
        assert (await run_of(restored, "r1")).reason == AWKWARD
        assert await restored.runs.find_run("r2") is None
        assert await restored.checkpoints.read_all_parts() == [part(payload=bytes(range(256)))]
        assert await restored.checkpoints.read_all_blocks() == [block(1), block(2)]
        assert await restored.packages.read_archive("public", "market", package().digest) == b"archive" * 100_000
        assert await restored.variables.get("acme", "region") == variable(value=AWKWARD)
        await make(restored, creation(run_row("r3")))
        assert (await run_of(restored, "r3")).sequence == (await run_of(restored, "r1")).sequence + 1
        assert await restored.check_integrity() == []
    assert (await other.store().read_schema_state()).found == manifest.schema_version


async def test_a_backup_of_an_older_schema_is_upgraded(
    database: ContractDatabase, other: ContractDatabase, tmp_path: Path
) -> None:
    """It is read before the upgrade of the store that it comes from, and restored by a newer Tidemill."""
    table = "pools" if isinstance(database, SqliteFile) else "tidemill.pools"
    await database.make_older(12, f"INSERT INTO {table} (name, slots) VALUES ('gpu', 3);")
    assert (await back_up(database, tmp_path / "old.zip")).schema_version == 12
    await restore(tmp_path / "old.zip", other)
    found, known = await other.store().read_schema_state()
    assert found == known > 12
    async with opened(other) as restored:
        assert await restored.pools.read_sizes() == {"gpu": 3}


async def test_a_store_with_rows_is_replaced_only_on_demand(database: ContractDatabase, tmp_path: Path) -> None:
    async with opened(database) as store:
        await fill(store)
    await back_up(database, tmp_path / "backup.zip")
    async with opened(database) as store:
        await make(store, creation(run_row("r2")))
    with pytest.raises(RequestError, match=r"is not empty .* add --replace, which deletes what it holds"):
        await restore(tmp_path / "backup.zip", database)
    async with opened(database) as store:
        assert await store.runs.find_run("r2") is not None
    await restore(tmp_path / "backup.zip", database, replace=True)
    async with opened(database) as store:
        assert await store.runs.find_run("r2") is None
        assert await store.runs.find_run("r1") is not None


async def test_a_store_in_use_is_never_replaced(database: ContractDatabase, tmp_path: Path) -> None:
    async with opened(database) as store:
        await fill(store)
        await back_up(database, tmp_path / "backup.zip")
        with pytest.raises(StoreError, match=r"open.*stop servers, workers and programs on it first"):
            await restore(tmp_path / "backup.zip", database, replace=True)
        assert await store.runs.find_run("r1") is not None


async def test_a_damaged_backup_restores_nothing(
    database: ContractDatabase, other: ContractDatabase, tmp_path: Path
) -> None:
    """A row that differs, and a file that was cut short."""
    async with opened(database) as store:
        await fill(store)
    await back_up(database, tmp_path / "backup.zip")
    whole = (tmp_path / "backup.zip").read_bytes()
    with ZipFile(tmp_path / "backup.zip") as file, ZipFile(tmp_path / "changed.zip", "w", ZIP_DEFLATED) as changed:
        for name in file.namelist():
            data = file.read(name)
            changed.writestr(name, data.replace(b"running", b"success") if name == "tables/runs.tsv" else data)
    (tmp_path / "short.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match=r"has not stored table runs as .* nothing was restored"):
        await restore(tmp_path / "changed.zip", other)
    with pytest.raises(RequestError, match="is not a whole backup of Tidemill"):
        await restore(tmp_path / "short.zip", other)
    assert (await other.store().read_schema_state()).found == 0


async def test_a_backup_of_another_kind_or_a_newer_version_is_refused(
    database: ContractDatabase, other: ContractDatabase, tmp_path: Path
) -> None:
    async with opened(database):
        pass
    await back_up(database, tmp_path / "backup.zip")
    for changed, message in [
        ({"database": "memory"}, "is a backup of a memory store, and cannot be restored"),
        ({"schema_version": 99, "product_version": "9.1"}, r"schema version 99, .* restore it with Tidemill 9.1"),
        ({"format": 2}, "has format 2, and this Tidemill knows 1"),
        ({"tables": []}, "has other tables than schema version"),
    ]:
        shutil.copy(tmp_path / "backup.zip", tmp_path / "other.zip")
        with ZipFile(tmp_path / "backup.zip") as file, ZipFile(tmp_path / "other.zip", "w") as written:
            written.writestr("manifest.json", json.dumps(json.loads(file.read("manifest.json")) | changed))
        with pytest.raises((RequestError, StoreError), match=message):
            await restore(tmp_path / "other.zip", other)
    with pytest.raises(RequestError, match="already a file"):
        await back_up(database, tmp_path / "backup.zip")
    with pytest.raises(OperationError, match="no backups"):
        await back_up(MemoryDatabase(), tmp_path / "memory.zip")


async def test_an_ordinary_role_reads_and_restores_every_row(postgres: PostgresServer, tmp_path: Path) -> None:
    """S-6: rows are protected from the owner of the tables too, and again after a restore."""
    url = await postgres.fresh_database()
    name = url.rpartition("/")[2]
    if not await postgres.execute("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'keeper')"):
        await postgres.execute("CREATE ROLE keeper LOGIN")
    await postgres.execute(f"GRANT CREATE ON DATABASE {name} TO keeper", name)
    database = PostgresDatabase(postgres, url.replace("postgres@", "keeper@"))
    async with opened(database) as store:
        await fill(store)
        await make(store, creation(run_row("r2", tenant="acme")))
    protected = "SELECT count(*) FROM pg_class WHERE relforcerowsecurity"
    before = await postgres.execute(protected, name)
    assert {one.name: one.rows for one in (await back_up(database, tmp_path / "b.zip")).tables}["runs"] == 2
    await restore(tmp_path / "b.zip", database, replace=True)
    assert await postgres.execute(protected, name) == before > 20
    await postgres.execute("CREATE POLICY own_rows ON tidemill.runs AS RESTRICTIVE USING (tenant = 'acme')", name)
    with pytest.raises(StoreError, match=r"policy own_rows may hide rows of table runs.*role of the servers"):
        await back_up(database, tmp_path / "c.zip")
    await postgres.execute("DROP POLICY own_rows ON tidemill.runs", name)
    await postgres.execute("REVOKE SELECT ON tidemill.logs FROM keeper", name)
    with pytest.raises(StoreError, match="table logs may not be read"):
        await back_up(database, tmp_path / "c.zip")
    assert not (tmp_path / "c.zip").exists()
