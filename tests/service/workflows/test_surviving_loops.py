"""What must never stop, and what must never grow: loops that survive anything, memory that is given back."""

import asyncio
import gc
import logging
from asyncio import TimerHandle
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from datetime import timedelta
from types import BuiltinMethodType
from weakref import ReferenceType

import pytest
from msgspec.structs import replace

import tidemill as tm
from tests.service.workflows.faults import (
    QUICK,
    Neighbour,
    blocked_flow,
    breaking,
    overwrite,
    plain_flow,
    store_of,
    write_orphan,
)
from tests.service.workflows.pairs import PATIENCE, SETTINGS, Gates, Pair, until
from tidemill.engine.workflows.client import runs as run_reader
from tidemill.engine.workflows.executors.runner import TaskRunner
from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.leader.election import LEASE_NAME
from tidemill.engine.workflows.worker import claimer
from tidemill.testing.probes.workflows import WorkflowProbe
from tidemill.workflows.records import AttemptKey, VersionKey
from tidemill.workflows.states import RunState, TaskState
from tidemill.workflows.workflow import Workflow

MakePair = Callable[..., Awaitable[Pair]]


async def test_heartbeats_survive_anything(store: str | None) -> None:
    """W-5, W-11: one error that is none of the store's, and the task that runs is still kept alive."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        await node.start("flow")
        await node.advance("1s")
        with breaking(store_of(node).runs, "renew_leases", RuntimeError("a bug"), times=1) as beats:
            await node.advance("10m")
        assert len(beats) > 30
        assert len(blocked.begun) == 1
        assert node.metrics()["heartbeat_errors_total"] == 1
        blocked.go.set()


async def test_a_claimer_survives_anything(make_pair: MakePair) -> None:
    """W-5: one error that is none of the store's, and the follower claims all the same."""
    gates = Gates("a", "b")
    leader, follower = await make_pair(gates.flow)
    with breaking(WorkflowProbe.of(follower).store.runs, "claim", ValueError("a bug"), times=1):
        run = await leader.start("flow")
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(began.wait() for began in gates.began.values()))
    gates.open()
    assert (await run.wait(PATIENCE)).state == "success"
    assert follower.metrics()["scheduler_phase_errors_total"] == 1


async def test_a_campaign_survives_anything(make_pair: MakePair) -> None:
    """W-5, W-9: one error that is none of the store's, and the follower continues to campaign."""
    _, follower = await make_pair(plain_flow())
    with breaking(WorkflowProbe.of(follower).store.leases, "last_renewal", RuntimeError("a bug"), times=1) as tries:

        async def has_gone_on() -> bool:
            return len(tries) > 2

        await until(has_gone_on)
    assert follower.metrics()["scheduler_phase_errors_total"] == 1


async def test_a_node_opens_although_it_loses_the_office_before_its_first_pass(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-9: then another node leads, and this node follows."""

    node = tm.Node(sqlite, load=[plain_flow()], settings=SETTINGS)
    workflows = WorkflowProbe.of(node)

    async def overtaken(_: RunCoordinator) -> None:
        await workflows.store.leases.acquire(LEASE_NAME, "another", 60.0, dead_holders=[workflows.owner.id])
        await asyncio.Event().wait()

    monkeypatch.setattr(RunCoordinator, "refresh", overtaken)
    async with asyncio.timeout(PATIENCE), node:
        assert node.metrics()["scheduler_leader"] == 0


async def test_who_waits_on_a_node_that_loses_the_office_hears_of_the_end(make_pair: MakePair) -> None:
    """W-9: the run is planned elsewhere then, and its end comes without a word."""
    gates = Gates("a")
    old, new = await make_pair(gates.flow)
    run = await old.start("flow")
    await gates.began["a"].wait()
    async with asyncio.TaskGroup() as group:
        waits = group.create_task(run.wait(PATIENCE), name="wait")
        WorkflowProbe.of(old).store.leases.acquire = _never
        epoch = await WorkflowProbe.of(new).store.leases.acquire(
            LEASE_NAME, "another", 60.0, dead_holders=[WorkflowProbe.of(old).owner.id]
        )
        assert epoch is not None

        async def is_lost() -> bool:
            return not WorkflowProbe.of(old).is_leader

        await until(is_lost)
        await WorkflowProbe.of(new).store.leases.release(LEASE_NAME, epoch)
        gates.open()
    assert waits.result().state == "success"
    assert new.metrics()["scheduler_leader"] == 1


async def test_who_waits_is_woken_when_an_office_ends(store: str | None) -> None:
    """W-9: they must check the store, because this node may not learn of the run's end."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("1s")
        workflows = node.probe.workflows
        changed = workflows.notifier.change_signal(run.id)
        workflows.step_down()

        async def is_over() -> bool:
            return not workflows.is_leader

        await until(is_over)
        assert changed.is_set()
        blocked.go.set()


async def _never(*_: object, **__: object) -> None:
    """Win no term."""


async def test_what_has_ended_leaves_nothing_in_memory(store: str | None) -> None:
    """Neither who waited for it, nor the numbers of its log."""
    flow = tm.Workflow("flow")

    @flow.task
    def work(ctx: tm.Context) -> None:
        ctx.log.info("here")

    async with tm.testing.node(store, load=[flow]) as node:
        for _ in range(3):
            await (await node.start("flow")).wait(PATIENCE)
        await node.settle()
        assert node.probe.workflows.awaited_runs() == set()
        assert node.probe.workflows.logging_attempts() == set()


async def test_nodes_that_have_died_leave_nothing_in_memory(sqlite: str, caplog: pytest.LogCaptureFixture) -> None:
    """W-12: a node may outlive any number of others whose attempts it recovers; only ended attempts are remembered."""
    caplog.set_level(logging.CRITICAL)  # pytest keeps every record
    flow, early, late = plain_flow(), 30, 50
    async with Neighbour(sqlite, load=[flow]) as node:
        for number in range(early):  # until every statement and class is cached
            await outlive_neighbour(node, flow, f"early-{number}")
        before = count_held()
        for number in range(late):
            await outlive_neighbour(node, flow, f"late-{number}")
        growth = count_held() - before
        assert node.metrics()["agent_lost_tasks_total"] == early + late
    remembered = growth.pop(AttemptKey)
    assert remembered <= late
    growth[ENTRY] -= 2 * remembered + len(before)  # the executor has each in a set and a queue
    assert {kind: count for kind, count in growth.items() if count > late / 2} == {}


ENTRY = object
"""The kind under which the entries of all containers are counted."""


def count_held() -> Counter[type]:
    """Count all objects by class, and the entries of all containers; not the references of SQLite to its cursors.

    Nor the cancelled timers, each with its context: a loop keeps them until most of its timers are cancelled. Nor what
    abstract classes remember of `isinstance`, which they forget whenever a class is registered anywhere.
    """
    gc.collect()
    counts: Counter[type] = Counter()
    for held in gc.get_objects():
        is_remembered = isinstance(held, BuiltinMethodType) and held.__name__ == "_destroy"
        counts[type(held)] += not (type(held) is ReferenceType or is_remembered)
        if isinstance(held, TimerHandle) and held.cancelled():
            counts.subtract((TimerHandle, Context, ENTRY))
        if isinstance(held, dict | list | set | deque):
            counts[ENTRY] += sum(type(entry) is not ReferenceType for entry in tuple(held))
    return counts


async def outlive_neighbour(node: tm.testing.TestNode, flow: tm.Workflow, name: str) -> None:
    """Let another node claim the task of a run and die, and the node recover it."""
    dead = replace(node.probe.workflows.owner, id=name, started="before")  # another process had this pid
    await store_of(node).owners.upsert(dead)
    await write_orphan(node, flow, name, {"work": TaskState.RUNNING}, node.clock.now())
    await overwrite(node, name, claimed_by=dead.id, attempt=1, lease_until=node.clock.now() + timedelta(hours=1))
    await node.advance("2s")
    assert (await node.run_handle(name).state()).state is RunState.SUCCESS


async def test_an_owner_that_is_dead_and_has_left_nothing_behind_is_forgotten(store: str | None) -> None:
    """W-12: one with claims is remembered until they are taken back."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        await node.start("flow")
        await node.advance("1s")
        before = node.probe.workflows.owner.id
        node = await node.crash()
        owners = store_of(node).owners
        assert before in {one.id for one in await owners.list_all()}
        await node.advance("2m")
        assert {one.id for one in await owners.list_all()} == {node.probe.workflows.owner.id}
        assert len(blocked.begun) == 2
        blocked.go.set()


async def test_values_are_read_with_what_was_made_once(store: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Per version that is loaded, and not per look."""
    made: list[Workflow] = []

    class Counted(TaskRunner):
        def __init__(self, workflow: Workflow) -> None:
            made.append(workflow)
            super().__init__(workflow)

    monkeypatch.setattr(run_reader, "TaskRunner", Counted)
    async with tm.testing.node(store) as node:
        for number in range(3):
            await node.load(version(number))
            run = await node.start("flow")
            await node.advance("1s")
            for _ in range(3):
                assert (await run.state()).outputs["work"] == number
            await node.advance("10m")
            assert node.probe.workflows.cached_runners() <= 2
        assert len(made) == 3


def version(number: int, gate: asyncio.Event | None = None) -> tm.Workflow:
    """Return a version of workflow `flow`; its task waits if there is something to wait for."""
    flow = tm.Workflow("flow")
    if gate is None:

        @flow.task
        async def work(ctx: tm.Context) -> int:
            return number

    else:

        @flow.task
        async def work(ctx: tm.Context) -> int:
            await gate.wait()
            return number

    @flow.task(after="work", retry=tm.Retry(number))
    async def then() -> None: ...

    return flow


async def test_a_follower_forgets_the_versions_that_no_run_needs(
    make_pair: MakePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-19: those of active runs it keeps, wherever they run."""
    monkeypatch.setattr(claimer, "VERSION_COLLECT_INTERVAL", 0.0)
    gate = asyncio.Event()
    flows = [version(1, gate), version(2), version(3)]
    leader, follower = await make_pair(flows[0])
    run = await leader.start("flow")
    for flow in flows[1:]:
        await follower.load(flow)
    first, _, last = (VersionKey("public", "flow", flow.wired().spec.version) for flow in flows)

    async def is_tidy() -> bool:
        return set(WorkflowProbe.of(follower).loaded_versions) == {first, last}

    await until(is_tidy)
    gate.set()
    assert (await run.wait(PATIENCE)).state == "success"


async def test_a_follower_reads_a_run_once_for_all_that_it_claims_of_it(make_pair: MakePair) -> None:
    """W-6: and not once for each element."""
    flow, gate = tm.Workflow("flow"), asyncio.Event()

    @flow.task
    def numbers() -> list[int]:
        return list(range(5))

    @flow.task(each="numbers")
    async def work(numbers: int) -> int:
        await gate.wait()
        return numbers

    leader, follower = await make_pair(flow, places=4)
    runs, attempts = WorkflowProbe.of(follower).store.runs, WorkflowProbe.of(follower).attempts
    claim, given = runs.claim, []

    async def noting(request: object) -> object:
        found = await claim(request)
        given.extend([found] if found else [])
        return found

    runs.claim = noting
    with breaking(runs, "load", times=0) as loads:
        run = await leader.start("flow")

        async def is_full() -> bool:
            return len(attempts.running()) == 4

        await until(is_full)
        assert len(loads) == len(given) < 4
    gate.set()
    assert (await run.wait(PATIENCE)).outputs["work"] == [0, 1, 2, 3, 4]
