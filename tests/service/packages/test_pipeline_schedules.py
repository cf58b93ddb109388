"""P-3: schedule rows and install records through loads, reloads, unloads and crashes."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import tidemill as tm
from tests.service.whole_package import (
    START,
    Node,
    check_it_works,
    flow,
    module,
    rows,
    runs_of,
    scoring,
    traces,
    whole,
)
from tidemill.engine.registry import PackageState
from tidemill.kernel.errors import StoreError
from tidemill.packages.loading.reader import read_package
from tidemill.storage.tables.packages import LoadedPackage
from tidemill.storage.tables.schedules import ScheduleCursor, ScheduleKey
from tidemill.testing.faults.deploy_steps import DeployFaults

STEPS = range(1, 7)
OLDER = [("daily", "hourly"), ("older", "hourly"), ("older", "other")]
STATE = msgspec.json.encode(PackageState(schedules=tuple(OLDER)))
NEWER = [("daily", "hourly"), ("newer", "hourly"), ("newer", "other")]


def scheduled(*schedules: tm.Every, name: str = "daily") -> Any:
    """Return a package with nothing but a workflow on schedules."""
    return module("m", scoring("scoring", 1), flow(name, 1, [], list(schedules)))


async def turns(node: Node, seconds: float = 0.0) -> None:
    """Let time pass, and everybody have their turn, in the middle of something that the node waits for."""
    node.clock.advance_to(node.clock.monotonic() + seconds)
    for _ in range(200):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("catchup", "made_up"), [("none", 0), ("latest", 1), ("all", 3)])
async def test_no_slot_has_a_run_before_the_schedule_is_armed(store: str, catchup: Any, made_up: int) -> None:
    """P-3: armed as the last act of step 6; what fell due before that is made up for as the schedule wants it."""
    async with tm.testing.node(store, start=START) as node:
        schedules = node.probe.packages.store.schedules
        arm, found = schedules.arm, []

        async def late(keys: Any) -> None:
            assert node.registry.workflows() == ["daily"]
            found.append(await rows(node))
            await turns(node, 35)
            assert await runs_of(node, "schedule") == 0
            await arm(keys)

        schedules.arm = late
        await node.load(scheduled(tm.Every("10s", catchup=catchup, key="hourly")))
        assert [row.armed for row in found[0].values()] == [False]
        assert [row.armed for row in (await rows(node)).values()] == [True]
        await node.advance(0)
        assert await runs_of(node, "schedule") == made_up
        await node.advance("10s")
        assert await runs_of(node, "schedule") == made_up + 1


async def test_a_reload_keeps_rows_cursors_and_pauses(store: str) -> None:
    """P-3: nothing is missed, and nothing is made up for that is not due."""
    async with tm.testing.node(store, load=[whole(1).module], start=START) as node:
        await node.advance("90m")
        await node.pause("daily")
        before = await rows(node)
        assert {row.last for row in before.values()} != {START}
        await node.advance("10m")
        await node.load(whole(1).module)
        await node.settle()
        assert await rows(node) == before
        assert list(before) == OLDER
        await node.load(whole(2).module)
        await node.settle()
        after = await rows(node)
        assert list(after) == NEWER
        assert after["daily", "hourly"] == before["daily", "hourly"]
        assert after["newer", "other"].last == START + timedelta(minutes=100)
        assert await node.probe.packages.store.schedules.list_paused_workflows() == {("public", "daily")}
        assert await runs_of(node, "schedule") == 1
        await node.resume("daily")
        await node.advance("20m")
        assert await runs_of(node, "schedule") == 2


async def test_a_rule_that_changes_counts_from_then_on(store: str) -> None:
    """P-3, W-13: the row is the same one, and no slot of the newer rule that was before it is owed."""
    async with tm.testing.node(store, load=[scheduled(tm.Every("1h", key="hourly"))], start=START) as node:
        await node.advance("50m")
        await node.load(scheduled(tm.Every("20m", key="hourly", catchup="all")))
        await node.settle()
        row = (await rows(node))["daily", "hourly"]
        assert (row.rule, row.last, row.armed) == (str(tm.Every("20m")), START + timedelta(minutes=50), True)
        assert await runs_of(node, "schedule") == 0
        await node.advance("15m")
        assert await runs_of(node, "schedule") == 1


async def test_an_unload_deletes_the_row_and_not_its_fires(store: str) -> None:
    """P-3, W-12: loaded again, a schedule that looks back finds that its slots have had their runs."""
    package = scheduled(tm.Every("1h", key="hourly", start=START, catchup="all"))
    async with tm.testing.node(store, load=[package], start=START) as node:
        await node.advance("150m")
        assert await runs_of(node, "schedule") == 3
        await node.unload("m")
        assert await rows(node) == {}
        await node.load(package)
        await node.advance("1s")
        assert await runs_of(node, "schedule") == 3
        await node.advance("1h")
        assert await runs_of(node, "schedule") == 4


async def test_the_record_lists_everything_a_package_has(store: str) -> None:
    """P-3: so that unloading never needs the package again."""
    async with tm.testing.node(store, load=[whole().module], start=START) as node:
        [page] = await node.probe.packages.store.package_states.list_all()
        assert (page.tenant, page.name, page.phase) == ("public", "whole", "loaded")
        state = msgspec.json.decode(page.state, type=PackageState)
        assert state == node.registry.packages.find("public", "whole")
        assert state == PackageState(
            schedules=tuple(OLDER),
            triggers=("new_files", "older_files"),
            reactors=("market", "older"),
            triggerless=("scoring", "older_scoring"),
            graphs=("spread", "older_graph"),
            workflows=("daily", "older"),
            tasks=("daily.work", "daily.scored", "older.work", "older.scored"),
        )
        await node.unload("whole")
        assert await node.probe.packages.store.package_states.list_all() == []


# -- when the store does more than it says


async def test_rows_of_an_unconfirmed_insert_are_deleted(store: str) -> None:
    """P-2: an answer may be lost after the commit; what was there before stays."""
    older = ScheduleCursor(tenant="public", workflow="older", key="hourly", rule=str(tm.Every("1h")), last=START)
    async with tm.testing.node(store, start=START) as node:
        schedules = node.probe.packages.store.schedules
        await schedules.advance_cursor(older)
        insert = schedules.insert_missing

        async def lose_the_answer(cursors: Any) -> Any:
            await insert(cursors)
            raise StoreError("the connection was lost")

        schedules.insert_missing = lose_the_answer
        with pytest.raises(StoreError, match="the connection was lost"):
            await node.load(whole().module)
        assert await rows(node) == {("older", "hourly"): older}


async def test_a_version_is_recorded_only_if_it_was_loaded(store: str) -> None:
    """P-9: a load that failed at its last word does not keep the version before it from being loaded again."""
    async with tm.testing.node(store, start=START) as node:
        states = node.probe.packages.store.package_states
        put = states.upsert

        async def fail(pages: Any) -> None:
            if pages[0].phase == "loaded":
                raise StoreError("away")
            await put(pages)

        states.upsert = fail
        package = msgspec.structs.replace(read_package(whole().module), version="2.0.0", digest="2")
        with pytest.raises(StoreError, match="away"):
            await node.probe.packages.install(package)
        assert await node.probe.packages.store.packages.recorded_version("public", "whole") is None
        assert await states.list_all() == []
        assert await rows(node) == {}


async def test_a_row_does_not_come_back_while_the_scheduler_reads_it(store: str) -> None:
    """P-3: what is unloaded while the scheduler waits for the store's answer about it has no row afterwards."""
    async with tm.testing.node(store, start=START) as node:
        await node.load(scheduled(tm.Every("1h", key="hourly")))
        await node.settle()
        watching = node.probe.workflows.scheduler.due_work[0]
        watching._watched.clear()  # type: ignore[attr-defined]
        cursor, asked, answer = watching._store.schedules.get_cursor, asyncio.Event(), asyncio.Event()  # type: ignore[attr-defined]

        async def slow(*key: str) -> Any:
            asked.set()
            await answer.wait()
            return await cursor(*key)

        watching._store.schedules.get_cursor = slow  # type: ignore[attr-defined]
        async with asyncio.TaskGroup() as group:
            group.create_task(watching.sync())
            await asked.wait()
            watching._store.schedules.get_cursor = cursor  # type: ignore[attr-defined]
            await node.unload("m")
            answer.set()
        assert await rows(node) == {}


# -- crashes


async def stop_at(node: Node, step: int, act: Any) -> None:
    """Begin something, and return when it has taken so many steps; it never goes on."""
    faults, reached = DeployFaults(node), asyncio.Event()
    left = [step]

    async def between(*_: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            reached.set()
            await asyncio.Event().wait()

    faults.on_effect = between
    node.probe.packages.start(act)
    await asyncio.wait_for(reached.wait(), 5)


@pytest.mark.parametrize("step", STEPS)
async def test_a_crash_in_mid_load_leaves_nothing(store: str, step: int) -> None:
    """P-3: what was half loaded is unwound at the next start, and then the package loads."""
    package = whole()
    async with tm.testing.node(store, start=START) as node:
        clean = await traces(node)
        await stop_at(node, step, node.load(package.module))
        assert [page.phase for page in await node.probe.packages.store.package_states.list_all()] == ["loading"]
        node = await node.crash()
        if step < 6:
            assert await traces(node) == clean
        await node.load(package.module)
        assert await rows(node) == {key: row for key, row in (await rows(node)).items() if row.armed}
        await check_it_works(node, package, 1)
        await node.unload("whole")
        await node.settle()
        assert await traces(node) == clean


@pytest.mark.parametrize("step", [*STEPS, *range(7, 13)])
@pytest.mark.parametrize("then", ["older", "newer"])
async def test_a_crash_in_mid_reload_leaves_one_version(store: str, step: int, then: str) -> None:
    """P-3: whichever version is loaded at the next start has its rows and no others, and its cursor is kept."""
    older, newer = whole(1), whole(2)
    async with tm.testing.node(store, load=[older.module], start=START) as node:
        await node.advance("90m")
        cursor = (await rows(node))["daily", "hourly"]
        await stop_at(node, step, node.load(newer.module))
        node.loaded_packages["public", "whole"] = {"older": older, "newer": newer}[then].module
        node = await node.crash()
        await node.settle()
        found = await rows(node)
        assert list(found) == {"older": OLDER, "newer": NEWER}[then]
        assert found["daily", "hourly"] == cursor
        assert [page.phase for page in await node.probe.packages.store.package_states.list_all()] == ["loaded"]
        await check_it_works(node, *{"older": (older, 1), "newer": (newer, 2)}[then])


@pytest.mark.parametrize("step", STEPS)
async def test_a_crash_in_mid_unload_leaves_nothing(store: str, step: int) -> None:
    """P-3: it is unloaded at the next start, and a package that is wanted there is loaded anew."""
    package = whole()
    async with tm.testing.node(store, start=START) as node:
        clean = await traces(node)
        await node.load(package.module)
        await stop_at(node, step, node.unload("whole"))
        node.loaded_packages.clear()
        node = await node.crash()
        assert await traces(node) == clean
        await node.load(package.module)
        await check_it_works(node, package, 1)


# -- two nodes


async def test_nodes_that_fail_or_crash_leave_the_rows_of_others(sqlite: str) -> None:
    """P-3, P-5: one store, two nodes, the same package: who fails or dies in mid-load takes nothing away."""
    async with tm.testing.node(sqlite, start=START) as first, tm.testing.node(sqlite, start=START) as second:
        await stop_at(first, 5, first.load(whole(durability="none").module))
        await second.load(whole(durability="none").module)
        armed = await rows(second)
        assert all(row.armed for row in armed.values())
        first = await first.crash()
        assert await rows(second) == armed
        await second.unload("whole")
        faults = DeployFaults(first)

        async def load_there(_: str, title: str) -> None:
            if title == "graphs of reactors" and not second.registry.packages():
                await second.load(whole(durability="none").module)

        faults.on_effect = load_there
        faults.fail("apply", 6, "before")
        with pytest.raises(StoreError):
            await first.load(whole(durability="none").module)
        assert list(await rows(second)) == OLDER
        assert all(row.armed for row in (await rows(second)).values())


@pytest.mark.parametrize("act", ["recover_interrupted", "schedules_of_other_nodes"])
async def test_a_node_that_registers_during_recovery_is_not_taken_for_dead(sqlite: str, act: str) -> None:
    """P-3: its page is of a living node, although that was not there when the living were counted."""
    async with tm.testing.node(sqlite, start=START) as first, tm.testing.node(sqlite, start=START) as second:
        owners, states = first.probe.packages.store.owners, second.probe.packages.store.package_states
        list_owners, owner = owners.list_all, second.probe.workflows.owner.id
        dead = LoadedPackage(
            tenant="public", name="dead", owner="dead", phase="loaded", version="", digest="", state=STATE, at=START
        )
        late = msgspec.structs.replace(dead, name="late", owner=owner, phase="loading")
        await states.upsert([dead])  # without a record of another node, no node is counted

        async def without_the_second() -> Any:
            found = [one for one in await list_owners() if one.id != owner]
            await states.upsert([late])
            return found

        owners.list_all = without_the_second
        found = await getattr(first.probe.packages, act)()
        assert late in await states.list_all()
        assert act == "recover_interrupted" or found == {ScheduleKey("public", *key) for key in OLDER}


async def test_the_last_node_deletes_the_row(sqlite: str) -> None:
    """P-3: as long as another node has the schedule, its cursor is needed."""
    async with tm.testing.node(sqlite, start=START) as first, tm.testing.node(sqlite, start=START) as second:
        for node in (first, second):
            await node.load(whole(1, durability="none").module)
        before = await rows(first)
        await first.load(whole(2, durability="none").module)
        assert {key: row for key, row in (await rows(first)).items() if key in OLDER} == before
        await second.load(whole(2, durability="none").module)
        assert list(await rows(first)) == NEWER
        await first.unload("whole")
        assert list(await rows(first)) == NEWER
        await second.unload("whole")
        assert await rows(first) == {}


async def test_an_unload_keeps_the_rows_of_a_node_that_has_ended(sqlite: str) -> None:
    """P-3: that node continues with them when it comes back; the package that it then unloads has no rows."""
    package = whole(1, durability="none").module
    async with tm.testing.node(sqlite, start=START) as staying:
        async with tm.testing.node(sqlite, load=[package], start=START):
            await staying.load(package)
        before = await rows(staying)
        await staying.unload("whole")
        assert await rows(staying) == before
        async with tm.testing.node(sqlite, load=[package], clock=staying.clock) as back:
            assert await rows(back) == before
            await back.unload("whole")
            assert await rows(back) == {}


async def test_a_version_that_follows_a_restart_has_no_rows_of_the_one_before(sqlite: str) -> None:
    """P-3: a node that is stopped unloads nothing; the rows that its next life does not need go then."""
    async with tm.testing.node(sqlite, load=[whole(1).module], start=START) as node:
        await node.advance("90m")
        before = await rows(node)
    async with tm.testing.node(sqlite, load=[whole(2).module], clock=node.clock) as node:
        after = await rows(node)
        assert list(after) == NEWER
        assert after["daily", "hourly"].last == before["daily", "hourly"].last
        assert len(await node.probe.packages.store.package_states.list_all()) == 1


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("is_paused", [True, False])
async def test_a_failed_change_of_a_rule_leaves_the_cursor(store: str, moment: Any, is_paused: bool) -> None:
    """P-2, P-3: a reload that fails at its last step owes and drops no slot, although another rule was there."""
    package = scheduled(tm.Every("1h", key="hourly", catchup="all"))
    async with tm.testing.node(store, load=[package], start=START) as node:
        await node.advance("30m")
        if is_paused:
            await node.pause("daily")
        await node.advance("2h")
        before = await rows(node)
        faults = DeployFaults(node)
        faults.on_effect = lambda *_: turns(node)
        faults.fail("apply", 6, moment)
        with pytest.raises(StoreError):
            await node.load(scheduled(tm.Every("7m", key="hourly")))
        await node.settle()
        assert await rows(node) == before
        await node.resume("daily")
        await node.advance("1h")
        assert await runs_of(node, "schedule") == (1 if is_paused else 3)  # what fell due in a pause has none


@pytest.mark.parametrize("catchup", ["none", "latest", "all"])
async def test_a_slot_that_falls_due_during_a_reload_has_its_run(store: str, catchup: Any) -> None:
    """P-3, P-6: one run, whatever is made up for: a node has watched all the time."""

    def package() -> Any:
        return scheduled(tm.Every("1h", key="hourly", catchup=catchup))

    async with tm.testing.node(store, load=[package()], start=START) as node:
        await node.advance("50m")
        schedules = node.probe.packages.store.schedules
        arm = schedules.arm

        async def late(keys: Any) -> None:
            await turns(node, 900)
            await arm(keys)

        schedules.arm = late
        await node.load(package())
        await node.settle()
        assert await runs_of(node, "schedule") == 1
