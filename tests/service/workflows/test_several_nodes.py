"""Two nodes on one file: what one does while the other looks away is noticed, and what it cannot do it gives back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from typing import Any

import pytest

import tidemill as tm
from tidemill.engine.workflows.leadership import OFFICE
from tidemill.kernel.errors import StoreError
from tidemill.workflows.change import Applied, Change, Refused
from tidemill.workflows.records import RunRecord
from tidemill.workflows.states import TaskState

SETTINGS = {"tick_interval": "20ms", "lease_ttl": "300ms"}
PATIENCE = 10.0  # seconds; without a heartbeat, attempts are given up after 90

Pair = tuple[tm.Node, tm.Node]


class Gates:
    """A task for each name, which notes that it runs and ends when it is let go."""

    def __init__(self, *names: str) -> None:
        self.began = {name: asyncio.Event() for name in names}
        self.opened = {name: asyncio.Event() for name in names}
        self.flow = tm.Workflow("flow")
        for name in names:
            self._add(name)

    def _add(self, name: str) -> None:
        async def task() -> str:
            self.began[name].set()
            await self.opened[name].wait()
            return name

        task.__name__ = task.__qualname__ = name
        self.flow.task(task)

    def open(self) -> None:
        """Let all go."""
        for gate in self.opened.values():
            gate.set()


@pytest.fixture
async def make_pair(sqlite: str) -> AsyncIterator[Callable[..., Awaitable[Pair]]]:
    """Make a leader with one place to run at, and a follower with some."""
    async with AsyncExitStack() as stack:

        async def make(flow: tm.Workflow, places: int = 1) -> Pair:
            leader = tm.Node(sqlite, load=[flow], concurrency=1, settings=SETTINGS)
            follower = tm.Node(sqlite, load=[flow], concurrency=places, settings=SETTINGS)
            return await stack.enter_async_context(leader), await stack.enter_async_context(follower)

        yield make


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not await is_so():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


async def test_what_another_node_reports_during_a_write_is_noticed(make_pair: Callable[..., Awaitable[Pair]]) -> None:
    """W-4: the leader writes the end of one task while a follower writes that of the other; what follows runs."""
    gates = Gates("a", "b")

    @gates.flow.task
    def both(a: str, b: str) -> str:
        return a + b

    leader, _ = await make_pair(gates.flow)
    run = await leader.start("flow")
    await asyncio.gather(*(began.wait() for began in gates.began.values()))
    runs = leader._run_store.runs
    desk = leader._workflows.desk
    assert desk is not None
    [mine] = [key.task for key in leader._workflows.crew.held]
    [other] = gates.opened.keys() - {mine}

    async def is_up_to_date() -> bool:
        [record] = await runs.load([run.id])
        return desk.board[run.id].run.revision == record.run.revision

    async def has_ended() -> bool:
        [record] = await runs.load([run.id])
        return any(row.task == other and row.state is TaskState.SUCCESS for row in record.tasks)

    await until(is_up_to_date)
    apply = runs.apply

    async def apply_after_the_other(change: Change) -> Applied | Refused:
        runs.apply = apply  # type: ignore[method-assign]
        gates.opened[other].set()
        await until(has_ended)
        return await apply(change)

    runs.apply = apply_after_the_other  # type: ignore[method-assign]
    gates.opened[mine].set()
    result = await run.wait(PATIENCE)
    assert (result.state, result.outputs["both"]) == ("success", "ab")


async def test_what_a_follower_claimed_and_cannot_begin_is_handed_back(
    make_pair: Callable[..., Awaitable[Pair]],
) -> None:
    """W-6, F10: the store fails between the claim and the beginning; nothing waits for a lease to run out."""
    gates = Gates("a", "b", "c", "d")
    leader, follower = await make_pair(gates.flow, places=3)
    runs = follower._run_store.runs
    load, claim = runs.load, runs.claim

    async def fail(ids: Collection[str]) -> list[RunRecord]:
        runs.load = load  # type: ignore[method-assign]
        raise StoreError("gone for a moment")

    async def claim_and_fail(wish: Any) -> Any:
        given = await claim(wish)
        if given:
            runs.load, runs.claim = fail, claim  # type: ignore[method-assign]
        return given

    runs.claim = claim_and_fail  # type: ignore[method-assign]
    run = await leader.start("flow")
    gates.open()
    result = await run.wait(PATIENCE)
    assert result.state == "success"
    assert "returned" in {row.outcome for row in await runs.attempts(run.id)}


async def test_a_run_that_is_started_where_the_office_was_lost_is_made_all_the_same(
    make_pair: Callable[..., Awaitable[Pair]],
) -> None:
    """W-8: the write of the old leader is refused and counted; whoever asked for the run is not troubled with it."""
    gates = Gates("a")
    gates.open()
    leader, _ = await make_pair(gates.flow)
    leases = leader._run_store.leases
    epoch = await leases.take(OFFICE, "somebody", 60.0, dead=[leader._workflows.owner.id])
    assert epoch is not None
    run = await leader.start("flow")
    assert (await run.state()).state == "queued"
    assert leader.metrics()["fenced_writes_total"] == 1
    await leases.release(OFFICE, epoch)
    assert (await run.wait(PATIENCE)).state == "success"
