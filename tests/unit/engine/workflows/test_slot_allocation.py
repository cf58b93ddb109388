"""Slot allocation: claims with a change, pools, pauses, and tasks that this node cannot run."""

from types import SimpleNamespace
from typing import Any, cast

from tests.unit.engine.workflows.builders import START, VERSION, active_run, attempts_with, run_row, task_row
from tidemill.engine.workflows.executors.interface import COMMON_SLOTS
from tidemill.engine.workflows.leader.active_runs import ActiveRun
from tidemill.engine.workflows.leader.slots import SlotAllocator
from tidemill.engine.workflows.metrics import WorkflowMetrics
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.settings import Settings
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, current_attempt_key
from tidemill.workflows.run_draft import RunDraft
from tidemill.workflows.states import RunState, TaskState

FAST = ("fast", COMMON_SLOTS)


def allocator(active: dict[str, ActiveRun], slots: int | LocalAttempts, **pools: int) -> SlotAllocator:
    """Return an allocator for a node with executor `fast`, on which version v1 of `flow` is loaded."""
    runtime = SimpleNamespace(
        clock=VirtualClock(),
        pools=SimpleNamespace(sizes=pools),
        owner=SimpleNamespace(id="node"),
        default_executor="fast",
        metrics=WorkflowMetrics(100),
        settings=Settings(),
    )
    versions = SimpleNamespace(loaded={VERSION: object()})
    attempts = attempts_with(fast=slots) if isinstance(slots, int) else slots
    return SlotAllocator(cast(WorkflowRuntime, runtime), active, cast(WorkflowVersions, versions), attempts)


def draft_of(active: ActiveRun) -> RunDraft:
    """Begin a draft of a cached run."""
    return RunDraft(active.run, active.rows, active.spec, now=START, actor="node")


def test_granted_tasks_are_claimed_with_the_next_change_of_their_run() -> None:
    """W-1: the claim is part of the draft."""
    active = active_run(run_row(), task_row("a"), task_row("b"), task_row("c"))
    slots = allocator({"r1": active}, slots=2)
    slots.enqueue(active, active.waiting_tasks())
    assert slots.assign() == [active]
    assert [ref[0] for ref in active.grants] == ["a", "b"]
    claimed = slots.claim(active, draft_of(active))
    assert [(row.task, row.state, row.claimed_by) for row in claimed] == [
        ("a", TaskState.RUNNING, "node"),
        ("b", TaskState.RUNNING, "node"),
    ]
    assert slots.has_waiting


def test_the_class_of_a_slot_is_asked_once_for_each_task() -> None:
    """Also for the elements of a mapped task, and by the change that frees the slot; again once the code is loaded."""
    active = active_run(run_row(), *(task_row("a", index=number) for number in range(3)))
    attempts, asked = attempts_with(fast=3), list[str]()
    cast(Any, attempts.executors["fast"]).slot_class = lambda _, task: asked.append(task) or COMMON_SLOTS
    slots = allocator({"r1": active}, attempts)
    slots.enqueue(active, active.waiting_tasks())
    slots.assign()
    claimed = slots.claim(active, draft_of(active))
    slots.keep_freed(active, current_attempt_key(active.run.id, claimed[0]))
    assert asked == ["a"]
    slots.enqueue_version(VERSION)
    assert asked == ["a", "a"]


def test_a_grant_that_is_not_needed_is_released() -> None:
    """The task was cancelled between the grant and the change."""
    active = active_run(run_row(), task_row("a"))
    slots = allocator({"r1": active}, slots=1)
    slots.enqueue(active, active.waiting_tasks())
    slots.assign()
    active.rows = {("a", UNMAPPED): task_row("a", TaskState.CANCELLED)}
    assert slots.claim(active, draft_of(active)) == []
    assert slots.executor_slots.free_slots(FAST, VERSION) == 1


def test_a_full_pool_parks_tasks_until_it_frees_a_slot() -> None:
    """Pools: the slot of the executor is released meanwhile."""
    rows = [task_row("a", TaskState.RUNNING, pool="db"), task_row("b", pool="db")]
    active = active_run(run_row(), *rows)
    slots = allocator({"r1": active}, slots=5, db=1)
    assert not slots.update_pool_usage(active, {}, active.rows)
    slots.enqueue(active, active.waiting_tasks())
    assert slots.assign() == [active]
    assert slots.claim(active, draft_of(active)) == []
    assert (slots.assign(), slots.executor_slots.free_slots(FAST, VERSION)) == ([], 5)
    before, active.rows = active.rows, active.rows | {("a", UNMAPPED): task_row("a", TaskState.SUCCESS, pool="db")}
    assert slots.update_pool_usage(active, before, active.rows)
    assert slots.assign() == [active]
    assert [row.task for row in slots.claim(active, draft_of(active))] == ["b"]


def test_tasks_that_cannot_run_here_are_left_to_other_nodes() -> None:
    """Their pool, their code or their executor is missing."""
    active = active_run(run_row(), task_row("a", pool="gpu"), task_row("b", executor="elsewhere"))
    other = active_run(run_row("r2"), task_row("c"))
    other.version = VERSION._replace(version="v2")
    slots = allocator({"r1": active, "r2": other}, slots=5)
    for run in (active, other):
        slots.enqueue(run, run.waiting_tasks())
    assert slots.assign() == []
    other.version = VERSION
    slots.enqueue_version(VERSION)
    assert slots.assign() == [other]


def test_a_pause_holds_tasks_and_runs_back_until_it_ends() -> None:
    """Pausing: the allocator says which runs may begin when it is over."""
    waits, queued = active_run(run_row("r1"), task_row("a")), active_run(run_row("r2", RunState.QUEUED))
    slots = allocator({"r1": waits, "r2": queued}, slots=5)
    for active in (waits, queued):
        slots.admission.put(active.run)
    assert slots.open_admission() == ["r2"]
    assert slots.apply_pauses({("public", "flow")}) == []
    slots.enqueue(waits, waits.waiting_tasks())
    assert slots.assign() == []
    assert slots.apply_pauses(set()) == ["r2"]
    assert slots.assign() == [waits]


def test_claims_that_were_not_written_wait_again() -> None:
    """The change was refused: the slots are free, and the tasks are queued."""
    active = active_run(run_row(), task_row("a"))
    slots = allocator({"r1": active}, slots=1)
    slots.enqueue(active, active.waiting_tasks())
    slots.assign()
    claimed = slots.claim(active, draft_of(active))
    assert slots.executor_slots.free_slots(FAST, VERSION) == 0
    slots.release_claims(active, claimed)
    assert slots.assign() == [active]


def test_a_freed_slot_is_kept_until_the_change_of_its_run_is_made() -> None:
    """W-6: no task of another run gets it in between, and it is free again if the run does not need it."""
    ended = active_run(run_row("r1"), task_row("a", TaskState.RUNNING))
    waiting = active_run(run_row("r2"), task_row("b"))
    slots = allocator({"r1": ended, "r2": waiting}, slots=1)
    slots.enqueue(waiting, waiting.waiting_tasks())
    slots.keep_freed(ended, AttemptKey(ended.run.id, "a", UNMAPPED, 1))
    slots.keep_freed(ended, AttemptKey(ended.run.id, "removed", 3, 1))  # a late report: nothing to keep
    assert slots.assign() == []
    slots.release_kept(ended)
    assert slots.assign() == [waiting]
