"""Runs hold what a simple model holds, after any operations in any order."""

import asyncio
import tempfile
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from tests.contract.conftest import ContractDatabase, MemoryDatabase, SqliteFile
from tests.contract.run_samples import (
    LEASE,
    claim,
    creation,
    event_row,
    fire_row,
    history,
    output_row,
    returned,
    run_row,
    task_row,
)
from tests.contract.samples import NOON
from tidemill.kernel.clock import VirtualClock
from tidemill.testing.faults.stores import fail_next
from tidemill.workflows.change import Applied, Change, LeaderFence, PoolLimit, Refused, TaskChange
from tidemill.workflows.records import AttemptKey, TaskRow
from tidemill.workflows.states import RunState, TaskState

RUNS, TASKS, OWNERS = ["r1", "r2"], ["a", "b", "c"], ["x", "y"]
SLOTS = {"gpu": 2}
ENDED = 1000  # no task run is claimed so often: tries from here on are not current ones

runs, tasks, owners = st.sampled_from(RUNS), st.sampled_from(TASKS), st.sampled_from(OWNERS)
states = st.sampled_from([TaskState.SCHEDULED, TaskState.QUEUED, TaskState.RUNNING, TaskState.SUCCESS])


class ModelRun(NamedTuple):
    """A run in the model."""

    revision: int
    clears: int
    state: RunState
    tasks: dict[str, TaskRow]
    outputs: dict[str, bytes]
    events: int
    ended: tuple[tuple[str, int], ...] = ()
    """Task and number of each attempt that ended."""


class RunMachine(RuleBasedStateMachine):
    """A store and its model, which get the same operations."""

    database: ContractDatabase

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = VirtualClock(NOON)
        self.model: dict[str, ModelRun] = {}
        self.slots: set[int] = set()
        self.epoch = 0
        self.is_paused = False

    def make_database(self) -> ContractDatabase:
        """Return the database under test."""
        raise NotImplementedError

    @initialize()
    def open_store(self) -> None:
        self.database = self.make_database()
        self.store = self.database.store(self.clock.now)
        self.runner.run(self.store.open())
        self.acquire_lease()

    @rule()
    def acquire_lease(self) -> None:
        taken = self.runner.run(
            self.store.leases.acquire("leader", f"n{self.epoch}", 1e6, dead_holders=[f"n{self.epoch - 1}"])
        )
        assert taken == self.epoch + 1
        self.epoch = taken

    @rule(seconds=st.sampled_from([1, 50, 100]))
    def wait(self, seconds: int) -> None:
        self.clock.advance_to(self.clock.monotonic() + seconds)

    def apply(self, change: Change) -> Applied | Refused:
        """Write a change."""

        async def apply() -> Applied | Refused:
            return await self.store.runs.apply(change)

        return self.runner.run(apply())

    @rule(paused=st.sampled_from([False, False, True]))
    def pause(self, paused: bool) -> None:
        schedules = self.store.schedules
        self.runner.run(
            schedules.pause("public", "flow") if paused else schedules.resume("public", "flow", self.clock.now())
        )
        self.is_paused = paused

    @rule(run=runs, slot=st.integers(0, 3))
    def create(self, run: str, slot: int) -> None:
        rows = {task: task_row(task, pool="gpu" if task == "a" else None, priority=slot) for task in TASKS}
        fire = fire_row(run, slot=NOON + timedelta(days=slot))
        result = self.apply(creation(run_row(run), *rows.values(), fire=fire))
        if self.is_paused:
            assert result == Refused("paused")
            return
        if run in self.model or slot in self.slots:
            assert result == Refused("stale" if run in self.model else "fired")
            return
        assert isinstance(result, Applied)
        self.slots.add(slot)
        self.model[run] = ModelRun(result.revision, 0, RunState.RUNNING, rows, {}, 1)

    @rule(
        run=runs,
        task=tasks,
        state=states,
        owner=owners,
        twist=st.sampled_from(["", "", "", "state", "attempt", "owner", "fence", "clears"]),
        options=st.sets(st.sampled_from(["intervenes", "limits", "knows the revision"])),
        value=st.binary(max_size=3),
    )
    def change(
        self, run: str, task: str, state: TaskState, owner: str, twist: str, options: set[str], value: bytes
    ) -> None:
        intervenes, limits = "intervenes" in options, "limits" in options
        revision = self.model[run].revision if run in self.model and "knows the revision" in options else 0
        known = self.model.get(run)
        stored = known.tasks[task] if known else task_row(task)
        found = _twisted(stored, twist)
        row = replace(stored, state=state, claimed_by=owner if state.is_claimed else None, lease_until=None)
        attempt = ENDED + (known.revision if known else 0)
        change = Change(
            run=run,
            fence=LeaderFence("leader", self.epoch - (twist == "fence")),
            expected_run=run_row(run, clears=(known.clears if known else 0) + (twist == "clears"), revision=revision),
            tasks=[TaskChange(found, row)],
            **returned(output_row(run, task, value=value), attempt=attempt),
            history=history(event_row(run, task)),
            pools=[PoolLimit("public", pool, slots) for pool, slots in SLOTS.items() if limits],
            is_operator_action=intervenes,
            lease=LEASE,
        )
        result = self.apply(change)
        expected = self.judge(known, twist, task, row, limits=limits)
        if expected is not None:
            assert result == expected
            return
        assert known is not None
        assert result == Applied(known.revision + 1)
        rows = known.tasks | {task: replace(row, lease_until=self.lease() if state.is_claimed else None)}
        outputs = known.outputs | {task: value}
        clears = known.clears + intervenes
        ended = (*known.ended, (task, attempt))
        self.model[run] = ModelRun(known.revision + 1, clears, known.state, rows, outputs, known.events + 1, ended)

    def judge(self, known: ModelRun | None, twist: str, task: str, row: TaskRow, *, limits: bool) -> Refused | None:
        """Return how the change should be refused, if it should."""
        if twist == "fence":
            return Refused("fenced")
        if known is None or twist:
            return Refused("stale")
        others = sum(
            one.pool == "gpu" and one.state.is_claimed
            for other in self.model.values()
            for one in other.tasks.values()
            if not (other is known and one.task == task)
        )
        is_one_more = row.pool == "gpu" and row.state.is_claimed
        return Refused("full") if limits and others + is_one_more > SLOTS["gpu"] else None

    def lease(self) -> datetime:
        """Return when a lease that is given now runs out."""
        return self.clock.now() + timedelta(seconds=LEASE)

    @rule(owner=owners, room=st.integers(0, 4), names_pool=st.booleans(), fails=st.booleans())
    def claim(self, owner: str, room: int, names_pool: bool, fails: bool) -> None:
        now, pools = self.clock.now(), SLOTS if names_pool else {}
        expected = self.choose(room, pools)
        if fails:
            fail_next(self.store, 1)
        try:
            given = self.runner.run(self.store.runs.claim(claim(room, owner, at=now, pools=pools)))
        except Exception:
            assert fails
            return
        fail_next(self.store, 0)  # a claim that finds nothing may need no transaction
        assert not (fails and expected)
        assert [(one.run.id, one.task.task) for one in given] == expected
        for run, task in expected:
            row = self.model[run].tasks[task]
            self.model[run].tasks[task] = replace(
                row,
                state=TaskState.QUEUED,
                attempt=row.attempt + 1,
                tries=row.tries + 1,
                claimed_by=owner,
                claimed_at=now,
                lease_until=self.lease(),
                since=now,
            )
        for run in {run for run, _ in expected}:
            known, number = self.model[run], sum(one == run for one, _ in expected)
            self.model[run] = known._replace(revision=known.revision + 1, events=known.events + number)

    def choose(self, room: int, pools: dict[str, int]) -> list[tuple[str, str]]:
        """Return what a claim should give, in order."""
        if self.is_paused:
            return []
        rows = [(run, row) for run, known in self.model.items() for row in known.tasks.values()]
        left = pools.get("gpu", 0) - sum(row.pool == "gpu" and row.state.is_claimed for _, row in rows)
        waiting = [(run, row) for run, row in rows if row.state is TaskState.SCHEDULED]
        chosen: list[tuple[str, str]] = []
        for run, row in sorted(waiting, key=lambda one: (-one[1].priority, one[1].since, one[0], one[1].task)):
            if len(chosen) < room and (row.pool is None or left > 0):
                left -= row.pool is not None
                chosen.append((run, row.task))
        return chosen

    @rule(owner=owners, attempt=st.integers(0, 3))
    def beat(self, owner: str, attempt: int) -> None:
        keys = [AttemptKey(run, task, -1, attempt) for run in RUNS for task in TASKS]
        alive = set()
        for key in keys:
            row = self.model[key.run].tasks[key.task] if key.run in self.model else None
            if row and row.state.is_claimed and (row.attempt, row.claimed_by) == (attempt, owner):
                self.model[key.run].tasks[key.task] = replace(row, lease_until=self.lease())
                alive.add(key)
        assert self.runner.run(self.store.runs.renew_leases(owner, keys, LEASE)) == alive

    @rule(run=runs)
    def end(self, run: str) -> None:
        """End a run, and let retention take it."""
        if run not in self.model:
            return
        row = run_row(run, state=RunState.SUCCESS, ended_at=NOON)
        assert isinstance(self.apply(Change(run=run, updated_run=row)), Applied)
        assert self.runner.run(self.store.runs.prune("public", NOON + timedelta(seconds=1), 10)) == 1
        del self.model[run]

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.store.close())
        self.store = self.database.store(self.clock.now)
        self.runner.run(self.store.open())

    @invariant()
    def store_and_model_agree(self) -> None:
        async def read() -> None:
            stored = self.store.runs
            records = {record.run.id: record for record in await stored.load(RUNS)}
            assert records.keys() == self.model.keys()
            for run, known in self.model.items():
                record = records[run]
                assert (record.run.revision, record.run.clears) == (known.revision, known.clears)
                assert {row.task: row for row in record.tasks} == known.tasks
                outputs = {one.key.task: one.value for one in await stored.read_outputs(run, TASKS)}
                assert outputs == known.outputs
                assert len(await stored.read_events(run)) == known.events
                begun = [(row.task, row.attempt) for row in known.tasks.values() if row.state.is_claimed]
                assert [(one.key.task, one.key.attempt) for one in await stored.read_attempts(run)] == sorted(
                    [*begun, *known.ended]
                )
            claimed = [row for known in self.model.values() for row in known.tasks.values() if row.state.is_claimed]
            assert await stored.count_claims() == Counter(row.claimed_by for row in claimed)
            late = sum(row.lease_until is not None and row.lease_until <= self.clock.now() for row in claimed)
            assert len(await stored.list_lease_expired(100)) == late

        self.runner.run(read())

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.runner.run(self.store.close())
        self.runner.close()


def _twisted(row: TaskRow, twist: str) -> TaskRow:
    """Return a task run with one guarded thing changed."""
    match twist:
        case "state":
            return replace(row, state=TaskState.DEFERRED)
        case "attempt":
            return replace(row, attempt=row.attempt + 1)
        case "owner":
            return replace(row, claimed_by="another owner")
        case _:
            return row


class MemoryMachine(RunMachine):
    """On memory."""

    def make_database(self) -> ContractDatabase:
        return MemoryDatabase(self.clock.now)


class SqliteMachine(RunMachine):
    """On a file."""

    def make_database(self) -> ContractDatabase:
        self.folder = tempfile.TemporaryDirectory()
        return SqliteFile(Path(self.folder.name) / "tidemill.db")

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


@pytest.mark.parametrize("machine", [MemoryMachine, SqliteMachine])
def test_runs_hold_what_a_model_holds(machine: type[RunMachine]) -> None:
    """W-1, W-8, W-13: nothing half written, nothing claimed twice, whatever was refused in between."""
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=30))
