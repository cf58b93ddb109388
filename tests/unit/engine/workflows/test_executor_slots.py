"""Executor slots: which waiting task gets the next free slot, and that no slot is granted twice."""

from typing import Any

import pytest

from tests.unit.engine.workflows.builders import VERSION, attempts_with, later, task_row
from tidemill.engine.workflows.executors.interface import COMMON_SLOTS
from tidemill.engine.workflows.leader.slots import KEPT_SLOT_LIMIT, ExecutorSlots, SlotKey, SlotRequest
from tidemill.kernel.clock import VirtualClock
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import TaskRow, VersionKey

FAST = ("fast", COMMON_SLOTS)
ACME = VERSION._replace(tenant="acme")


def slots_with(clock: VirtualClock | None = None, **attempts: Any) -> ExecutorSlots:
    """Return the slots of a fake of the node's attempts."""
    return ExecutorSlots(attempts_with(**attempts), clock or VirtualClock(), {"acme": 2})


def request(slots: ExecutorSlots, run: str, row: TaskRow, version: VersionKey) -> SlotRequest:
    """Return the request of a task for a slot."""
    return SlotRequest(run, (row.task, row.index), version, slots.key_of(row, version))


def enqueue(slots: ExecutorSlots, run: str, row: TaskRow, version: VersionKey) -> None:
    """Queue a task for a slot."""
    slots.enqueue(request(slots, run, row, version), row)


def reserve(slots: ExecutorSlots, run: str, row: TaskRow, version: VersionKey, freed: list[SlotKey]) -> bool:
    """Reserve a slot for a task; return whether it got one."""
    return slots.reserve(request(slots, run, row, version), row, freed)


def granted(slots: ExecutorSlots, only_run: str | None = None) -> list[tuple[str, str]]:
    """Grant all free slots; return (run, task) in the order of the grants."""
    return [(task.run, task.ref[0]) for task in slots.reserve_for_waiting(lambda _: True, only_run)]


def test_the_highest_priority_is_first() -> None:
    """W-6: whatever the order in which the tasks became ready."""
    slots = slots_with(fast=3)
    for name, priority in [("low", 1), ("high", 9), ("middle", 5)]:
        enqueue(slots, "r1", task_row(name, priority=priority), VERSION)
    assert granted(slots) == [("r1", "high"), ("r1", "middle"), ("r1", "low")]


def test_older_runs_are_next_and_then_the_longest_wait() -> None:
    """W-6: begun work is finished first."""
    slots = slots_with(fast=3)
    enqueue(slots, "r2", task_row("b", since=later(0)), VERSION)
    enqueue(slots, "r1", task_row("late", since=later(9)), VERSION)
    enqueue(slots, "r1", task_row("early", since=later(1)), VERSION)
    assert granted(slots) == [("r1", "early"), ("r1", "late"), ("r2", "b")]


def test_no_more_is_granted_than_is_free() -> None:
    """W-6: a grant is reserved until it is released."""
    slots = slots_with(fast=2)
    for number in range(3):
        enqueue(slots, "r1", task_row(f"t{number}"), VERSION)
    assert len(granted(slots)) == 2
    assert slots.free_slots(FAST, VERSION) == 0
    assert granted(slots) == []
    slots.release("r1", ("t0", UNMAPPED))
    assert granted(slots) == [("r1", "t2")]


def test_a_task_waits_once() -> None:
    """A task that is queued again, for whatever reason, is granted one slot."""
    slots = slots_with(fast=5)
    enqueue(slots, "r1", task_row(), VERSION)
    enqueue(slots, "r1", task_row(), VERSION)
    assert granted(slots) == [("r1", "work")]


def test_a_task_that_is_no_longer_wanted_takes_no_slot() -> None:
    """It was cancelled or paused while it waited."""
    slots = slots_with(fast=1)
    enqueue(slots, "r1", task_row("gone"), VERSION)
    enqueue(slots, "r1", task_row("there"), VERSION)
    found = list(slots.reserve_for_waiting(lambda task: task.ref[0] == "there"))
    assert [task.ref[0] for task in found] == ["there"]


def test_a_run_in_progress_takes_slots_only_while_it_is_next() -> None:
    """It must not overtake a task of higher priority of another run."""
    slots = slots_with(fast=9)
    enqueue(slots, "r1", task_row("a", priority=5), VERSION)
    enqueue(slots, "r2", task_row("b", priority=3), VERSION)
    enqueue(slots, "r1", task_row("c", priority=1), VERSION)
    assert granted(slots, only_run="r1") == [("r1", "a")]
    assert granted(slots, only_run="r2") == [("r2", "b")]


def test_each_executor_has_its_own_queue() -> None:
    """A full executor holds up no task of another one."""
    slots = slots_with(fast=0, slow=1)
    enqueue(slots, "r1", task_row("a"), VERSION)
    enqueue(slots, "r1", task_row("b", executor="slow"), VERSION)
    assert granted(slots) == [("r1", "b")]
    assert slots.waiting


def test_only_what_starts_later_needs_a_slot_of_the_dispatch_queue() -> None:
    """W-6: while the queue is full, tasks whose code is not imported yet stay scheduled."""
    cold = VERSION._replace(version="v2")
    slots = slots_with(fast=3, cold=[cold])
    assert [reserve(slots, "r1", task_row(name), cold, []) for name in "ab"] == [True, False]
    assert reserve(slots, "r1", task_row("b"), VERSION, [])
    for name in "ab":
        slots.release("r1", (name, UNMAPPED))
    for name in ("a", "b"):
        enqueue(slots, "r1", task_row(name), cold)
    assert granted(slots) == [("r1", "a")]
    assert slots.has_waiting_for_dispatch()
    slots.release("r1", ("a", UNMAPPED))
    assert granted(slots) == [("r1", "b")]


def test_a_ready_task_gets_a_slot_unless_another_one_waits() -> None:
    """A draft's ready tasks get their slots at once, as far as there are any."""
    slots = slots_with(fast=2)
    assert [reserve(slots, "r1", task_row(name), VERSION, []) for name in "abc"] == [True, True, False]
    slots.release("r1", ("a", UNMAPPED))
    enqueue(slots, "r2", task_row("waits"), VERSION)
    assert not reserve(slots, "r1", task_row("c"), VERSION, [])


def test_a_run_keeps_the_slots_that_its_tasks_have_freed() -> None:
    """W-6: the end of a task and the claim of the next one are one change; each slot is kept once."""
    slots, freed = slots_with(fast=2), [FAST]
    enqueue(slots, "r2", task_row("waits"), VERSION)
    assert reserve(slots, "r1", task_row("next"), VERSION, freed)
    assert not reserve(slots, "r1", task_row("beside"), VERSION, freed)
    assert granted(slots) == [("r2", "waits")]


def test_a_freed_slot_goes_to_a_task_of_higher_priority() -> None:
    """W-6: priorities count across runs, also against the run that has freed the slot."""
    slots = slots_with(fast=1)
    enqueue(slots, "r2", task_row("urgent", priority=1), VERSION)
    assert not reserve(slots, "r1", task_row("next"), VERSION, [FAST])
    assert reserve(slots, "r1", task_row("next", priority=2), VERSION, [FAST])


@pytest.mark.parametrize(("waiting", "is_kept"), [("r1", False), ("r3", True)])
def test_older_runs_wait_only_for_a_while_for_slots_that_younger_ones_free(waiting: str, is_kept: bool) -> None:
    """W-6: a run with many tasks in a row must not hold up an older one until its end, and no younger one overtakes."""
    clock = VirtualClock()
    slots = slots_with(clock, fast=1)
    enqueue(slots, waiting, task_row("waits"), VERSION)
    assert reserve(slots, "r2", task_row("next"), VERSION, [FAST])
    slots.release("r2", ("next", UNMAPPED))
    clock.step("-1h")  # the wall clock does not count
    clock.advance_to(clock.monotonic() + 2 * KEPT_SLOT_LIMIT)
    assert reserve(slots, "r2", task_row("next"), VERSION, [FAST]) is is_kept


def test_tenants_get_slots_by_their_weights() -> None:
    """W-6: whatever their priorities and the age of their runs; the order of a tenant is its own."""
    slots = slots_with(fast=6)
    for number in range(6):
        enqueue(slots, f"r{number}", task_row("urgent", priority=number), ACME)
        enqueue(slots, f"s{number}", task_row("work"), VERSION)
    runs = granted(slots)
    assert [run for run, task in runs if task == "urgent"] == ["r5", "r4", "r3", "r2"]
    assert [run for run, task in runs if task == "work"] == ["s0", "s1"]


def test_tasks_that_are_no_longer_wanted_use_no_turn() -> None:
    """W-6: a tenant that cancels its runs waits for no slots that it did not get."""
    slots = slots_with(fast=1)
    for number in range(800):
        enqueue(slots, f"a{number:03}", task_row("cancelled"), ACME)
    for number in range(4):
        enqueue(slots, f"p{number}", task_row("work"), VERSION)
    enqueue(slots, "b", task_row("work"), ACME)
    begun = []
    for _ in range(3):
        ((run, ref, *_),) = slots.reserve_for_waiting(lambda task: task.ref[0] != "cancelled")
        begun.append(run)
        slots.release(run, ref)
    assert "b" in begun[:2]


def test_a_freed_slot_goes_to_a_tenant_with_a_smaller_share() -> None:
    """W-6: even if its run is younger, and unless the tenant of the run that freed it is not above its own share."""
    slots = slots_with(fast=4)
    for run in ("r1", "r2", "r3"):
        assert reserve(slots, run, task_row("work"), VERSION, [])
    enqueue(slots, "r9", task_row("work"), ACME)
    assert not reserve(slots, "r1", task_row("next"), VERSION, [FAST])
    slots.release("r1", ("work", UNMAPPED))
    slots.release("r2", ("work", UNMAPPED))
    assert granted(slots) == [("r9", "work")]
    enqueue(slots, "r8", task_row("work"), ACME)
    assert reserve(slots, "r3", task_row("next"), VERSION, [FAST])


def test_a_task_that_needs_another_class_of_slots_holds_up_none() -> None:
    """Coroutines start while all threads are taken, in their own order."""
    slots = slots_with(fast=0, coroutines=2)
    enqueue(slots, "r1", task_row("blocks", priority=9), VERSION)
    for name in ("async_a", "async_b", "async_c"):
        enqueue(slots, "r1", task_row(name), VERSION)
    assert granted(slots) == [("r1", "async_a"), ("r1", "async_b")]


def test_reserved_slots_of_one_class_hold_up_no_task_of_another() -> None:
    """W-6: a thread is free although the slots of coroutines are reserved, and the other way round."""
    slots = slots_with(fast=1, coroutines=2)
    assert all(reserve(slots, "r1", task_row(name), VERSION, []) for name in ("async_a", "async_b"))
    assert reserve(slots, "r1", task_row("plain"), VERSION, [])
    assert not reserve(slots, "r1", task_row("async_c"), VERSION, [])
    assert not reserve(slots, "r1", task_row("other"), VERSION, [FAST])


def test_a_task_has_one_reserved_slot_at_most() -> None:
    """A task that is queued again while its claim is written gets no second slot, and its slot is released once."""
    slots = slots_with(fast=2)
    assert reserve(slots, "r1", task_row("a"), VERSION, [])
    enqueue(slots, "r1", task_row("a"), VERSION)
    assert granted(slots) == []
    for _ in range(2):
        slots.release("r1", ("a", UNMAPPED))
    assert slots.free_slots(FAST, VERSION) == 2


def test_a_parked_task_waits_for_its_pool() -> None:
    """Tasks parked on a pool are requeued when it frees a slot, and only those of that pool."""
    slots = slots_with(fast=9)
    for row in (task_row("a", pool="db"), task_row("b", pool="gpu")):
        slots.park(request(slots, "r1", row, VERSION), row)
    assert granted(slots) == []
    slots.unpark("db")
    assert granted(slots) == [("r1", "a")]
    slots.unpark()
    assert granted(slots) == [("r1", "b")]


def test_an_executor_is_asked_once_for_the_slots_of_a_task() -> None:
    """Not for each of its runs; it is asked again when code was loaded, without which it has answered before."""
    asked: list[str] = []

    def slot_class(_: VersionKey, task: str) -> str:
        asked.append(task)
        return COMMON_SLOTS

    attempts = attempts_with(fast=9)
    attempts.executors["fast"].slot_class = slot_class
    slots = ExecutorSlots(attempts, VirtualClock(), {})
    for run in ("r1", "r2"):
        assert reserve(slots, run, task_row("a"), VERSION, [])
    assert asked == ["a"]
    assert reserve(slots, "r3", task_row("a"), ACME, [])
    slots.forget_slot_classes()
    assert reserve(slots, "r4", task_row("a"), VERSION, [])
    assert asked == ["a", "a", "a"]
