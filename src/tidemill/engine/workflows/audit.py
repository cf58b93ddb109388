"""The audit of the runs that have not ended: whether their rows and their history tell one story, and who has them.

The checks change nothing and need nothing but rows. What has ended harms nobody any more, and is left alone.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from tidemill.engine.audit_findings import Finding, format_timespan, note_finding, problem_finding
from tidemill.engine.workflows.process_identity import ProcessLiveness
from tidemill.storage.workflow_ports import Owner, WorkflowStore, WorkflowVersion
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import EventRow, RunRecord, TaskRow
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RUN_TRANSITIONS, TASK_TRANSITIONS, RunState, TaskState

AUDITED_RUN_LIMIT = 1000  # runs, the oldest, whose history is read
OVERDUE_AFTER = timedelta(minutes=10)  # after which a node that lives would have seen to it, whatever it is

HistoryKey = tuple[str, int] | None
"""A task run of a run; None for the run itself."""


class RunsReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs have not ended, and what is wrong with them."""

    active_runs: int
    findings: list[Finding]


async def audit_runs(store: WorkflowStore, now: datetime, liveness: ProcessLiveness) -> RunsReport:
    """Read the runs of a store that was opened or is looked at, and audit them; `now` is the time of whoever asks."""
    active = await store.runs.list_active()
    known = await store.owners.list_all()
    owners = {owner.id for owner in known}
    records = await store.runs.load([one.run for one in active[:AUDITED_RUN_LIMIT]])
    findings = list(_audit_nodes(len(active), [owner for owner in known if not liveness.is_dead(owner)]))
    for record in records:
        run = record.run
        findings += _audit_version(record, await store.versions.get(run.version_key))
        findings += audit_run(record, await store.runs.read_events(run.id), owners, now)
    return RunsReport(active_runs=len(active), findings=findings)


def audit_run(
    record: RunRecord, history: Sequence[EventRow], owners: Collection[str], now: datetime
) -> Iterator[Finding]:
    """Yield what is wrong with one run that has not ended."""
    yield from _audit_history(record, history)
    yield from _audit_end(record, now)
    for row in record.tasks:
        if row.state.is_claimed:
            yield from _audit_claim(record, row, owners, now)
        elif row.state is TaskState.SCHEDULED and owners:
            yield from _audit_wait(record, row, now)


def _audit_nodes(active: int, alive: Collection[Owner]) -> Iterator[Finding]:
    """Look whether anybody sees to the runs at all."""
    if active and not alive:
        have = "1 run has" if active == 1 else f"{active:,} runs have"
        yield note_finding(
            "nodes", f"{have} not ended, and no node is running on this store.", "Start one to go on with them."
        )


def _run_label(record: RunRecord) -> str:
    return f"run {record.run.id} of {record.run.tenant}/{record.run.workflow}"


def _task_label(row: TaskRow) -> str:
    return f"task '{row.task}'" if row.index == UNMAPPED else f"element {row.index} of task '{row.task}'"


def _audit_version(record: RunRecord, version: WorkflowVersion | None) -> Iterator[Finding]:
    """Look whether anybody could plan a run."""
    pinned = f"version {record.run.version} of its workflow, which it is pinned to,"
    try:
        if version is not None:
            msgspec.json.decode(version.spec, type=WorkflowSpec)
            return
        what = "is not stored."
    except msgspec.DecodeError as error:
        what = f"cannot be read: {error}."
    advice = "Nobody can plan it. Load that version again, restore a backup, or cancel it: `tidemill runs cancel`."
    yield problem_finding(_run_label(record), f"{pinned} {what}", advice)


def _audit_history(record: RunRecord, history: Sequence[EventRow]) -> Iterator[Finding]:
    """Compare the events with one another, and with where the run and its task runs stand."""
    stands: dict[HistoryKey, str] = {None: RunState.QUEUED}
    for event in history:
        place = None if event.task is None else (event.task, event.index)
        if stands.get(place, TaskState.NONE) != event.before or not _is_legal(event):
            yield _broken_history(record, f"a move from {event.before} to {event.after} that could not follow")
            return
        stands[place] = event.after
    if stands[None] != record.run.state:
        yield _broken_history(record, f"that it is {stands[None]}, and it is {record.run.state}")
    for row in record.tasks:
        told = stands.get((row.task, row.index), TaskState.NONE)
        if told != row.state:
            yield _broken_history(record, f"that {_task_label(row)} is {told}, and it is {row.state}")


def _is_legal(event: EventRow) -> bool:
    try:
        if event.task is None:
            return RUN_TRANSITIONS.is_allowed(RunState(event.before), RunState(event.after))
        return TASK_TRANSITIONS.is_allowed(TaskState(event.before), TaskState(event.after))
    except ValueError:  # a word that is no state
        return False


def _broken_history(record: RunRecord, said: str) -> Finding:
    return problem_finding(
        _run_label(record),
        f"its history tells {said}.",
        "Something else than Tidemill has changed the tables runs, task_runs or run_events, or they are damaged.",
        "It may run on all the same: look at it with `tidemill runs show --timeline`, and cancel it if in doubt.",
    )


def _audit_end(record: RunRecord, now: datetime) -> Iterator[Finding]:
    """Look for a run that goes on although nothing of it does."""
    if record.run.state is not RunState.RUNNING or not all(row.state.is_terminal for row in record.tasks):
        return
    ends = [row.ended_at for row in record.tasks if row.ended_at is not None]
    age = now - max(ends, default=record.run.started_at or record.run.created_at)
    if age > OVERDUE_AFTER:
        yield problem_finding(
            _run_label(record),
            f"all its tasks have ended, the last one {format_timespan(age)} ago, and it is still running.",
            "A node would have ended it by now: start one on this store.",
        )


def _audit_wait(record: RunRecord, row: TaskRow, now: datetime) -> Iterator[Finding]:
    """Look for a task run that nobody takes."""
    age = now - row.since if row.since is not None else timedelta(0)
    if age > OVERDUE_AFTER:
        yield note_finding(
            _run_label(record),
            f"{_task_label(row)} has been scheduled for {format_timespan(age)}, and nobody has taken it.",
            f"Perhaps it is paused, its pool is full, or no node has version {record.run.version} of its workflow: "
            "load that, or cancel the run and start it again.",
        )


def _audit_claim(record: RunRecord, row: TaskRow, owners: Collection[str], now: datetime) -> Iterator[Finding]:
    """Look at who has a task run, and whether anybody still does."""
    if row.claimed_by is None:
        yield problem_finding(
            _run_label(record),
            f"{_task_label(row)} is {row.state}, and claimed by nobody.",
            "Nobody will ever report on it: `tidemill runs clear` lets it run again.",
        )
        return
    late = now - row.lease_until if row.lease_until is not None else timedelta(0)
    if late > OVERDUE_AFTER:
        yield problem_finding(
            _run_label(record),
            f"{_task_label(row)} is {row.state} at '{row.claimed_by}', which has not been heard of for "
            f"{format_timespan(late)}.",
            "A node would have given it to somebody else by now: start one on this store.",
        )
    elif row.claimed_by not in owners:
        yield note_finding(
            _run_label(record),
            f"{_task_label(row)} is {row.state} at '{row.claimed_by}', which nobody knows any more.",
            "It is tried again when its lease has run out.",
        )
