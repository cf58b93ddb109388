"""Lists of the workflow engine: activity of workflows, sources of versions, backfills, paused triggers, used pools."""

import pytest
from msgspec.structs import replace

from tests.contract.conftest import ContractDatabase, SqliteFile
from tests.contract.run_samples import after, creation, make, run_of, run_row, task_row
from tests.contract.samples import NOON, NOON_ELSEWHERE, ODD_NAMES
from tidemill.storage.run_lists import WorkflowActivity
from tidemill.storage.sqlite.run_rows import to_micros
from tidemill.storage.store import Store
from tidemill.storage.tables.backfills import Backfill
from tidemill.storage.tables.pools import PoolDemand
from tidemill.storage.tables.versions import WorkflowVersion
from tidemill.workflows.records import VersionKey
from tidemill.workflows.states import RunState, TaskState

BACKFILL = Backfill(
    id="b1", tenant="public", workflow="flow", limit=4, created_at=NOON, range_start=after(-9), range_end=NOON_ELSEWHERE
)
VERSION = WorkflowVersion(
    key=VersionKey("public", "flow", "v1"), spec=b"{}", seen_at=NOON, source="naïve = 1\n", tags=("etl", "desk")
)


async def test_the_activity_of_workflows_is_read_at_once(store: Store) -> None:
    """The active runs are counted, the newest runs are returned, without their params; of one tenant."""
    rows = [
        run_row("r1", workflow="w1", state=RunState.QUEUED, created_at=after(5)),
        run_row("r2", workflow="w1", state=RunState.RUNNING, created_at=after(9)),
        run_row("r3", workflow="w1", state=RunState.FAILED, created_at=after(7)),
        run_row("r4", workflow="w2", state=RunState.SUCCESS),
        run_row("r5", workflow="w2", state=RunState.RUNNING, tenant="other", created_at=after(99)),
        run_row("r6", workflow="w3"),
    ]
    for row in rows:
        await make(store, creation(row))
    assert await store.runs.read_activity("public", ["w1", "w2", "unknown"]) == {
        "w1": WorkflowActivity(2, [replace(await run_of(store, "r2"), params=b"")]),
        "w2": WorkflowActivity(0, [replace(await run_of(store, "r4"), params=b"")]),
        "unknown": WorkflowActivity(0, []),
    }
    recent = await store.runs.read_activity("public", ["w1", "w2"], recent=2)
    assert [row.id for row in recent["w1"].recent] == ["r2", "r3"]
    assert [row.id for row in recent["w2"].recent] == ["r4"]
    assert await store.runs.read_activity("public", []) == {}


async def test_the_source_of_a_version_is_kept_as_first_loaded(store: Store) -> None:
    """W-19: lists leave it out; a version that had none gets one."""
    await store.versions.upsert(VERSION)
    await store.versions.upsert(replace(VERSION, source="other"))
    assert await store.versions.get(VERSION.key) == VERSION
    assert await store.versions.for_tenant("public") == [replace(VERSION, source="")]
    bare = replace(VERSION, key=VersionKey("public", "flow", "v2"), source="")
    await store.versions.upsert(bare)
    await store.versions.upsert(replace(bare, source="late"))
    assert await store.versions.get(bare.key) == replace(bare, source="late")


async def test_backfills_are_listed_newest_first_in_pages(store: Store) -> None:
    for number in range(5):
        await store.backfills.upsert(replace(BACKFILL, id=f"b{number}"))
    await store.backfills.upsert(replace(BACKFILL, id="b9", tenant="other"))
    first = await store.backfills.list_page("public", limit=2)
    assert ([one.id for one in first.backfills], first.total) == (["b4", "b3"], 5)
    await store.backfills.upsert(replace(BACKFILL, id="b5"))
    rest = await store.backfills.list_page("public", after="b3", limit=9)
    assert ([one.id for one in rest.backfills], rest.total) == (["b2", "b1", "b0"], 6)
    assert (rest.backfills[0].range_start, rest.backfills[0].range_end) == (after(-9), NOON)
    assert await store.backfills.list_page("unknown") == ([], 0)


@pytest.mark.parametrize("name", ["trigger", *ODD_NAMES])
async def test_a_trigger_is_paused_until_it_is_resumed(store: Store, name: str) -> None:
    for _ in range(2):
        await store.schedules.pause_trigger("public", name)
    await store.schedules.pause_trigger("other", name)
    await store.schedules.resume_trigger("public", "unknown")
    assert await store.schedules.list_paused_triggers() == {("public", name), ("other", name)}
    assert await store.schedules.list_paused_workflows() == set()
    await store.schedules.resume_trigger("public", name)
    assert await store.schedules.list_paused_triggers() == {("other", name)}


async def test_the_use_of_pools_is_counted_by_tenant(store: Store) -> None:
    """W-17: queued and running task runs have a slot, scheduled ones wait."""
    states = [TaskState.QUEUED, TaskState.RUNNING, TaskState.SCHEDULED, TaskState.SUCCESS, TaskState.UP_FOR_RETRY]
    tasks = [task_row(f"a{number}", state, pool="gpu") for number, state in enumerate(states)]
    await make(store, creation(run_row("r1"), *tasks, task_row("b", pool="disk"), task_row("c")))
    await make(store, creation(run_row("r2", tenant="other"), task_row("a", pool="gpu")))
    assert await store.pools.read_demand("public") == {"gpu": PoolDemand(2, 1), "disk": PoolDemand(0, 1)}
    assert await store.pools.read_demand("other") == {"gpu": PoolDemand(0, 1)}
    assert await store.pools.read_demand("unknown") == {}


@pytest.mark.parametrize("state", TaskState)
async def test_a_pool_is_deleted_unless_a_task_run_needs_it(store: Store, state: TaskState) -> None:
    await store.pools.set_sizes({"gpu": 2, "disk": 1})
    await make(store, creation(run_row(), task_row("a", state, pool="gpu")))
    assert await store.pools.delete("gpu") == state.is_terminal
    assert await store.pools.delete("disk")
    assert await store.pools.delete("unknown")
    assert await store.pools.read_sizes() == ({} if state.is_terminal else {"gpu": 2})


async def test_a_version_of_schema_14_has_no_source(database: ContractDatabase) -> None:
    is_file = isinstance(database, SqliteFile)
    prefix, at, spec = ("", to_micros(NOON), "x'7b7d'") if is_file else ("tidemill.", NOON, "'{}'")
    columns = "tenant, workflow, version, spec, seen_at"
    rows = f"INSERT INTO {prefix}workflow_versions ({columns}) VALUES ('public', 'flow', 'v1', {spec}, '{at}');"
    await database.make_older(14, rows)
    store = database.store()
    await store.open()
    assert await store.versions.get(VERSION.key) == replace(VERSION, source="", tags=())
    assert await store.check_integrity() == []
    await store.close()


async def test_a_backfill_of_schema_14_has_no_range(database: ContractDatabase) -> None:
    prefix, at = ("", to_micros(NOON)) if isinstance(database, SqliteFile) else ("tidemill.", NOON)
    columns = "id, tenant, workflow, run_limit, created_at"
    rows = f"INSERT INTO {prefix}backfills ({columns}) VALUES ('b1', 'public', 'flow', 4, '{at}');"
    await database.make_older(14, rows)
    store = database.store()
    await store.open()
    assert await store.backfills.get("b1") == replace(BACKFILL, range_start=None, range_end=None)
    assert await store.check_integrity() == []
    await store.close()


async def test_the_states_of_the_runs_of_backfills_are_counted(store: Store) -> None:
    states = [RunState.SUCCESS, RunState.SUCCESS, RunState.RUNNING]
    for number, state in enumerate(states):
        await make(store, creation(run_row(f"r{number}", backfill="b1", state=state)))
    await make(store, creation(run_row("r7", backfill="b2")), creation(run_row("r8", backfill="b3")))
    await make(store, creation(run_row("r9")))
    assert await store.runs.count_backfill_states(["b1", "b2", "unknown"]) == {
        "b1": {RunState.SUCCESS: 2, RunState.RUNNING: 1},
        "b2": {RunState.RUNNING: 1},
    }
    assert await store.runs.count_backfill_states([]) == {}


async def test_the_tags_of_a_version_are_those_that_were_loaded_last(store: Store) -> None:
    """They are not part of the version: a change of the tags alone makes no new one."""
    await store.versions.upsert(VERSION)
    await store.versions.upsert(replace(VERSION, tags=("other",)))
    assert [one.tags for one in await store.versions.for_tenant("public")] == [("other",)]
