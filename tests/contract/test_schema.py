"""Schemas: made on opening, once, and never by a version that does not know them."""

import asyncio
from importlib.resources import files
from pathlib import Path
from zlib import crc32

import pytest

from tests.contract.conftest import ContractDatabase, MemoryDatabase, SqliteFile
from tests.contract.package_samples import loaded, package, trusted
from tests.contract.run_samples import (
    after,
    creation,
    everything,
    fire_row,
    make,
    output_row,
    returned,
    run_of,
    run_row,
)
from tests.contract.samples import NOON, block, journal, key, letter, part, recovery
from tidemill.engine.graphs.durability.journal_blocks import JournalEntry, unpack_blocks
from tidemill.kernel.errors import StoreError
from tidemill.storage.graph_ports import JournalTrim
from tidemill.storage.sqlite.run_rows import to_micros
from tidemill.storage.store import Store
from tidemill.storage.tables.schedules import ScheduleCursor
from tidemill.storage.workflow_ports import Lease, NodeRow
from tidemill.workflows.change import Refused


async def test_an_open_store_is_up_to_date_and_undamaged(store: Store) -> None:
    found, known = await store.read_schema_state()
    assert found == known
    assert await store.check_integrity() == []


async def test_looking_at_the_schema_changes_nothing(database: ContractDatabase) -> None:
    """An empty database stays one until it is opened."""
    for _ in range(2):
        found, known = await database.store().read_schema_state()
        assert found == 0 < known


async def test_the_schema_can_be_read_after_the_end(database: ContractDatabase) -> None:
    store = database.store()
    await store.open()
    await store.close()
    found, known = await database.store().read_schema_state()
    assert found == known


async def test_a_newer_schema_is_refused(database: ContractDatabase) -> None:
    """An older Tidemill does not touch what it does not understand."""
    store = database.store()
    await store.open()
    await store.close()
    await database.pretend_version(99)
    late = database.store()
    with pytest.raises(StoreError, match=r"version 99, and this Tidemill knows versions up to \d+; run the newer"):
        await late.open()
    assert (await database.store().read_schema_state()).found == 99


async def test_the_version_counts_the_migrations(database: ContractDatabase) -> None:
    """A new migration also tests existing rows, as below."""
    folder = "sqlite" if isinstance(database, SqliteFile) else "postgres"
    migrations = files(f"tidemill.storage.{folder}") / "migrations"
    assert (await database.store().read_schema_state()).known == len(list(migrations.iterdir()))


async def test_schedules_of_version_2_are_armed(database: ContractDatabase) -> None:
    """P-3: they had their runs before there were packages; where they stand is kept."""
    table, last = ("schedules", to_micros(NOON)) if isinstance(database, SqliteFile) else ("tidemill.schedules", NOON)
    columns = "(tenant, workflow, key, rule, last, dropped)"
    await database.make_older(2, f"INSERT INTO {table} {columns} VALUES ('public', 'flow', 'daily', 'x', '{last}', 7);")
    store = database.store()
    _, known = await store.read_schema_state()
    with pytest.raises(
        StoreError, match=f"version 2, and this Tidemill needs version {known}; run `tidemill db upgrade`"
    ):
        await store.open_read_only()
    await store.open()
    assert (await store.read_schema_state()).found == known
    assert await store.schedules.get_cursor("public", "flow", "daily") == ScheduleCursor(
        tenant="public", workflow="flow", key="daily", rule="x", last=NOON, dropped=7, armed=True
    )
    assert await store.packages.publish(package(), b"archive", 0)
    assert await store.check_integrity() == []
    await store.close()


async def test_runs_of_version_4_are_numbered_by_age(database: ContractDatabase) -> None:
    """Queued runs of an older Tidemill begin in the order of their creation too; new ones come after them."""
    is_file = isinstance(database, SqliteFile)
    table = "runs" if is_file else "tidemill.runs"
    columns = "id, tenant, workflow, version, state, params, origin, created_at, reason, max_active, revision, clears"
    rows = [
        f"('{run}', 'public', 'flow', 'v1', 'queued', '', 'manual', '{to_micros(at) if is_file else at}', '', 1, 1, 0)"
        for run, at in [("r2", after(0)), ("r3", after(-5)), ("r1", after(0))]
    ]
    values = ", ".join(rows).replace("'', 'manual'", "x'', 'manual'" if is_file else "'', 'manual'")
    await database.make_older(4, f"INSERT INTO {table} ({columns}) VALUES {values};")
    store = database.store()
    await store.open()
    await make(store, creation(run_row("r0")))
    assert [(await run_of(store, run)).sequence for run in ("r3", "r1", "r2", "r0")] == [1, 2, 3, 4]
    assert await store.check_integrity() == []
    await store.close()


async def test_fires_of_version_5_still_count(database: ContractDatabase) -> None:
    """W-13: a slot that had its run before fires could be deduplicated gets no second one."""
    table, noon = ("fires", to_micros(NOON)) if isinstance(database, SqliteFile) else ("tidemill.fires", NOON)
    values = f"('public', 'flow', 'daily', 'r1', '{noon}', '{noon}')"
    await database.make_older(5, f"INSERT INTO {table} (tenant, workflow, key, run, at, slot) VALUES {values};")
    store = database.store()
    await store.open()
    again = creation(run_row("r2"), fire=fire_row("r2", slot=NOON, dedup="sensor"))
    assert await store.runs.apply(again) == Refused("fired")
    await make(store, creation(run_row("r2"), fire=fire_row("r2", key="other", slot=NOON, dedup="sensor")))
    await store.close()


async def test_journals_of_version_20_are_blocks_of_one_entry(database: ContractDatabase) -> None:
    """G-24: what an older Tidemill acknowledged is still there, intact, and is deleted by the same positions."""
    is_file = isinstance(database, SqliteFile)
    values = ", ".join(
        f"('public', 'a', {position}, {_bytes_literal(checksum, is_file)}, {_bytes_literal(b'event', is_file)})"
        for position in (3, 4)
        for checksum in [crc32(b"event", crc32(b"public/a") ^ position).to_bytes(4)]
    )
    table = "journal" if is_file else "tidemill.journal"
    columns = "(tenant, accumulator, position, checksum, payload)"
    await database.make_older(20, f"INSERT INTO {table} {columns} VALUES {values};")
    store = database.store()
    await store.open()
    await store.checkpoints.append([block(6)])
    *older, newest = await store.checkpoints.read_blocks([journal()])
    assert unpack_blocks(older) == [JournalEntry(journal(), position, b"event") for position in (3, 4)]
    assert newest == block(6)
    await store.checkpoints.save([part()], [JournalTrim(journal(), 3)])
    assert [one.position for one in await store.checkpoints.read_all_blocks()] == [4, 6]
    assert await store.check_integrity() == []
    await store.close()


def _bytes_literal(data: bytes, is_file: bool) -> str:
    return f"x'{data.hex()}'" if is_file else f"'\\x{data.hex()}'"


async def test_owners_of_version_8_are_nodes_of_programs(database: ContractDatabase) -> None:
    """W-12: their claims are still theirs; they last beat when they began."""
    table, noon = ("owners", to_micros(NOON)) if isinstance(database, SqliteFile) else ("tidemill.owners", NOON)
    values = f"('n1', 'h', 'b', 7, 'x', '{noon}')"
    await database.make_older(8, f"INSERT INTO {table} (id, host, boot, pid, started, at) VALUES {values};")
    store = database.store()
    await store.open()
    (beat,) = await store.owners.list_beats()
    assert beat.owner == NodeRow(id="n1", host="h", boot="b", pid=7, started="x", at=NOON, kind="embedded", name="n1")
    assert beat.at == NOON
    await store.close()


async def test_events_of_version_11_are_numbered_and_followed_by_new_ones(tmp_path: Path) -> None:
    """S-3: the history of an older Tidemill stays readable, and the live feed continues after it."""
    database, noon = SqliteFile(tmp_path / "tidemill.db"), to_micros(NOON)
    begun, ended = (f'[null, -1, 0, "queued", "{state}", ""]' for state in ("running", "success"))
    columns = "id, tenant, workflow, version, state, params, origin, created_at, reason, max_active, revision, clears"
    rest = f"'public', 'flow', 'v1', 'success', x'', 'manual', {noon}, '', 1, 1, 0"
    rows = f"""INSERT INTO runs ({columns}, sequence) VALUES ('r1', {rest}, 1), ('r2', {rest}, 2);
        INSERT INTO run_events (run, revision, at, actor, events) VALUES
        ('r2', 1, {noon + 1}, 'n', '[{begun}]'), ('r1', 1, {noon}, 'n', '[{begun}, {ended}]');"""
    await database.make_older(11, rows)
    store = database.store()
    await store.open()
    await make(store, creation(run_row("r3")))
    found = await store.runs.read_events_after(0, 10)
    assert [(one.number, one.event.run, one.event.after) for one in found] == [
        (1, "r1", "running"),
        (2, "r1", "success"),
        (3, "r2", "running"),
        (4, "r3", "running"),
    ]
    assert [row.after for row in await store.runs.read_events("r1")] == ["running", "success"]
    assert await store.check_integrity() == []
    await store.close()


async def test_stores_that_open_at_once_find_one_schema(database: ContractDatabase) -> None:
    """One migrates, the others wait and find it done; all of them work."""
    stores = [database.store() for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.checkpoints.append([block(number)]) for number, store in enumerate(stores)))
    for store in stores:
        assert [found.position for found in await store.checkpoints.read_blocks([journal()])] == [0, 1, 2, 3]
        await store.close()


async def test_what_was_written_is_there_after_the_end(database: ContractDatabase) -> None:
    """G-24."""
    await check_that_content_outlives(database)


async def test_memory_keeps_its_content_from_one_opening_to_the_next() -> None:
    """G-24: a test node that crashed hands its store to its successor."""
    await check_that_content_outlives(MemoryDatabase())


def test_memory_may_be_opened_on_another_loop() -> None:
    """Each run of a program under test has a loop of its own."""
    store = MemoryDatabase().store()

    async def run() -> list[tuple[str, str]]:
        await store.open()
        await store.pauses.set_paused("public", "r", paused=True)
        await store.close()
        return await store.pauses.list_paused()

    assert [asyncio.run(run()) for _ in range(2)] == [[("public", "r")]] * 2


async def check_that_content_outlives(database: ContractDatabase) -> None:
    """Write through every port, close, and read from a second store."""
    before = database.store()
    await before.open()
    await before.checkpoints.save([part()])
    await before.checkpoints.append([block(1)])
    await before.dead_letters.upsert([letter("01")])
    await before.recoveries.add([recovery("01")])
    await before.pauses.set_paused("public", "r", paused=True)
    await make(before, creation(**returned(output_row()), fire=fire_row(slot=NOON)))
    await before.leases.acquire("leader", "node-1", 60)
    await before.schedules.pause("public", "flow")
    await before.packages.publish(package(), b"archive", 0)
    await before.package_states.upsert([loaded()])
    await before.trusted_keys.add(trusted())
    kept = await everything(before, ["r1"])
    await before.close()
    after = database.store()
    await after.open()
    assert await after.checkpoints.read_parts([key()]) == [part()]
    assert await after.checkpoints.read_blocks([journal()]) == [block(1)]
    assert await after.dead_letters.list_all() == [letter("01")]
    assert await after.recoveries.list_newest("public", 1) == [recovery("01")]
    assert await after.pauses.is_paused("public", "r")
    assert await everything(after, ["r1"]) == kept
    assert await after.leases.current("leader") == Lease("node-1", 1)
    assert await after.schedules.list_paused_workflows() == {("public", "flow")}
    assert await after.packages.list_published() == [package(revision=1)]
    assert await after.package_states.list_all() == [loaded()]
    assert await after.trusted_keys.for_tenant("public") == [trusted()]
    await after.close()


async def test_the_size_of_a_store_counts_the_rows_that_grow(store: Store) -> None:
    """S-8: system (storage)."""
    await make(store, creation(run_row("r1"), **returned(output_row("r1"))))
    await make(store, creation(run_row("r2")))
    await store.dead_letters.upsert([letter("01")])
    size = await store.read_size()
    assert (size.size is None) is (store.kind == "memory")
    assert size.size is None or size.size > 10_000
    assert {what: rows.number for what, rows in size.rows.items() if rows.number} == {
        "runs": 2,
        "task runs": 2,
        "attempts": 1,
        "run events": 2,
        "dead letters": 1,
    }
    assert all(rows.is_exact for rows in size.rows.values())
