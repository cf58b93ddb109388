"""How much runs at a time: places, pools, runs of a workflow; and who goes first."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate, states
from tests.service.workflows.faults import Neighbour, breaking, store_of
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.settings import Settings
from tidemill.script import ScriptNode
from tidemill.testing.probes.workflows import WorkflowProbe


def crowd(gate: Gate, count: int, **options: object) -> tm.Workflow:
    """Return a workflow with many mapped tasks that wait at a gate."""
    flow = tm.Workflow("crowd")

    @flow.task
    async def numbers() -> list[int]:
        return list(range(count))

    @flow.task(each=numbers, **options)
    async def work(numbers: int) -> int:
        await gate.pass_through(numbers)
        return numbers

    return flow


@pytest.mark.parametrize("concurrency", [1, 3, 8])
async def test_concurrency_is_never_exceeded(store: str | None, concurrency: int) -> None:
    """api.md, tm.Node(concurrency=); leoflow.md 20; cloacina.md 107: and it is used."""
    gate = Gate()
    async with tm.testing.node(store, load=[crowd(gate, 30)], concurrency=concurrency) as node:
        first, second = await node.start("crowd"), await node.start("crowd")
        await node.advance("3s")
        assert gate.inside == concurrency
        gate.is_open.set()
        await node.settle()
        assert (await first.state()).ok
        assert (await second.state()).ok
    assert gate.most == concurrency
    assert len(gate.entered) == 60


async def test_by_default_coroutines_have_more_slots_than_threads(store: str | None) -> None:
    """As many as runs of a workflow are active: 16 beside 8, each counted apart."""
    gate, blocked, threads = Gate(), threading.Event(), threading.Semaphore(0)
    plain = tm.Workflow("plain")

    @plain.task
    def numbers() -> list[int]:
        return list(range(20))

    @plain.task(each=numbers)
    def work(numbers: int) -> None:
        threads.release()
        blocked.wait(20)

    async with tm.testing.node(store, load=[crowd(gate, 30), plain]) as node:
        runs = [await node.start(name) for name in ("plain", "crowd")]
        await node.advance("3s")
        assert gate.inside == 16
        assert [threads.acquire(timeout=10) for _ in range(8)] == [True] * 8
        assert not threads.acquire(blocking=False)
        gate.is_open.set()
        blocked.set()
        await node.settle()
        assert [(await run.state()).ok for run in runs] == [True, True]


@pytest.mark.parametrize("coroutines", [4, 10, 16, 20])
async def test_a_plain_task_starts_beside_coroutines_at_once(store: str | None, coroutines: int) -> None:
    """W-6: slots that are reserved for coroutines are no threads."""
    gate, begun = Gate(), threading.Event()
    flow = tm.Workflow("mixed")
    for number in range(coroutines):
        flow.task(waiting(gate, number))

    @flow.task
    def plain() -> None:
        begun.set()

    first = tm.Workflow("first")
    first.task(link(0, is_async=True))
    async with tm.testing.node(store, load=[flow, first]) as node:
        await (await node.start("first")).wait()  # after it, a run starts without an additional tick
        run = await node.start("mixed")
        assert await asyncio.to_thread(begun.wait, 5)  # no time passes
        assert gate.inside == min(coroutines, 16)
        gate.is_open.set()
        await node.settle()
        assert (await run.state()).ok


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_run_continues_in_the_slot_that_it_has_freed(is_async: bool) -> None:
    """W-6: the end of a task and the claim of the next one are one change, although other runs wait for a slot."""
    flow = tm.Workflow("chain")
    for number in range(4):
        flow.task(after=[f"link{number - 1}"] if number else [])(link(number, is_async=is_async))
    async with tm.testing.node(load=[flow], concurrency=2) as node:
        store, changes = node.database.runs, list[str]()
        apply: Any = store.apply
        store.apply = lambda change, audit: changes.append(change.run) or apply(change, audit)  # type: ignore[misc]
        runs = [await node.start("chain") for _ in range(8)]
        await node.settle()
        assert [(await run.state()).ok for run in runs] == [True] * 8
    created, first_claim, ends = 1, 1, 4
    assert all(changes.count(run.id) <= created + first_claim + ends for run in runs), changes


def waiting(gate: Gate, number: int) -> Callable[[], Any]:
    """Return a task that waits at a gate."""

    async def wait() -> None:
        await gate.pass_through()

    wait.__name__ = wait.__qualname__ = f"wait{number}"
    return wait


def link(number: int, *, is_async: bool) -> Callable[[], Any]:
    """Return a task of a chain."""

    async def awaited() -> None:
        await asyncio.sleep(0)

    def plain() -> None:
        """Do nothing."""

    function: Any = awaited if is_async else plain
    function.__name__ = function.__qualname__ = f"link{number}"
    return function


@pytest.mark.parametrize("slots", [1, 2])
async def test_a_pool_is_never_exceeded(store: str | None, slots: int) -> None:
    """workflows.md, "Tasks", pools; leoflow.md 20: across runs and workflows, while there are places enough."""
    gate = Gate()
    flow = crowd(gate, 10, pool="narrow")
    other = tm.Workflow("other")

    @other.task(pool="narrow")
    async def work() -> None:
        await gate.pass_through("other")

    async with tm.testing.node(store, load=[flow, other], pools={"narrow": slots, "wide": 9}) as node:
        runs = [await node.start(name) for name in ("crowd", "other", "crowd", "other")]
        await node.advance("3s")
        assert gate.inside == slots
        gate.is_open.set()
        await node.settle()
        assert [str((await run.state()).state) for run in runs] == ["success"] * 4
    assert gate.most == slots
    assert len(gate.entered) == 22


async def test_a_full_pool_holds_no_other_task_up(store: str | None) -> None:
    """leoflow.md 20: tasks without a pool, or of another one, continue."""
    gate = Gate()
    flow = tm.Workflow("pools")

    @flow.task
    async def numbers() -> list[int]:
        return list(range(5))

    @flow.task(each=numbers, pool="narrow", priority=100)
    async def narrow(numbers: int) -> None:
        await gate.pass_through()

    @flow.task(pool="wide")
    async def wide() -> None: ...

    @flow.task(after=[wide])
    async def free() -> None: ...

    async with tm.testing.node(store, load=[flow], pools={"narrow": 1, "wide": 1}, concurrency=2) as node:
        run = await node.start("pools")
        await node.advance("2s")
        now = states(await run.state())
        assert (now["narrow"], now["wide"], now["free"]) == ("running", "success", "success")
        gate.is_open.set()
        await node.settle()
        assert (await run.state()).ok


async def test_failing_and_cancelled_tasks_give_their_places_back(store: str | None) -> None:
    """leoflow.md 20: a pool does not leak."""
    gate = Gate()
    flow = tm.Workflow("leaky")

    @flow.task(pool="narrow", timeout="10s")
    async def work(ctx: tm.Context) -> int:
        if ctx["how"] == "fail":
            raise ValueError("no")
        if ctx["how"] == "wait":
            await gate.pass_through()
        return 1

    async with tm.testing.node(store, load=[flow], pools={"narrow": 1}, concurrency=1) as node:
        await node.start("leaky", how="fail")
        await node.start("leaky", how="wait")  # until its time is over
        cancelled = await node.start("leaky", how="wait")
        await node.advance("12s")
        assert gate.inside == 1
        await cancelled.cancel()
        last = await node.start("leaky", how="return")
        await node.advance("2s")
        assert (await last.state()).ok
    assert gate.most == 1


async def test_the_highest_priority_goes_first(store: str | None) -> None:
    """workflows.md, "Tasks", priorities: among all ready tasks, of any run."""
    gate = Gate()
    flow = tm.Workflow("ranks")
    said: list[str] = []

    @flow.task
    async def block() -> None:
        await gate.pass_through()

    def add(name: str, priority: int) -> None:
        async def task() -> None:
            said.append(name)

        task.__name__ = name
        flow.task(priority=priority)(task)

    for name, priority in [("low", -5), ("high", 10), ("middle", 0), ("highest", 11)]:
        add(name, priority)
    async with tm.testing.node(store, load=[flow], concurrency=1) as node:
        hold = tm.Workflow("hold")

        @hold.task(priority=100)
        async def first() -> None:
            await gate.pass_through()

        await node.load(hold)
        await node.start("hold")
        await node.advance("1s")
        await node.start("ranks")
        await node.advance("1s")
        assert said == []
        gate.is_open.set()
        await node.settle()
    assert said == ["highest", "high", "middle", "low"]


async def test_the_highest_priority_has_the_first_place_of_a_pool(store: str | None) -> None:
    """The same: also if there is a place to run at for each of them, and they become ready together."""
    flow, said = tm.Workflow("ranks"), list[int]()

    def add(priority: int) -> None:
        async def task() -> None:
            said.append(priority)

        task.__name__ = f"task{priority}"
        flow.task(priority=priority, pool="narrow")(task)

    for priority in (0, 2, 5, 1, 4, 3):
        add(priority)
    async with tm.testing.node(store, load=[flow], pools={"narrow": 1}) as node:
        run = await node.start("ranks")
        await node.settle()
        assert (await run.state()).ok
    assert said == [5, 4, 3, 2, 1, 0]


async def test_priority_counts_across_runs(store: str | None) -> None:
    """workflows.md, "Tasks": an urgent task of a younger run passes those of older ones."""
    gate = Gate()
    slow, urgent = tm.Workflow("slow"), tm.Workflow("urgent")
    said: list[str] = []

    @slow.task
    async def wait() -> None:
        said.append("slow")
        await gate.pass_through()

    @urgent.task(priority=1)
    async def hurry() -> None:
        said.append("urgent")

    async with tm.testing.node(store, load=[slow, urgent], concurrency=1) as node:
        for _ in range(3):
            await node.start("slow")
        await node.advance("1s")
        await node.start("urgent")
        await node.advance("1s")
        gate.is_open.set()
        await node.settle()
    assert said == ["slow", "urgent", "slow", "slow"]


@pytest.mark.parametrize("limit", [1, 2])
async def test_max_active_runs_is_never_exceeded(store: str | None, limit: int) -> None:
    """api.md, max_active_runs; leoflow.md 20: the others are queued, and begin in order."""
    gate = Gate()
    flow = tm.Workflow("few", max_active_runs=limit)

    @flow.task
    async def work(ctx: tm.Context) -> None:
        await gate.pass_through(ctx["number"])

    async with tm.testing.node(store, load=[flow]) as node:
        runs = [await node.start("few", number=number) for number in range(5)]
        await node.advance("3s")
        found = [str((await run.state()).state) for run in runs]
        assert found == ["running"] * limit + ["queued"] * (5 - limit)
        assert (await runs[-1].state()).started_at is None
        gate.is_open.set()
        await node.settle()
        assert [str((await run.state()).state) for run in runs] == ["success"] * 5
    assert gate.most == limit
    assert gate.entered == list(range(5))


async def test_max_active_runs_after_a_crash(store: str | None) -> None:
    """leoflow.md 20: the limit is of what is stored."""
    gate = Gate()
    flow = tm.Workflow("one", max_active_runs=1)

    @flow.task
    async def work() -> None:
        await gate.pass_through()

    async with tm.testing.node(store, load=[flow]) as node:
        runs = [await node.start("one") for _ in range(3)]
        await node.advance("1s")
        node = await node.crash()
        await node.advance("2s")
        found = [str((await node.run_handle(run.id).state()).state) for run in runs]
        assert found == ["running", "queued", "queued"]
        assert gate.inside == 1
        gate.is_open.set()
        await node.settle()
        assert gate.most == 1
        assert all([(await node.run_handle(run.id).state()).ok for run in runs])


async def test_one_workflow_at_its_limit_does_not_hold_up_another(store: str | None) -> None:
    """W-5: each by itself."""
    gate = Gate()
    flow, other = tm.Workflow("full", max_active_runs=1), tm.Workflow("other", max_active_runs=1)

    @flow.task
    async def work() -> None:
        await gate.pass_through()

    @other.task
    async def free() -> None: ...

    async with tm.testing.node(store, load=[flow, other]) as node:
        for _ in range(3):
            await node.start("full")
        run = await node.start("other")
        await node.advance("1s")
        assert (await run.state()).ok
        gate.is_open.set()


def pool_sizes(node: tm.testing.TestNode) -> Mapping[str, int]:
    """Return the sizes of pools that a node knows."""
    return node.probe.workflows.pools


async def test_pools_hold_for_a_node_that_was_given_none(tmp_path: Path) -> None:
    """workflows.md, "Tasks", pools: they are kept in the store."""
    store, gate = f"sqlite:///{tmp_path}/tidemill.db", Gate()
    async with tm.testing.node(store, pools={"narrow": 2}):
        pass
    async with tm.testing.node(store, load=[crowd(gate, 10, pool="narrow")]) as node:
        run = await node.start("crowd")
        await node.advance("3s")
        assert gate.inside == 2
        gate.is_open.set()
        await node.settle()
        assert (await run.state()).ok
    assert gate.most == 2


async def test_the_newest_size_of_a_pool_holds_for_all_nodes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """workflows.md, "Tasks", pools: the leader follows at its next tick, and both log the change."""
    store, gate, clock = f"sqlite:///{tmp_path}/tidemill.db", Gate(), VirtualClock()
    flow = crowd(gate, 10, pool="narrow")
    async with Neighbour(store, load=[flow], pools={"narrow": 1}, clock=clock) as first:
        run = await first.start("crowd")
        await first.advance("2s")
        assert gate.inside == 1
        async with Neighbour(store, pools={"narrow": 3, "new": 1}, clock=clock) as second:
            await first.advance("2s")
            assert pool_sizes(first) == pool_sizes(second) == {"narrow": 3, "new": 1}
            assert gate.inside == 3
            gate.is_open.set()
            await first.settle()
            assert (await run.state()).ok
    resized = [(record.pool, record.before, record.slots) for record in caplog.records if record.msg == "pool.resized"]  # type: ignore[attr-defined]
    assert resized == [("narrow", 1, 3)] * 2


async def test_a_smaller_pool_is_not_exceeded_by_a_node_that_does_not_know_it_yet(tmp_path: Path) -> None:
    """workflows.md, "Tasks", pools: the store decides about each claim."""
    store, gate, clock = f"sqlite:///{tmp_path}/tidemill.db", Gate(), VirtualClock()
    async with Neighbour(store, load=[crowd(gate, 10, pool="narrow")], pools={"narrow": 5}, clock=clock) as first:
        await store_of(first).pools.set_sizes({"narrow": 2})
        run = await first.start("crowd")
        await first.advance("100ms")
        assert pool_sizes(first) == {"narrow": 5}
        assert gate.inside <= 2
        await first.advance("2s")
        assert gate.inside == 2
        gate.is_open.set()
        await first.advance("10s")
        assert (await run.state()).ok
    assert gate.most == 2


async def test_a_follower_uses_a_freed_slot_of_a_pool_at_once(tmp_path: Path) -> None:
    """workflows.md, "Tasks", pools: the slot is free once the report is written; no element waits for a tick."""
    store, gate, clock = f"sqlite:///{tmp_path}/tidemill.db", Gate(), VirtualClock()
    gate.is_open.set()
    flow = crowd(gate, 10, pool="narrow")
    async with (
        Neighbour(store, pools={"narrow": 1}, clock=clock) as leader,  # it has no code to run tasks with
        Neighbour(store, load=[flow], clock=clock) as follower,
    ):
        run = await follower.start("crowd")
        with breaking(store_of(follower).runs, "load", times=0) as loads:
            while not gate.entered:
                await leader.advance("1s")
                await follower.advance("1s")
            for _ in range(20):
                await follower.advance("0s")
            assert len(gate.entered) == 10
            assert len(loads) < 10  # the inputs of elements are read once
        await leader.advance("3s")
        assert (await run.state()).ok
    assert gate.most == 1


async def test_a_pool_that_another_node_has_added_is_known_at_load(tmp_path: Path) -> None:
    """api.md, "unknown pool": the store is asked before a workflow is refused."""
    store, clock = f"sqlite:///{tmp_path}/tidemill.db", VirtualClock()
    flow = crowd(Gate(), 1, pool="narrow")
    async with Neighbour(store, clock=clock) as first:
        with pytest.raises(tm.DefinitionError, match=r"no pool 'narrow'.*pools=.*--pool narrow=2"):
            await first.load(flow)
        async with Neighbour(store, pools={"narrow": 2}, clock=clock):
            await first.load(flow)


async def test_a_script_on_a_store_respects_its_pools(tmp_path: Path) -> None:
    """`tidemill run --store` beside `tidemill dev --pool`: pools that the store does not have stay unlimited."""
    store = f"sqlite:///{tmp_path}/tidemill.db"
    flow, inside, most = tm.Workflow("script"), 0, {"narrow": 0, "open": 0}

    @flow.task
    async def numbers() -> list[int]:
        return list(range(6))

    async def work(pool: str) -> None:
        nonlocal inside
        inside += 1
        most[pool] = max(most[pool], inside)
        await asyncio.sleep(0)
        inside -= 1

    @flow.task(each=numbers, pool="narrow")
    async def limited(numbers: int) -> None:
        await work("narrow")

    @flow.task(each=numbers, pool="open", after=[limited])
    async def unlimited(numbers: int) -> None:
        await work("open")

    often = Settings(tick_interval=0.05)  # each looks into the file so often for what the other has done
    async with (
        tm.Node(store, pools={"narrow": 2}, settings=often) as node,
        ScriptNode(flow, store, settings=often) as script,
    ):
        run = await script.start("script")
        assert (await run.wait(30)).ok
        assert await WorkflowProbe.of(node).store.pools.read_sizes() == {"narrow": 2}
    assert most == {"narrow": 2, "open": 6}


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"pools": {"narrow": 0}}, {"concurrency": "many"}])
async def test_limits_are_numbers(wrong: dict[str, object]) -> None:
    """api.md, errors: the author of the node must act."""
    with pytest.raises(tm.DefinitionError):
        tm.testing.node(**wrong)
