"""What people do with runs: look, ask why, cancel, clear, annotate.

All of it goes through the store, so it works on any node, and without one: whoever plans sees the change.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from tidemill.annotations.codec import decode_untyped
from tidemill.engine.workflows.executors.code import VersionCache
from tidemill.engine.workflows.executors.runner import TaskRunner
from tidemill.engine.workflows.leader.active_runs import FinishedRun
from tidemill.engine.workflows.process_identity import ProcessLiveness
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, RequestError, StoreError
from tidemill.kernel.limits import is_storable, make_storable
from tidemill.storage.workflow_ports import RunFilter, RunNote, WorkflowStore
from tidemill.workflows.change import Applied, Change
from tidemill.workflows.clearing import (
    OperatorAction,
    VersionSwitch,
    build_cancel_change,
    plan_clear,
)
from tidemill.workflows.explain import ExplainContext, explain_task
from tidemill.workflows.lookup import pinned_note, unknown_run, unknown_task
from tidemill.workflows.records import AttemptRow, RunRecord, TaskError, TaskKey, VersionKey
from tidemill.workflows.result import RunResult, build_run_result, last_errors
from tidemill.workflows.run_draft import TaskRef
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

CHANGE_ATTEMPT_LIMIT = 20  # at a change that others get ahead of

MakeExplainContext = Callable[[RunRecord, str], ExplainContext]
"""(run, task) -> what is to be known beside the run, for whoever plans it."""


class RunOperations:
    """Commands and questions about runs."""

    def __init__(
        self,
        store: WorkflowStore,
        versions: WorkflowVersions,
        clock: Clock,
        *,
        actor: str,
        liveness: ProcessLiveness,
        on_changed: Callable[[str], None] = lambda run: None,  # noqa: ARG005
    ) -> None:
        self._store = store
        self._versions = versions
        self._clock = clock
        self._actor = actor
        self._on_changed = on_changed
        self._liveness = liveness
        self._runners: VersionCache[TaskRunner] = VersionCache(versions.require_workflow, TaskRunner)

    # -- looking

    async def load_record(self, run: str) -> RunRecord:
        """Return a run as it is; RequestError if there is none."""
        for record in await self._store.runs.load([run]) if is_storable(run) else ():
            return record
        raise unknown_run(run)

    async def load_result(self, run: str, finished: FinishedRun | None = None) -> RunResult:
        """Return a run with what became of its tasks, as of now, or as it was at its end.

        What of it cannot be read is told in its place: a version in the run's reason, an output as its task's error.
        """
        record, outputs = finished or (await self.load_record(run), None)
        spec, trouble = await self._load_spec_or_problem(record)
        attempts = await self._failed_attempts(record)
        if outputs is None:
            stored = await self._store.runs.read_outputs(run, sorted({row.task for row in record.tasks}))
            outputs = {(one.key.task, one.key.element): one.value for one in stored}
        mapped = [task.name for task in spec.tasks if task.each is not None]
        order = {task.name: number for number, task in enumerate(spec.topological_order)}
        arranged = record._replace(tasks=sorted(record.tasks, key=lambda row: order.get(row.task, 0)))
        values, unread = self._decode_outputs(record, outputs)
        found = build_run_result(arranged, last_errors(attempts) | unread, values, mapped)
        return found if trouble is None else replace(found, reason="; ".join(filter(None, [found.reason, trouble])))

    def _decode_outputs(
        self, record: RunRecord, outputs: Mapping[TaskRef, bytes]
    ) -> tuple[dict[TaskKey, Any], dict[TaskKey, TaskError]]:
        """Return the outputs of task runs as values, and what is wrong with those that cannot be read."""
        version = record.run.version_key
        runner = None if self._versions.find_workflow(version) is None else self._runners.get(*version)
        values: dict[TaskKey, Any] = {}
        unread: dict[TaskKey, TaskError] = {}
        succeeded = {(row.task, row.index): row for row in record.tasks if row.state is TaskState.SUCCESS}
        for place in outputs.keys() & succeeded.keys():
            key, value = TaskKey(record.run.id, *place), outputs[place]
            try:  # if its code is not here, plain values are better than none
                if runner is None:
                    values[key] = decode_untyped(value, succeeded[place].variant)
                else:
                    values[key] = runner.decode_value(place[0], value)
            except AUTHOR_ERRORS as error:  # making a value may call author code; the other outputs are sound
                unread[key] = TaskError("UnreadableOutput", describe(error))
        return values, unread

    async def why(self, run: str, task: str, make_context: MakeExplainContext | None = None) -> list[str]:
        """Return why a task has not run, one sentence per reason."""
        record = await self.load_record(run)
        known = make_context(record, task) if make_context is not None else await self._explain_context(record)
        known = replace(known, newest_version=(await self.newest_version(record)).version)
        spec, trouble = await self._load_spec_or_problem(record)
        return explain_task(record, spec, task, known if trouble is None else replace(known, quarantine_reason=trouble))

    async def _failed_attempts(self, record: RunRecord) -> list[AttemptRow]:
        """Return the tries of a run if something in it has failed; else they are not read."""
        has_errors = any(row.state in (TaskState.FAILED, TaskState.UP_FOR_RETRY) for row in record.tasks)
        return await self._store.runs.read_attempts(record.run.id) if has_errors else []

    async def _error_locations(self, record: RunRecord) -> dict[TaskRef, str]:
        """Return where in the author's code tries of a run failed, as file:line."""
        errors = last_errors(await self._failed_attempts(record))
        return {(key.task, key.element): one.place for key, one in errors.items()}

    async def _explain_context(self, record: RunRecord) -> ExplainContext:
        paused = (record.run.tenant, record.run.workflow) in await self._store.schedules.list_paused_workflows()
        running = RunFilter(
            tenant=record.run.tenant,
            workflow=record.run.workflow,
            states=[RunState.RUNNING],
            limit=record.run.max_active + 1,
        )
        others = [row for row in await self._store.runs.find(running) if row.id != record.run.id]
        return ExplainContext(
            now=self._clock.now(),
            paused=paused,
            active_runs=len(others),
            capacity=1,
            live_nodes=await self.count_live_nodes(),
            error_locations=await self._error_locations(
                record
            ),  # for people: a program on a node has the errors themselves
        )

    async def count_live_nodes(self) -> int:
        """Return how many nodes may be alive on the store."""
        return sum(not self._liveness.is_dead(owner) for owner in await self._store.owners.list_all())

    def loaded_versions(self, record: RunRecord) -> list[str]:
        """Return the versions of a run's workflow whose code is here."""
        of = record.run.tenant, record.run.workflow
        return [one.version for one in self._versions.loaded_versions() if (one.tenant, one.workflow) == of]

    async def newest_version(self, record: RunRecord) -> VersionKey:
        """Return the version that new runs of a run's workflow get here; else the one that anybody loaded last."""
        run = record.run
        current = self._versions.current_version(run.tenant, run.workflow)
        if current is not None:
            return current
        stored = [
            one.key for one in await self._store.versions.for_tenant(run.tenant) if one.key.workflow == run.workflow
        ]
        return stored[-1] if stored else run.version_key

    async def pinned_note(self, run: str) -> str | None:
        """Return what is to be known of a run that is not pinned to the newest version; None if it is."""
        record = await self.load_record(run)
        newest = await self.newest_version(record)
        return None if newest == record.run.version_key else pinned_note(record.run, newest.version)

    async def _load_spec(self, record: RunRecord) -> WorkflowSpec:
        return await self._versions.load_spec(record.run.version_key)

    async def _load_spec_or_problem(self, record: RunRecord) -> tuple[WorkflowSpec, str | None]:
        """Return the structure of a run; if that cannot be read, one without tasks, and what is to be done."""
        try:
            return await self._load_spec(record), None
        except StoreError:
            raise
        except OperationError as error:
            nothing = WorkflowSpec(name=record.run.workflow, tasks=())
            return nothing, f"{error}; load that version again, or cancel the run"

    # -- acting

    async def cancel(self, run: str, reason: str = "cancelled") -> None:
        """Cancel a run: what has not ended never will, and running code is stopped."""

        async def change(record: RunRecord, by: OperatorAction) -> Change:
            return build_cancel_change(record, by)

        await self._apply_action(run, _checked_text("the reason", reason), change)

    async def clear(
        self, run: str, tasks: Collection[str] | None, *, preview: bool = False, latest: bool = False
    ) -> list[str]:
        """Let tasks, and all that comes after them, run again; return their names. None: everything that failed.

        With `latest` a run that has ended goes on with the newest version of its workflow.
        """
        record = await self.load_record(run)
        names = plan_clear(record, *await self._clear_target(record, tasks, latest=latest)).names
        if not preview:

            async def change(found: RunRecord, by: OperatorAction) -> Change:
                spec, wanted, succession = await self._clear_target(found, tasks, latest=latest)
                if succession is not None:
                    by = replace(by, reason=f"cleared, to go on with version {succession.version}")
                return plan_clear(found, spec, wanted, succession).build_change(by)

            await self._apply_action(run, "cleared", change)
        return names

    async def elements_cleared(
        self, run: str, tasks: Collection[str] | None, *, latest: bool = False
    ) -> dict[str, tuple[int, int]]:
        """Return how many elements of each mapped task that `clear` names would run again, and how many it has."""
        record = await self.load_record(run)
        return plan_clear(record, *await self._clear_target(record, tasks, latest=latest)).elements

    async def tasks_missing_in_newest(self, run: str) -> list[str]:
        """Return the tasks of a run that the newest version of its workflow does not have."""
        record = await self.load_record(run)
        spec = await self._versions.load_spec(await self.newest_version(record))
        return sorted(record.by_task().keys() - spec.by_name.keys())

    async def _clear_target(
        self, record: RunRecord, tasks: Collection[str] | None, *, latest: bool
    ) -> tuple[WorkflowSpec, Collection[str] | None, VersionSwitch | None]:
        """Return the structure that a run goes on with, what of it is to be cleared, and how it comes to that."""
        if not latest:
            return await self._load_spec(record), tasks, None
        newest = await self.newest_version(record)
        older, trouble = await self._load_spec_or_problem(record)
        numbers: dict[str, tuple[int, int]] = {}
        for one in await self._store.runs.read_attempts(record.run.id):
            attempt, number = numbers.get(one.key.task, (0, 0))
            numbers[one.key.task] = max(attempt, one.key.attempt), max(number, one.number)
        succession = VersionSwitch(
            record=record,
            version=newest.version,
            new_spec=await self._versions.load_spec(newest),
            old_spec=older if trouble is None else None,
            attempt_counters=numbers,
        )
        return succession.new_spec, tasks, succession

    async def _apply_action(
        self, run: str, reason: str, build_change: Callable[[RunRecord, OperatorAction], Awaitable[Change]]
    ) -> None:
        for _ in range(CHANGE_ATTEMPT_LIMIT):
            record = await self.load_record(run)
            by = OperatorAction(at=self._clock.now(), actor=self._actor, reason=reason)
            if isinstance(await self._store.runs.apply(await build_change(record, by)), Applied):
                self._on_changed(run)
                return
        raise OperationError(f"run '{run}' keeps changing: nothing was done; try again")

    async def note(self, run: str, text: str, task: str | None = None) -> None:
        """Write a note on a run, or on one of its tasks; an empty text removes it."""
        text = _checked_text("a note", text)
        record = await self.load_record(run)
        if task is not None and task not in (known := record.by_task()):
            raise unknown_task(record.run.workflow, [task], known)
        await self._store.notes.upsert(RunNote(run, task, text, self._clock.now()))

    async def notes(self, run: str) -> dict[str | None, str]:
        """Return the notes on a run: its own under None, those on tasks under their names."""
        if not is_storable(run):
            raise unknown_run(run)
        return {note.task: note.text for note in await self._store.notes.for_run(run)}


def _checked_text(what: str, text: str) -> str:
    """Return what somebody said as every store can hold it."""
    if not isinstance(text, str):
        raise RequestError(f"{what} is a text, not {text!r}", code="invalid_text")
    return make_storable(text)


def pool_usage(records: Collection[RunRecord], pools: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return how many places of each pool are taken, and how many there are."""
    taken = [row.pool for record in records for row in record.tasks if row.state.is_claimed]
    return {pool: (taken.count(pool), slots) for pool, slots in pools.items()}


def require_aware(moment: datetime, what: str) -> datetime:
    """Return a moment that somebody gave; RequestError unless it says which zone it is in."""
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        message = f"{what} is an aware datetime, such as datetime(2026, 1, 1, tzinfo=UTC), not {moment!r}"
        raise RequestError(message, code="invalid_range")
    return moment
