"""The small tables of the workflow engine: notes, versions, owners, logs, backfills, pools."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.contract.run_samples import after
from tests.contract.samples import NOON, NOON_ELSEWHERE, ODD_NAMES
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.storage.tables.backfills import Backfill
from tidemill.storage.tables.logs import LogChunk
from tidemill.storage.tables.schedules import ScheduleCursor
from tidemill.storage.tables.versions import LoadedVersion, WorkflowVersion
from tidemill.storage.workflow_ports import NodeRow, RunNote
from tidemill.testing.faults.stores import fail_next
from tidemill.workflows.records import AttemptKey, TaskKey, VersionKey

OWNER = NodeRow(id="n1", host="h", boot="b", pid=2**31, started="12345", at=NOON)
BACKFILL = Backfill(id="b1", tenant="public", workflow="flow", limit=4, created_at=NOON)
VERSION = WorkflowVersion(key=VersionKey("public", "flow", "v1"), spec=b'{"name": "\xc3\xa9"}', seen_at=NOON)


def chunk(number: int = 0, *, attempt: int = 1, run: str = "r1", element: int = -1, payload: bytes = b"") -> LogChunk:
    """Return some of an attempt's log."""
    return LogChunk(key=AttemptKey(run, "a", element, attempt), number=number, payload=payload)


# -- notes


async def test_a_run_and_each_of_its_tasks_has_one_note(store: Store) -> None:
    """A run's own first, then by task."""
    for task in ["b", None, *ODD_NAMES]:
        await store.notes.upsert(RunNote("r1", task, f"first {task}", NOON))
        await store.notes.upsert(RunNote("r1", task, f"naïve 🌊 {task}", after(1)))
    await store.notes.upsert(RunNote("r2", None, "other", NOON))
    expected = [None, *sorted([*ODD_NAMES, "b"])]
    assert await store.notes.for_run("r1") == [RunNote("r1", task, f"naïve 🌊 {task}", after(1)) for task in expected]


async def test_an_empty_note_is_none(store: Store) -> None:
    for task in (None, "", "a"):
        await store.notes.upsert(RunNote("r1", task, "text", NOON))
    await store.notes.upsert(RunNote("r1", None, "", NOON))
    assert [note.task for note in await store.notes.for_run("r1")] == ["", "a"]
    await store.notes.upsert(RunNote("r1", "a", "", NOON))
    await store.notes.upsert(RunNote("r1", "never", "", NOON))
    assert [note.task for note in await store.notes.for_run("r1")] == [""]


async def test_a_note_of_another_zone_is_of_the_same_instant(store: Store) -> None:
    await store.notes.upsert(RunNote("r1", None, "text", NOON_ELSEWHERE))
    (note,) = await store.notes.for_run("r1")
    assert (note.at, note.at.utcoffset()) == (NOON, NOON.utcoffset())


# -- versions


async def test_a_version_stays_as_it_was_first_seen(store: Store) -> None:
    """W-19: but for when it was last seen, which never goes back."""
    assert await store.versions.get(VERSION.key) is None
    await store.versions.upsert(VERSION)
    await store.versions.upsert(replace(VERSION, spec=b"other", seen_at=after(9)))
    await store.versions.upsert(replace(VERSION, seen_at=after(5)))
    assert await store.versions.get(VERSION.key) == replace(VERSION, seen_at=after(9))


@pytest.mark.parametrize("field", ["tenant", "workflow", "version"])
async def test_versions_do_not_know_of_one_another(store: Store, field: str) -> None:
    await store.versions.upsert(VERSION)
    other = replace(VERSION, key=VERSION.key._replace(**{field: "x"}), spec=b"x")
    assert await store.versions.get(other.key) is None
    await store.versions.upsert(other)
    assert (await store.versions.get(VERSION.key), await store.versions.get(other.key)) == (VERSION, other)


async def test_versions_are_found_by_tenant(store: Store) -> None:
    """By workflow, the one that was seen last at the end."""
    keys = [("flow", "v2", 0), ("flow", "v1", 5), ("other", "v1", 0), ("a", "v9", 9)]
    rows = [
        WorkflowVersion(key=VersionKey("public", name, version), spec=b"{}", seen_at=after(at))
        for name, version, at in keys
    ]
    for row in [*reversed(rows), replace(VERSION, key=VersionKey("elsewhere", "flow", "v3"))]:
        await store.versions.upsert(row)
    assert await store.versions.for_tenant("public") == [rows[3], rows[0], rows[1], rows[2]]
    seen = replace(rows[0], seen_at=after(6))
    await store.versions.upsert(seen)
    assert await store.versions.for_tenant("public") == [rows[3], rows[1], seen, rows[2]]
    assert await store.versions.for_tenant("unknown") == []


async def test_a_node_has_one_current_version_of_a_workflow(store: Store) -> None:
    """W-19: versions that it loaded before are kept for their runs, until it discards them."""
    first, second = VERSION.key, VERSION.key._replace(version="v2")
    other = VERSION.key._replace(workflow="other")
    await store.versions.upsert(VERSION)
    assert await store.versions.list_loaded() == []
    for key, owner in [(first, "n1"), (second, "n1"), (other, "n1"), (first, "n2")]:
        await store.versions.upsert(replace(VERSION, key=key), owner)
    assert await store.versions.list_loaded() == [
        LoadedVersion("n1", first, False),
        LoadedVersion("n1", second, True),
        LoadedVersion("n1", other, True),
        LoadedVersion("n2", first, True),
    ]
    await store.versions.upsert(replace(VERSION, key=first), "n1")
    await store.versions.retire("n2", *first[:2])
    await store.versions.unload("n1", [second, VERSION.key._replace(version="unknown")])
    assert await store.versions.list_loaded() == [
        LoadedVersion("n1", first, True),
        LoadedVersion("n1", other, True),
        LoadedVersion("n2", first, False),
    ]


async def test_what_a_node_has_loaded_ends_with_it(store: Store) -> None:
    for owner in ("n1", "n2"):
        await store.versions.upsert(VERSION, owner)
    await store.owners.delete(["n1", "unknown"])
    assert await store.versions.list_loaded() == [LoadedVersion("n2", VERSION.key, True)]


# -- owners


async def test_owners_are_listed_oldest_first_and_forgotten(store: Store) -> None:
    """W-12."""
    owners = [replace(OWNER, id=f"n{number}", at=after(-number), pid=number) for number in range(4)]
    for owner in owners:
        await store.owners.upsert(owner)
    assert await store.owners.list_all() == owners[::-1]
    await store.owners.delete(["n1", "n3", "unknown"])
    await store.owners.delete([])
    assert await store.owners.list_all() == [owners[2], owners[0]]


async def test_an_owner_is_written_over(store: Store) -> None:
    await store.owners.upsert(OWNER)
    other = replace(OWNER, host="h2", boot="b2", pid=7, started="x", at=after(5))
    worker = replace(other, kind="worker", name="naïve 🌊", labels=("eu", "gpu"), concurrency=8)
    await store.owners.upsert(worker)
    assert await store.owners.list_all() == [worker]


async def test_an_owner_beats_whenever_it_is_written(store: Store, clock: VirtualClock) -> None:
    """W-11: by the store's clock, as leases do; the clock of its host may be another."""
    await store.owners.upsert(OWNER)
    await store.owners.upsert(replace(OWNER, id="n2"))
    begun = clock.now()
    clock.advance_to(clock.monotonic() + 40)
    await store.owners.upsert(OWNER)
    clock.advance_to(clock.monotonic() + 5)
    first, second = await store.owners.list_beats()
    assert (first.owner, first.at, first.age) == (OWNER, begun + timedelta(seconds=40), 5)
    assert (second.owner.id, second.at, second.age) == ("n2", begun, 45)


# -- logs


async def test_chunks_are_read_in_order(store: Store) -> None:
    """W-16: over all attempts of a task run."""
    chunks = [chunk(number, attempt=attempt, payload=b"\x00\xff") for attempt in (1, 2, 10) for number in range(3)]
    await store.logs.append(chunks[::-1])
    await store.logs.append([chunk(run="r2"), chunk(element=0)])
    key = TaskKey("r1", "a")
    assert await store.logs.read(key) == chunks
    assert await store.logs.read(key, limit=2) == chunks[:2]
    assert await store.logs.read(key, after=(1, 1), limit=3) == chunks[2:5]
    assert await store.logs.read(key, after=(10, 2)) == []
    assert await store.logs.read(TaskKey("r1", "a", 0)) == [chunk(element=0)]


async def test_the_same_number_again_changes_nothing(store: Store) -> None:
    await store.logs.append([chunk(payload=b"first")])
    await store.logs.append([chunk(payload=b"second"), chunk(1)])
    assert [one.payload for one in await store.logs.read(TaskKey("r1", "a"))] == [b"first", b""]
    await store.logs.append([])


async def test_logs_of_many_are_all_kept(store: Store) -> None:
    await asyncio.gather(*(store.logs.append([chunk(number)]) for number in range(300)))
    assert len(await store.logs.read(TaskKey("r1", "a"), limit=1000)) == 300


# -- backfills


async def test_a_backfill_is_written_over(store: Store) -> None:
    """W-15."""
    assert await store.backfills.get("b1") is None
    await store.backfills.upsert(replace(BACKFILL, id="b2"))
    for one in (BACKFILL, replace(BACKFILL, limit=1, cancelled_at=after(3)), BACKFILL):
        await store.backfills.upsert(one)
        assert await store.backfills.get("b1") == one


# -- all of them


async def test_a_time_without_a_zone_is_the_callers_mistake(store: Store) -> None:
    """Nothing of it is stored: each database would read it as another time."""
    naive = NOON.replace(tzinfo=None)
    cursor = ScheduleCursor(tenant="public", workflow="flow", key="daily", rule="x", last=naive)
    writes = [
        lambda: store.notes.upsert(RunNote("r1", None, "text", naive)),
        lambda: store.versions.upsert(replace(VERSION, seen_at=naive)),
        lambda: store.owners.upsert(replace(OWNER, at=naive)),
        lambda: store.schedules.advance_cursor(cursor),
        lambda: store.backfills.upsert(replace(BACKFILL, created_at=naive)),
        lambda: store.backfills.upsert(replace(BACKFILL, cancelled_at=naive)),
    ]
    for write in writes:
        with pytest.raises(ValueError, match="without a zone"):
            await write()
    assert (await store.notes.for_run("r1"), await store.versions.get(VERSION.key)) == ([], None)
    assert (await store.owners.list_all(), await store.backfills.get("b1")) == ([], None)
    assert await store.schedules.get_cursor("public", "flow", "daily") is None


async def test_a_failed_write_changes_nothing(store: Store) -> None:
    writes = [
        lambda: store.notes.upsert(RunNote("r1", None, "text", NOON)),
        lambda: store.versions.upsert(VERSION),
        lambda: store.owners.upsert(OWNER),
        lambda: store.logs.append([chunk()]),
        lambda: store.backfills.upsert(BACKFILL),
        lambda: store.schedules.pause("public", "flow"),
    ]
    for write in writes:
        fail_next(store, 1)
        with pytest.raises(StoreError, match="on purpose"):
            await write()
    assert (await store.notes.for_run("r1"), await store.versions.get(VERSION.key)) == ([], None)
    assert (await store.owners.list_all(), await store.logs.read(TaskKey("r1", "a"))) == ([], [])
    assert (await store.backfills.get("b1"), await store.schedules.list_paused_workflows()) == (None, set())


async def test_listening_does_not_wait(store: Store) -> None:
    """A notification is a hint: some stores never send one."""
    async with asyncio.timeout(10):
        await store.listen(lambda: None)
        await store.listen(lambda: None, topic="packages")


async def test_pools_have_the_size_that_was_set_last(store: Store) -> None:
    """The previous sizes of those that changed are returned."""
    assert await store.pools.read_sizes() == {}
    assert await store.pools.set_sizes({"gpu": 2, "disk": 1}) == {}
    assert await store.pools.set_sizes({"gpu": 3, "disk": 1, **dict.fromkeys(ODD_NAMES, 2**31)}) == {"gpu": 2}
    assert await store.pools.set_sizes({}) == {}
    assert await store.pools.read_sizes() == {"gpu": 3, "disk": 1, **dict.fromkeys(ODD_NAMES, 2**31)}


async def test_pools_can_be_set_concurrently(store: Store) -> None:
    sizes = [{"a": number, "b": number} for number in range(1, 21)]
    await asyncio.gather(*(store.pools.set_sizes(dict(reversed(one.items()))) for one in sizes))
    assert await store.pools.read_sizes() in sizes
