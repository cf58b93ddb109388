"""Runs, whatever is done to them in whatever order, hold what a simple model holds."""

import asyncio
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from tests.contract.conftest import MemoryPlace, Place, SqlitePlace
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


class Held(NamedTuple):
    """What the model knows of a run."""

    revision: int
    clears: int
    state: RunState
    tasks: dict[str, TaskRow]
    outputs: dict[str, bytes]
    events: int
    ended: tuple[tuple[str, int], ...] = ()
    """Task and number of each try that ended."""


class RunMachine(RuleBasedStateMachine):
    """A store and its model: what is done to the one is done to the other."""

    place: Place

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = VirtualClock(NOON)
        self.held: dict[str, Held] = {}
        self.slots: set[int] = set()
        self.epoch = 0
        self.is_paused = False

    def make_place(self) -> Place:
        """Return the database under test."""
        raise NotImplementedError

    @initialize()
    def open_store(self) -> None:
        self.place = self.make_place()
        self.store = self.place.store(self.clock.now)
        self.runner.run(self.store.open())
        self.take_office()

    @rule()
    def take_office(self) -> None:
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
        if run in self.held or slot in self.slots:
            assert result == Refused("stale" if run in self.held else "fired")
            return
        assert isinstance(result, Applied)
        self.slots.add(slot)
        self.held[run] = Held(result.revision, 0, RunState.RUNNING, rows, {}, 1)

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
        revision = self.held[run].revision if run in self.held and "knows the revision" in options else 0
        held = self.held.get(run)
        stored = held.tasks[task] if held else task_row(task)
        found = _twisted(stored, twist)
        row = replace(stored, state=state, claimed_by=owner if state.is_claimed else None, lease_until=None)
        attempt = ENDED + (held.revision if held else 0)
        change = Change(
            run=run,
            fence=LeaderFence("leader", self.epoch - (twist == "fence")),
            expected_run=run_row(run, clears=(held.clears if held else 0) + (twist == "clears"), revision=revision),
            tasks=[TaskChange(found, row)],
            **returned(output_row(run, task, value=value), attempt=attempt),
            history=history(event_row(run, task)),
            pools=[PoolLimit("public", pool, slots) for pool, slots in SLOTS.items() if limits],
            is_operator_action=intervenes,
            lease=LEASE,
        )
        result = self.apply(change)
        expected = self.judge(held, twist, task, row, limits=limits)
        if expected is not None:
            assert result == expected
            return
        assert held is not None
        assert result == Applied(held.revision + 1)
        rows = held.tasks | {task: replace(row, lease_until=self.lease() if state.is_claimed else None)}
        outputs = held.outputs | {task: value}
        clears = held.clears + intervenes
        ended = (*held.ended, (task, attempt))
        self.held[run] = Held(held.revision + 1, clears, held.state, rows, outputs, held.events + 1, ended)

    def judge(self, held: Held | None, twist: str, task: str, row: TaskRow, *, limits: bool) -> Refused | None:
        """Return how the change should be refused, if it should."""
        if twist == "fence":
            return Refused("fenced")
        if held is None or twist:
            return Refused("stale")
        others = sum(
            one.pool == "gpu" and one.state.is_claimed
            for other in self.held.values()
            for one in other.tasks.values()
            if not (other is held and one.task == task)
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
        assert [(one.run.id, one.task.task) for one in given] == expected
        for run, task in expected:
            row = self.held[run].tasks[task]
            self.held[run].tasks[task] = replace(
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
            held, number = self.held[run], sum(one == run for one, _ in expected)
            self.held[run] = held._replace(revision=held.revision + 1, events=held.events + number)

    def choose(self, room: int, pools: dict[str, int]) -> list[tuple[str, str]]:
        """Return what a claim should give, in order."""
        if self.is_paused:
            return []
        rows = [(run, row) for run, held in self.held.items() for row in held.tasks.values()]
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
            row = self.held[key.run].tasks[key.task] if key.run in self.held else None
            if row and row.state.is_claimed and (row.attempt, row.claimed_by) == (attempt, owner):
                self.held[key.run].tasks[key.task] = replace(row, lease_until=self.lease())
                alive.add(key)
        assert self.runner.run(self.store.runs.renew_leases(owner, keys, LEASE)) == alive

    @rule(run=runs)
    def end(self, run: str) -> None:
        """End a run, and let retention take it."""
        if run not in self.held:
            return
        row = run_row(run, state=RunState.SUCCESS, ended_at=NOON)
        assert isinstance(self.apply(Change(run=run, updated_run=row)), Applied)
        assert self.runner.run(self.store.runs.prune("public", NOON + timedelta(seconds=1), 10)) == 1
        del self.held[run]

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.store.close())
        self.store = self.place.store(self.clock.now)
        self.runner.run(self.store.open())

    @invariant()
    def store_and_model_agree(self) -> None:
        async def read() -> None:
            stored = self.store.runs
            records = {record.run.id: record for record in await stored.load(RUNS)}
            assert records.keys() == self.held.keys()
            for run, held in self.held.items():
                record = records[run]
                assert (record.run.revision, record.run.clears) == (held.revision, held.clears)
                assert {row.task: row for row in record.tasks} == held.tasks
                outputs = {one.key.task: one.value for one in await stored.read_outputs(run, TASKS)}
                assert outputs == held.outputs
                assert len(await stored.read_events(run)) == held.events
                begun = [(row.task, row.attempt) for row in held.tasks.values() if row.state.is_claimed]
                assert [(one.key.task, one.key.attempt) for one in await stored.read_attempts(run)] == sorted(
                    [*begun, *held.ended]
                )
            claimed = [row for held in self.held.values() for row in held.tasks.values() if row.state.is_claimed]
            assert await stored.list_claim_owners() == {row.claimed_by for row in claimed}
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
            return replace(row, claimed_by="somebody else")
        case _:
            return row


class MemoryMachine(RunMachine):
    """On memory."""

    def make_place(self) -> Place:
        return MemoryPlace(self.clock.now)


class SqliteMachine(RunMachine):
    """On a file."""

    def make_place(self) -> Place:
        self.folder = tempfile.TemporaryDirectory()
        return SqlitePlace(Path(self.folder.name) / "tidemill.db")

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


@pytest.mark.parametrize("machine", [MemoryMachine, SqliteMachine])
def test_runs_hold_what_a_model_holds(machine: type[RunMachine]) -> None:
    """W-1, W-8, W-13: nothing half written, nothing given twice, whatever was refused in between."""
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=30))
