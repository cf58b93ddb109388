"""Two nodes on one file: what one does while the other looks away is noticed, and what it cannot do it gives back."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from tests.service.workflows.pairs import PATIENCE, Gates, Pair, until
from tidemill.engine.workflows.leader.election import LEASE_NAME
from tidemill.kernel.errors import StoreError
from tidemill.storage.committer import CommitFuture
from tidemill.testing.probes.workflows import WorkflowProbe
from tidemill.workflows.change import Applied, Change, Refused
from tidemill.workflows.records import RunRecord
from tidemill.workflows.states import TaskState


async def test_what_another_node_reports_during_a_write_is_noticed(make_pair: Callable[..., Awaitable[Pair]]) -> None:
    """W-4: the leader writes the end of one task while a follower writes that of the other; what follows runs."""
    gates = Gates("a", "b")

    @gates.flow.task
    def both(a: str, b: str) -> str:
        return a + b

    leader, _ = await make_pair(gates.flow)
    run = await leader.start("flow")
    await asyncio.gather(*(began.wait() for began in gates.began.values()))
    runs = WorkflowProbe.of(leader).store.runs
    coordinator = WorkflowProbe.of(leader).coordinator
    [mine] = [key.task for key in WorkflowProbe.of(leader).attempts.claimed]
    [other] = gates.opened.keys() - {mine}

    async def is_up_to_date() -> bool:
        [record] = await runs.load([run.id])
        return coordinator.active_runs[run.id].run.revision == record.run.revision

    async def has_ended() -> bool:
        [record] = await runs.load([run.id])
        return any(row.task == other and row.state is TaskState.SUCCESS for row in record.tasks)

    await until(is_up_to_date)
    apply = runs.apply

    async def apply_after_the_other(change: Change, answer: CommitFuture[Applied | Refused]) -> None:
        runs.apply = apply
        gates.opened[other].set()
        await until(has_ended)
        answer.set_value(await apply(change))

    def apply_later(change: Change, _: None) -> CommitFuture[Applied | Refused]:
        answer: CommitFuture[Applied | Refused] = CommitFuture()
        WorkflowProbe.of(leader).engine.runtime.tasks.start("apply later", apply_after_the_other(change, answer))
        return answer

    runs.apply = apply_later
    gates.opened[mine].set()
    result = await run.wait(PATIENCE)
    assert (result.state, result.outputs["both"]) == ("success", "ab")


async def test_what_a_follower_claimed_and_cannot_begin_is_handed_back(
    make_pair: Callable[..., Awaitable[Pair]],
) -> None:
    """W-6, F10: the store fails between the claim and the beginning; nothing waits for a lease to run out."""
    gates = Gates("a", "b", "c", "d")
    leader, follower = await make_pair(gates.flow, places=3)
    runs = WorkflowProbe.of(follower).store.runs
    load, claim, has_claimed = runs.load, runs.claim, asyncio.Event()

    async def fail(ids: Collection[str]) -> list[RunRecord]:
        runs.load = load
        raise StoreError("gone for a moment")

    async def claim_and_fail(wish: Any) -> Any:
        given = await claim(wish)
        if given:
            runs.load, runs.claim = fail, claim
            has_claimed.set()
        return given

    runs.claim = claim_and_fail
    run = await leader.start("flow")
    async with asyncio.timeout(PATIENCE):
        await has_claimed.wait()
    gates.open()
    result = await run.wait(PATIENCE)
    assert result.state == "success"
    assert "returned" in {row.outcome for row in await runs.read_attempts(run.id)}


async def test_a_run_that_is_started_where_the_office_was_lost_is_made_all_the_same(
    make_pair: Callable[..., Awaitable[Pair]],
) -> None:
    """W-8: the write of the old leader is refused and counted; the run is created all the same."""
    gates = Gates("a")
    gates.open()
    leader, _ = await make_pair(gates.flow)
    leases = WorkflowProbe.of(leader).store.leases
    epoch = await leases.acquire(LEASE_NAME, "another", 60.0, dead_holders=[WorkflowProbe.of(leader).owner.id])
    assert epoch is not None
    run = await leader.start("flow")
    assert (await run.state()).state == "queued"
    assert leader.metrics()["fenced_writes_total"] == 1
    await leases.release(LEASE_NAME, epoch)
    assert (await run.wait(PATIENCE)).state == "success"
