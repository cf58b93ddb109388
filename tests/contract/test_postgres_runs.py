"""Runs on PostgreSQL: their cost, and that concurrent changes never deadlock."""

import asyncio
import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import asyncpg
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from tests.contract.access_samples import audit_entry
from tests.contract.conftest import ContractDatabase, PostgresDatabase
from tests.contract.proxy import Fault
from tests.contract.run_samples import (
    LEASE,
    after,
    attempt_row,
    claim,
    creation,
    ending,
    event_row,
    fire_row,
    history,
    make,
    run_row,
    running,
    succeeded,
    task_of,
    task_row,
)
from tests.contract.test_postgres_faults import behind_proxy, eventually, opened, session
from tests.contract.test_runs_against_a_model import RunMachine
from tests.postgres import PostgresServer
from tidemill.kernel.errors import StoreError
from tidemill.storage.postgres.apply_changes import AuditedChange, ChangeApplier
from tidemill.storage.postgres.store import QUERIES
from tidemill.storage.store import Store
from tidemill.workflows.change import Applied, Change, LeaderFence, PoolLimit, Refused, TaskChange
from tidemill.workflows.records import AttemptKey, TaskError
from tidemill.workflows.states import RunState, TaskState


@pytest.fixture
async def url(postgres: PostgresServer) -> str:
    """An empty database."""
    return await postgres.fresh_database()


class Counting:
    """A connection that counts its statements."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.statements = 0
        self._connection = connection

    async def execute(self, *statement: Any) -> Any:
        self.statements += 1
        return await self._connection.execute(*statement)

    async def fetch(self, *statement: Any) -> Any:
        self.statements += 1
        return await self._connection.fetch(*statement)

    async def fetchrow(self, *statement: Any) -> Any:
        self.statements += 1
        return await self._connection.fetchrow(*statement)


def small_change(run: str, epoch: int) -> Change:
    """Return what most changes are: a task ends, and the next one is claimed."""
    ended, scheduled = running(task_row("a", pool="gpu")), task_row("m")
    return Change(
        run=run,
        fence=LeaderFence("leader", epoch),
        tasks=[TaskChange(ended, succeeded(ended)), TaskChange(scheduled, running(scheduled))],
        attempts=[attempt_row(run, "a")],
        outputs={attempt_row(run).key: b"value"},
        history=history(*(event_row(run) for _ in range(4))),
    )


def big_change(run: str, epoch: int) -> Change:
    """Return a change of everything but the run's own row."""
    tasks = [running(task_row(task, pool="gpu")) for task in ("a", "b")]
    return Change(
        run=run,
        fence=LeaderFence("leader", epoch),
        tasks=[TaskChange(row, succeeded(row)) for row in tasks],
        added=[task_row("c")],
        removed=[task_row("m")],
        attempts=[attempt_row(run, row.task) for row in tasks],
        outputs={attempt_row(run).key: b"value"},
        cleared_outputs=["m"],
        history=history(*(event_row(run) for _ in range(4))),
        fire=fire_row(run, slot=after(1), digest=run, key=run),
        pools=[PoolLimit("public", "gpu", 1000)],
    )


@pytest.mark.parametrize(("change", "cost"), [(small_change, 2), (big_change, 9)])
async def test_a_group_of_changes_costs_as_many_statements_as_one(
    url: str, change: Callable[[str, int], Change], cost: int
) -> None:
    """One for the locks, one for each question, and one for all tables."""
    async with opened(url) as store, session(url) as connection:
        epoch = await store.leases.acquire("leader", "node", 60)
        assert epoch is not None
        rows = [running(task_row("a", pool="gpu")), running(task_row("b", pool="gpu")), task_row("m")]
        await make(store, *(creation(run_row(f"r{number}"), *rows) for number in range(41)))
        applying = ChangeApplier(QUERIES, "test", lambda: None)
        for runs in (["r0"], [f"r{number}" for number in range(1, 41)]):
            counting = Counting(connection)
            async with connection.transaction():
                results = await applying(
                    counting, [AuditedChange(change(run, epoch), audit_entry(run)) for run in runs]
                )
            assert results == [Applied(2)] * len(runs)
            assert counting.statements == cost


LOCKS_IN_ORDER = (
    ("UPDATE tidemill.leases SET epoch = 7", "SELECT FROM tidemill.task_runs FOR UPDATE NOWAIT"),
    ("UPDATE tidemill.task_runs SET attempt = 7", "SELECT FROM tidemill.runs FOR UPDATE NOWAIT"),
)


async def test_one_statement_takes_locks_in_the_same_order(url: str) -> None:
    """W-8: it cannot deadlock with claims; and it writes nothing if it waited for what contradicts it."""
    async with opened(url) as store, session(url) as other, session(url) as third:
        epoch = await store.leases.acquire("leader", "node", 60)
        assert epoch is not None
        await make(store, creation(run_row("r1"), task_row("a")))
        fence, known = LeaderFence("leader", epoch), run_row("r1", revision=1)
        change = signed(expected_run=known, fence=fence, tasks=[TaskChange(task_row("a"), task_row("a"))])
        for held, behind in LOCKS_IN_ORDER:
            async with asyncio.TaskGroup() as group:
                async with other.transaction():
                    await other.execute(held)
                    applying = group.create_task(_apply(store, change))
                    asked = "SELECT count(*) > 0 FROM pg_stat_activity WHERE pg_blocking_pids(pid) <> '{}'"
                    await eventually(partial(third.fetchval, asked))
                    await third.execute(behind)
                assert await applying == Refused("fenced" if "leases" in held else "stale")
            await other.execute(f"UPDATE tidemill.leases SET epoch = {epoch}")
        assert len(await store.runs.read_events("r1")) == 1


async def _apply(store: Store, change: Change) -> Applied | Refused:
    return await store.runs.apply(change)


async def test_locks_are_taken_in_one_order(url: str) -> None:
    """W-8: a change that waits for a take-over of the lease, or for a task run, holds no lock behind it.

    It finds what the other transaction has written.
    """
    keys, attempts = [["r1"], ["a"], [-1]], [[0], [7]]
    async with opened(url) as store, session(url) as other, session(url) as waiting, session(url) as third:
        await store.leases.acquire("leader", "node", 60)
        await make(store, creation(run_row("r1"), task_row("a")))
        for held, behind in LOCKS_IN_ORDER:
            async with asyncio.TaskGroup() as group, waiting.transaction():
                async with other.transaction():
                    await other.execute(held)
                    locking = group.create_task(waiting.fetchrow(QUERIES.lock_rows, ["leader"], *keys, ["r1"]))
                    blockers = partial(third.fetchval, "SELECT pg_blocking_pids($1) <> '{}'", waiting.get_server_pid())
                    await eventually(blockers)
                    await third.execute(behind)
                epochs, tasks, runs = await locking
                assert (dict(epochs), [row[4] for row in tasks], len(runs)) == ({"leader": 7}, attempts.pop(0), 1)


@pytest.mark.parametrize("known", ["nothing", "everything", "how it was when many were active"])
async def test_a_payload_that_was_fired_often_costs_no_more(url: str, known: str) -> None:
    """The query reads active runs, whatever the statistics of the server; pruned rows are found by their run."""
    payload = (["public"], ["flow"], ["daily"], ["d"])
    async with opened(url) as store, session(url) as connection:
        await connection.execute(
            "INSERT INTO tidemill.fires (tenant, workflow, key, digest, run, at) "
            "SELECT 'public', 'flow', 'daily', 'd', 'old' || n, now() FROM generate_series(1, 100000) AS n"
        )
        await make(store, creation(run_row("r1"), fire=fire_row("r1", digest="d")))
        await make(store, creation(run_row("r2", state=RunState.SUCCESS, ended_at=after(0))))
        if known == "how it was when many were active":
            await make_active(connection, 20_000)
        if known != "nothing":
            await connection.execute("ANALYZE tidemill.fires, tidemill.runs")
        await connection.execute("UPDATE tidemill.runs SET state = 'success' WHERE origin = 'many'")
        await connection.execute("VACUUM tidemill.runs")
        assert [row["run"] for row in await connection.fetch(QUERIES.fired_digests_of, *payload, ["r2"])] == ["r1"]
        assert await pages_read(connection, QUERIES.fired_digests_of, *payload, ["r2"]) < 50
        assert await pages_read(connection, QUERIES.delete_runs, ["r2", "old7"]) < 100
        assert await pages_read(connection, "SELECT * FROM tidemill.fires WHERE at < $1", after(0)) > 500  # a scan


@pytest.mark.parametrize("known", ["nothing", "everything"])
async def test_an_alarm_that_was_fired_often_costs_no_more(url: str, known: str) -> None:
    """A cooldown is judged by one entry of an index, and `dedup` alone by the active runs."""
    about = (["public"], ["flow"], ["sensor"])
    async with opened(url) as store, session(url) as connection:
        await connection.execute(
            "INSERT INTO tidemill.fires (tenant, workflow, key, slot, dedup, run, at) "
            "SELECT 'public', 'flow', 'k' || n, $1::timestamptz, 'sensor', 'old' || n, "
            "$1::timestamptz - n * interval '1 second' "
            "FROM generate_series(1, 100000) AS n",
            after(0),
        )
        await make(store, creation(run_row("r1"), fire=fire_row("r1", dedup="sensor", at=after(-3))))
        if known == "everything":
            await connection.execute("ANALYZE tidemill.fires, tidemill.runs")
        within = (*about, [after(-90_000)], [after(60)])
        ((*_, newest),) = await connection.fetch(QUERIES.fires_within, *within)
        assert newest == after(-1)
        assert await pages_read(connection, QUERIES.fires_within, *within) < 20
        assert [row["run"] for row in await connection.fetch(QUERIES.runs_about, *about, [])] == ["r1"]
        assert await pages_read(connection, QUERIES.runs_about, *about, []) < 50


async def make_active(connection: asyncpg.Connection, count: int) -> None:
    """Write runs that are active, without their tasks."""
    await connection.execute(
        "INSERT INTO tidemill.runs "
        "SELECT 'many' || n, tenant, workflow, version, state, params, 'many', created_at, slot, started_at, ended_at, "
        "reason, max_active, backfill, revision, clears "
        "FROM tidemill.runs, generate_series(1, $1) AS n WHERE id = 'r1'",
        count,
    )


async def pages_read(connection: asyncpg.Connection, statement: str, *arguments: Any) -> int:
    """Run a statement; return how many pages of tables and indexes the server read."""
    explained = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", *arguments)
    plan = json.loads(explained)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def test_one_of_several_stores_creates_a_run(url: str) -> None:
    """The others find that it exists: a refusal, not an error."""
    async with opened(url) as one, opened(url) as other:
        for number in range(20):
            change = creation(run_row(f"r{number}"))
            results = await asyncio.gather(one.runs.apply(change), other.runs.apply(change))
            assert sorted(isinstance(result, Applied) for result in results) == [False, True]


async def test_one_of_several_stores_adds_a_task_run(url: str) -> None:
    async with opened(url) as one, opened(url) as other:
        await make(one, creation())
        for index in range(20):
            change = Change(run="r1", added=[task_row("m", index=index)])
            results = await asyncio.gather(one.runs.apply(change), other.runs.apply(change))
            assert sorted(isinstance(result, Applied) for result in results) == [False, True]


class Crowd:
    """Stores that claim, end, renew, clear and prune the same runs, concurrently and in any order."""

    def __init__(self, stores: list[Store], seed: int) -> None:
        self.done = 0
        self._stores = stores
        self._chance = random.Random(seed)

    async def run(self, rounds: int) -> None:
        """Do something, again and again."""
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for number, store in enumerate(self._stores):
                for work in (self._claim, self._change, self._beat, self._prune):
                    tasks.create_task(self._repeat(work, store, f"n{number}", rounds))

    async def _repeat(self, work: Any, store: Store, owner: str, rounds: int) -> None:
        for _ in range(rounds):
            await work(store, owner)

    async def _claim(self, store: Store, owner: str) -> None:
        pools = {"gpu": 6} if self._chance.random() < 0.5 else {}  # a pool's lock would keep the others out
        for one in await store.runs.claim(claim(4, owner=owner, pools=pools)):
            self.done += 1
            await store.runs.apply(ending(one.run.id, one.task))

    async def _change(self, store: Store, owner: str) -> None:
        """Bring all task runs of some runs back, together in one transaction, in any order."""
        records = await store.runs.load([run.run for run in await store.runs.list_active()])
        self._chance.shuffle(records)
        pools = [PoolLimit("public", "gpu", 6)] if self._chance.random() < 0.1 else []
        changes = []
        for run, tasks in records:
            moves = [TaskChange(row, replace(row, state=TaskState.SCHEDULED, claimed_by=None)) for row in tasks]
            self._chance.shuffle(moves)
            is_over = self._chance.random() < 0.1
            row = replace(run, state=RunState.SUCCESS if is_over else RunState.RUNNING, ended_at=after(0))
            changes.append(
                Change(
                    run=run.id,
                    expected_run=run,
                    updated_run=row,
                    tasks=moves,
                    pools=pools,
                    history=history(event_row(run.id)),
                )
            )
        if not changes:
            changes = [creation(run_row(f"{owner}-{self._chance.random()}"), *TASKS)]
        await asyncio.gather(*(store.runs.apply(change) for change in changes))

    async def _beat(self, store: Store, owner: str) -> None:
        claimed = await store.runs.list_claimed_by(["n0", "n1", "n2"])
        keys = [AttemptKey(*key, row.attempt) for key, row in claimed]
        await store.runs.renew_leases(owner, keys, LEASE)

    async def _prune(self, store: Store, owner: str) -> None:
        await store.runs.prune("public", after(1), 3)


TASKS = [task_row("m", index=index, pool="gpu" if index % 2 else None) for index in range(6)]


@pytest.mark.parametrize("seed", range(3))
async def test_concurrent_changes_never_deadlock(url: str, seed: int) -> None:
    """Transactions lock rows in one order; none has to be ended to free another."""
    async with opened(url) as one, opened(url) as other, opened(url) as third, session(url) as admin:
        await make(one, *(creation(run_row(f"r{number}"), *TASKS) for number in range(8)))
        crowd = Crowd([one, other, third], seed)
        await crowd.run(30)
        while crowd.done <= 20:  # how much comes of a round is chance
            await crowd.run(10)
        taken = await admin.fetchval("SELECT count(*) FROM tidemill.task_runs WHERE state = 'queued' AND pool = 'gpu'")
        assert taken <= 6
    async with session(url) as admin:  # sessions report when they end
        await admin.execute("SELECT pg_stat_clear_snapshot()")
        asked = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        assert await admin.fetchval(asked) == 0


async def test_a_claim_whose_reply_is_lost_is_made_once(postgres: PostgresServer) -> None:
    """G-24: the server committed, and its reply was lost; it is asked again."""
    async with behind_proxy(postgres) as (store, proxy):
        await make(store, creation())
        proxy.at_commit = "cut after"
        (given,) = await store.runs.claim(claim())
        assert given.task.attempt == 1
        assert await task_of(store) == given.task
        assert await store.runs.claim(claim()) == []


async def test_a_claim_that_did_not_reach_the_server_returns_nothing(postgres: PostgresServer) -> None:
    """G-24: the connection ends with the COMMIT still in it."""
    async with behind_proxy(postgres) as (store, proxy):
        await make(store, creation())
        proxy.at_commit = "cut before"
        with pytest.raises(StoreError, match="not committed"):
            await store.runs.claim(claim())
        assert await task_of(store) == task_row()
        assert len(await store.runs.claim(claim())) == 1


async def test_a_change_whose_reply_is_lost_is_applied_once(postgres: PostgresServer) -> None:
    """G-24: with its revision, as if nothing had happened."""
    async with behind_proxy(postgres) as (store, proxy):
        await make(store, creation())
        proxy.at_commit = "cut after"
        assert await store.runs.apply(Change(run="r1", history=history(event_row()))) == Applied(2)
        assert len(await store.runs.read_events("r1")) == 2


SIGN = b"the sign of a change"
"""The reason of an event: so a test knows the message of a change that is one statement."""


def signed(run: str = "r1", **fields: Any) -> Change:
    """Return a change whose rows say all that it is judged by."""
    return Change(run=run, history=history(event_row(reason=SIGN.decode())), **fields)


async def test_a_change_that_meets_no_other_is_one_round_trip(postgres: PostgresServer) -> None:
    """W-8: so is the creation of a run; the first of each kind is prepared too."""
    async with behind_proxy(postgres) as (store, proxy):
        for number in range(2):
            await make(store, creation(run_row(f"r{number}"), task_row("a")))
            proxy.requests = 0
        created = await store.runs.apply(creation(run_row("r2"), task_row("a")))
        assert proxy.requests == 1
        assert isinstance(created, Applied)
        assert created.sequence is not None
        found = run_row("r2", revision=1)
        for revision in (2, 3):
            proxy.requests = 0
            moved = TaskChange(task_row("a"), task_row("a")) if revision == 2 else None
            change = signed("r2", expected_run=found, tasks=[moved] if moved else ())
            assert await store.runs.apply(change) == Applied(revision)
            found = replace(found, revision=revision)
        assert len(await store.runs.read_events("r2")) == 3


async def test_a_change_that_finds_other_rows_is_judged_by_these(url: str) -> None:
    """W-8: a change that another node has made in between refuses nothing that does not contradict it."""
    async with opened(url) as store, opened(url) as other:
        await make(store, creation(run_row("r1"), task_row("a")))
        known = run_row("r1", revision=1)
        assert await other.runs.apply(signed(expected_run=known)) == Applied(2)
        assert await store.runs.apply(signed(expected_run=known)) == Applied(3)
        taken = replace(task_row("a"), attempt=7)
        assert await store.runs.apply(signed(expected_run=known, tasks=[TaskChange(taken, taken)])) == Refused("stale")
        assert len(await store.runs.read_events("r1")) == 3


@pytest.mark.parametrize("fault", ["cut before", "cut after"])
async def test_one_statement_whose_end_is_unknown_is_found_out(postgres: PostgresServer, fault: Fault) -> None:
    """G-24: applied once, with its revision, or not at all."""
    async with behind_proxy(postgres) as (store, proxy):
        await make(store, creation())
        known = run_row(revision=1)
        proxy.commit, proxy.at_commit = SIGN, fault
        (outcome,) = await asyncio.gather(store.runs.apply(signed(expected_run=known)), return_exceptions=True)
        assert isinstance(outcome, StoreError) if fault == "cut before" else outcome == Applied(2)
        assert len(await store.runs.read_events("r1")) == (1 if fault == "cut before" else 2)
        assert isinstance(await store.runs.apply(signed(expected_run=known)), Applied)


@pytest.mark.parametrize("is_new", [False, True])
async def test_one_statement_that_comes_after_it_was_given_up_writes_nothing(
    postgres: PostgresServer, *, is_new: bool
) -> None:
    """G-24: what was said not to be committed is not, however late the server gets it, and whatever follows."""
    async with behind_proxy(postgres) as (store, proxy), session(postgres.url()) as other:
        await make(store, creation())
        change = signed(expected_run=run_row(revision=1))
        if is_new:
            change = creation(run_row("r2"), history=history(event_row(reason=SIGN.decode())))
        proxy.commit, proxy.at_commit = SIGN, "delay"
        with pytest.raises(StoreError, match="not committed"):
            await store.runs.apply(change)
        await make(store, creation(run_row("r3")))
        before = await _activity(other)
        proxy.release.set()
        await eventually(partial(_has_been_handled, other, before))
        assert len(await store.runs.read_events("r1")) == 1
        assert await store.runs.find_run("r2") is None


async def _activity(connection: asyncpg.Connection) -> set[Any]:
    asked = "SELECT pid, state, state_change FROM pg_stat_activity WHERE application_name = 'tidemill'"
    return set(await connection.fetch(asked))


async def _has_been_handled(connection: asyncpg.Connection, before: set[Any]) -> bool:
    """Return whether the server has got something since, and is done with it."""
    now = await _activity(connection)
    return now != before and {row["state"] for row in now} == {"idle"}


async def test_texts_of_authors_are_stored_as_far_as_the_server_can(url: str) -> None:
    """PostgreSQL's text holds neither NUL nor half characters; an error that says such things is no reason to fail."""
    odd = "a\0b\udcffc"
    async with opened(url) as store:
        error = TaskError("ValueError", odd, odd)
        row = task_row(reason=odd)
        change = creation(
            run_row(reason=odd), row, attempts=[attempt_row(error=error)], history=history(event_row(reason=odd))
        )
        await make(store, change)
        (event,) = await store.runs.read_events("r1")
        (attempt,) = await store.runs.read_attempts("r1")
        assert {event.reason, (await task_of(store)).reason} == {"a\N{SYMBOL FOR NULL}b\\udcffc"}
        assert attempt.error == TaskError("ValueError", "a\0b\\udcffc", "a\0b\\udcffc")


def test_runs_hold_what_a_model_holds(postgres: PostgresServer) -> None:
    """W-1, W-8, W-13: nothing half written, nothing claimed twice, whatever was refused in between."""

    class PostgresMachine(RunMachine):
        """On a server."""

        def make_database(self) -> ContractDatabase:
            return PostgresDatabase(postgres, self.runner.run(postgres.fresh_database()))

    run_state_machine_as_test(
        PostgresMachine, settings=settings(max_examples=10, stateful_step_count=30, deadline=None)
    )
