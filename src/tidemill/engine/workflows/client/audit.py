"""The audit of active runs: whether their rows match their history, and whether their claims have a living owner.

The checks change nothing and need nothing but rows. Runs that have ended are not checked.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from tidemill.engine.audit_findings import Finding, format_timespan, note_finding, problem_finding
from tidemill.engine.workflows.process_identity import HostLiveness
from tidemill.engine.workflows.versions import LoadedCode, code_note, read_loaded_code
from tidemill.storage.tables.versions import Versions, WorkflowVersion
from tidemill.storage.workflow_ports import NodeRow, WorkflowStore
from tidemill.workflows.definition import WORKER_EXECUTOR
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import EventRow, RunRecord, TaskRow
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RUN_TRANSITIONS, TASK_TRANSITIONS, RunState, TaskState

AUDITED_RUN_LIMIT = 1000  # runs, oldest first, whose history is read
OVERDUE_AFTER = timedelta(minutes=10)  # after which a running node would have processed anything that is due

HistoryKey = tuple[str, int] | None
"""A task of a run; None for the run itself."""


class RunsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The number of active runs, and the problems found in them."""

    active_runs: int
    findings: list[Finding]


async def audit_runs(store: WorkflowStore, now: datetime) -> RunsReport:
    """Audit the active runs of an open store."""
    liveness = HostLiveness()
    code = await read_loaded_code(store, liveness)
    newest = NewestVersions(store.versions)
    active = await store.runs.list_active()
    known = await store.owners.list_all()
    owners = {owner.id for owner in known}
    records = await store.runs.load([revision.run for revision in active[:AUDITED_RUN_LIMIT]])
    planners = [owner for owner in known if owner.plans and not liveness.is_dead(owner)]
    findings = list(_audit_nodes(len(active), planners))
    for record in records:
        run = record.run
        findings += _audit_version(record, await store.versions.get(run.version_key))
        findings += _audit_code(record, code, await newest.get(run.tenant, run.workflow))
        findings += audit_run(record, await store.runs.read_events(run.id), owners, now)
    return RunsReport(active_runs=len(active), findings=findings)


def audit_run(
    record: RunRecord, history: Sequence[EventRow], owners: Collection[str], now: datetime
) -> Iterator[Finding]:
    """Yield the problems of one active run."""
    yield from _audit_history(record, history)
    yield from _audit_end(record, now)
    for row in record.tasks:
        if row.state.is_claimed:
            yield from _audit_claim(record, row, owners, now)
        elif row.state is TaskState.SCHEDULED and owners:
            yield from _audit_wait(record, row, now)


def _audit_nodes(active: int, alive: Collection[NodeRow]) -> Iterator[Finding]:
    """Check that a node runs if there are active runs."""
    if active and not alive:
        runs = "1 run has" if active == 1 else f"{active:,} runs have"
        yield note_finding(
            "nodes", f"{runs} not ended, and no node is running on this store.", "Start one to continue them."
        )


def _run_label(record: RunRecord) -> str:
    return f"run {record.run.id} of {record.run.tenant}/{record.run.workflow}"


def _task_label(row: TaskRow) -> str:
    return f"task '{row.task}'" if row.index == UNMAPPED else f"element {row.index} of task '{row.task}'"


def _audit_version(record: RunRecord, version: WorkflowVersion | None) -> Iterator[Finding]:
    """Check that the version of a run can be read."""
    pinned = f"version {record.run.version} of its workflow, which it is pinned to,"
    try:
        if version is not None:
            msgspec.json.decode(version.spec, type=WorkflowSpec)
            return
        problem = "is not stored."
    except msgspec.DecodeError as error:
        problem = f"cannot be read: {error}."
    advice = "No node can plan it. Load that version again, restore a backup, or cancel it: `tidemill runs cancel`."
    yield problem_finding(_run_label(record), f"{pinned} {problem}", advice)


class NewestVersions:
    """The version of each workflow that any node loaded last, read once per tenant."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._by_tenant: dict[str, dict[str, WorkflowVersion]] = {}

    async def get(self, tenant: str, workflow: str) -> WorkflowVersion | None:
        """Return the newest version of a workflow; None if none is stored."""
        if tenant not in self._by_tenant:
            stored = await self._versions.for_tenant(tenant)
            self._by_tenant[tenant] = {version.key.workflow: version for version in stored}  # the last one wins
        return self._by_tenant[tenant].get(workflow)


def _audit_code(record: RunRecord, code: LoadedCode, newest: WorkflowVersion | None) -> Iterator[Finding]:
    """Check that some node has the code of an unfinished run; while none is running, the next one may still have it."""
    if newest is None:
        return
    try:
        spec = msgspec.json.decode(newest.spec, type=WorkflowSpec)
    except msgspec.DecodeError:  # a separate finding, as soon as a run has this version
        spec = None
    if (note := code_note(record, code, newest.key, spec)) is not None:
        make_finding = problem_finding if code.live_nodes else note_finding
        yield make_finding(
            _run_label(record), f"{note}.", "It counts towards max_active_runs: other runs may queue behind it."
        )


def _audit_history(record: RunRecord, history: Sequence[EventRow]) -> Iterator[Finding]:
    """Check that each event follows the one before, and that the last ones match the states of the rows."""
    states: dict[HistoryKey, str] = {None: RunState.QUEUED}
    for event in history:
        ref = None if event.task is None else (event.task, event.index)
        if states.get(ref, TaskState.NONE) != event.before or not _is_legal(event):
            yield _broken_history(record, f"a move from {event.before} to {event.after} that could not follow")
            return
        states[ref] = event.after
    if states[None] != record.run.state:
        yield _broken_history(record, f"that it is {states[None]}, and it is {record.run.state}")
    for row in record.tasks:
        recorded = states.get((row.task, row.index), TaskState.NONE)
        if recorded != row.state:
            yield _broken_history(record, f"that {_task_label(row)} is {recorded}, and it is {row.state}")


def _is_legal(event: EventRow) -> bool:
    try:
        if event.task is None:
            return RUN_TRANSITIONS.is_allowed(RunState(event.before), RunState(event.after))
        return TASK_TRANSITIONS.is_allowed(TaskState(event.before), TaskState(event.after))
    except ValueError:  # not a known state
        return False


def _broken_history(record: RunRecord, content: str) -> Finding:
    return problem_finding(
        _run_label(record),
        f"its history tells {content}.",
        "Something else than Tidemill has changed the tables runs, task_runs or run_events, or they are damaged.",
        "It may continue all the same: inspect it with `tidemill runs show --timeline`, and cancel it if in doubt.",
    )


def _audit_end(record: RunRecord, now: datetime) -> Iterator[Finding]:
    """Check for a run that is running although all its tasks have ended."""
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
    """Check for a scheduled task that no node or worker claims."""
    age = now - row.since if row.since is not None else timedelta(0)
    kind = "worker" if row.executor == WORKER_EXECUTOR else "node"
    labels = "no worker has its labels, " if kind == "worker" else ""
    if age > OVERDUE_AFTER:
        yield note_finding(
            _run_label(record),
            f"{_task_label(row)} has been scheduled for {format_timespan(age)}, and no {kind} has claimed it.",
            f"Perhaps it is paused, its pool is full, {labels}or no {kind} has version {record.run.version} of its "
            "workflow: load that, or cancel the run and start it again.",
        )


def _audit_claim(record: RunRecord, row: TaskRow, owners: Collection[str], now: datetime) -> Iterator[Finding]:
    """Check that a claimed task has an owner, a current lease and a registered node."""
    if row.claimed_by is None:
        yield problem_finding(
            _run_label(record),
            f"{_task_label(row)} is {row.state}, and has no owner.",
            "It will never be reported on: `tidemill runs clear` lets it run again.",
        )
        return
    late = now - row.lease_until if row.lease_until is not None else timedelta(0)
    if late > OVERDUE_AFTER:
        yield problem_finding(
            _run_label(record),
            f"{_task_label(row)} is {row.state} at '{row.claimed_by}', which has not been heard of for "
            f"{format_timespan(late)}.",
            "A running node would have recovered it by now: start one on this store.",
        )
    elif row.claimed_by not in owners:
        yield note_finding(
            _run_label(record),
            f"{_task_label(row)} is {row.state} at '{row.claimed_by}', which is no longer registered.",
            "It is retried when its lease has expired.",
        )
