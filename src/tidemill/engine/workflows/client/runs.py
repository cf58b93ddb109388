"""Reads runs: their rows, results, attempts, events and notes.

Everything comes from the store, so it is the same on any node, and without one.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from tidemill.access.principal import Caller
from tidemill.annotations.codec import decode_untyped
from tidemill.engine.workflows.client.catalog import WorkflowCatalog
from tidemill.engine.workflows.executors.code import VersionCache
from tidemill.engine.workflows.executors.runner import TaskRunner
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.notifications import FinishedRun
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions, find_readable_spec
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.errors import OperationError, RequestError, StoreError
from tidemill.kernel.limits import MAX_INTEGER, is_storable
from tidemill.storage.run_lists import (
    EARLIEST,
    LATEST,
    RunPage,
    RunPosition,
    RunQuery,
    TaskStateCount,
    clamp_to_calendar,
)
from tidemill.storage.workflow_ports import RunFilter
from tidemill.workflows.handlers import HANDLER_ORIGIN
from tidemill.workflows.lookup import resolve_task, split_element, unknown_run, unknown_task
from tidemill.workflows.records import AttemptRow, EventRow, RunRecord, RunRow, TaskError, TaskKey, VersionKey
from tidemill.workflows.result import RunResult, build_run_result, last_errors
from tidemill.workflows.run_draft import TaskRef
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

SEARCH_LIMIT = 10_000  # runs searched for a part of an id


class NamedFields(dict[str, Any]):
    """A value whose class is not loaded: its fields, printed as the class would print itself."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self._name = name

    def __repr__(self) -> str:
        return f"{self._name}({', '.join(f'{name}={value!r}' for name, value in self.items())})"


class ElementPage(NamedTuple):
    """Some elements of a mapped task."""

    record: RunRecord
    """The run, with these elements alone."""
    total: int
    """The number of all that match."""


class RunReader:
    """Reads the runs of a store. A run of another tenant than the caller's is unknown."""

    def __init__(
        self, runtime: WorkflowRuntime, versions: WorkflowVersions, leader: LeaderState, catalog: WorkflowCatalog
    ) -> None:
        self._store = runtime.store
        self._versions = versions
        self._leader = leader
        self._catalog = catalog
        self.runners: VersionCache[TaskRunner] = VersionCache(versions.loaded, TaskRunner)

    # -- lists

    async def find(
        self,
        caller: Caller,
        workflow: str | None = None,
        states: Collection[RunState] = (),
        limit: int = 1000,
    ) -> list[RunRow]:
        """Return the newest runs, oldest first."""
        if type(limit) is not int or limit < 1:
            raise RequestError(f"limit is at least 1, not {limit!r}", code="invalid_limit")
        if workflow is not None and not is_storable(workflow):
            return []
        run_filter = RunFilter(tenant=caller.tenant, workflow=workflow, states=states, limit=min(limit, MAX_INTEGER))
        return await self._store.runs.find(run_filter)

    async def list_page(
        self,
        caller: Caller,
        *,
        workflow: str | None = None,
        states: Collection[RunState] = (),
        since: datetime = EARLIEST,
        until: datetime = LATEST,
        text: str = "",
        tag: str = "",
        cause: str = "",
        key: str = "",
        started_by: str = "",
        unresolved: bool = False,
        after: RunPosition | None = None,
        limit: int = 50,
    ) -> RunPage:
        """Return a page of the list of runs, newest first: those after a position, created in [since, until]."""
        if not all(map(is_storable, (text, cause, key, started_by, workflow or ""))):
            return RunPage([], 0, {})  # no run has what no store can hold
        workflows = None if workflow is None else {workflow}
        if tag:
            tagged = await self._catalog.names_with_tag(caller, tag)
            workflows = tagged if workflows is None else tagged & workflows
        query = RunQuery(
            tenant=caller.tenant,
            workflows=workflows,
            states=states,
            since=clamp_to_calendar(since),
            until=clamp_to_calendar(until),
            text=text,
            cause=cause,
            key=key,
            started_by=started_by,
            is_unresolved=unresolved,
            after=None if after is None else after._replace(created_at=clamp_to_calendar(after.created_at)),
            limit=limit,
        )
        return await self._store.runs.list_page(query)

    async def of_firings(self, caller: Caller, firings: Collection[str]) -> dict[str, list[str]]:
        """Return the runs that some firings have started, by firing; those that have started none are left out."""
        found: dict[str, list[str]] = {}
        for firing, run in await self._store.runs.list_started_by(caller.tenant, firings):
            found.setdefault(firing, []).append(run)
        return found

    async def count_task_states(self, runs: Collection[RunRow]) -> list[TaskStateCount]:
        """Return how many task runs of each task of listed runs are in each state, by run and task."""
        return await self._store.runs.count_task_states([row.id for row in runs])

    async def resolve_id(self, caller: Caller, part: str) -> str:
        """Return the id of a run from its id, or from a beginning or end of it that only one run has."""
        if not is_storable(part):
            raise unknown_run(part)
        if any(record.run.tenant == caller.tenant for record in await self._store.runs.load([part])):
            return part
        rows = await self._store.runs.find(RunFilter(tenant=caller.tenant, limit=SEARCH_LIMIT))
        matching = [row.id for row in rows if part and (row.id.startswith(part) or row.id.endswith(part))]
        if len(matching) == 1:
            return matching[0]
        if not matching:
            raise unknown_run(part)
        message = f"{len(matching)} runs have an id that begins or ends with '{part}': give more of it"
        raise RequestError(message, code="ambiguous_run", status=409, run=part)

    # -- one run

    async def load_record(self, caller: Caller, run: str) -> RunRecord:
        """Return a run and its tasks; RequestError if the caller's tenant has no such run."""
        for record in await self._store.runs.load([run]) if is_storable(run) else ():
            if record.run.tenant == caller.tenant:
                return record
        raise unknown_run(run)

    async def load_started(self, caller: Caller, run: str) -> RunRecord:
        """Return a run that was started here just now: without a read if this node leads, which has written it."""
        coordinator = self._leader.coordinator
        active = None if coordinator is None else coordinator.active_runs.get(run)
        if active is None or active.creation is not None or active.is_stale or active.run.tenant != caller.tenant:
            return await self.load_record(caller, run)
        return RunRecord(active.run, list(active.rows.values()))

    async def handler_runs(self, caller: Caller, run: str) -> list[RunRecord]:
        """Return the runs of the handlers that the ends of a run have called, oldest first."""
        spec = await find_readable_spec(self._versions, (await self.load_run(caller, run)).version_key)
        if spec is None or not spec.handlers:
            return []
        started = [one for _, one in await self._store.runs.list_started_by(caller.tenant, [run])]
        called = [one for one in await self._store.runs.load(started) if one.run.origin == HANDLER_ORIGIN]
        return sorted(called, key=lambda one: started.index(one.run.id))

    async def load_run(self, caller: Caller, run: str) -> RunRow:
        """Return a run without its tasks; RequestError if the caller's tenant has no such run."""
        row = await self._store.runs.find_run(run) if is_storable(run) else None
        if row is None or row.tenant != caller.tenant:
            raise unknown_run(run)
        return row

    async def load_task(self, caller: Caller, run: str, label: str) -> RunRecord:
        """Return a run with the rows of one task alone, "clean", or of one element, "clean[7]", in their order.

        RequestError if the run has none of that name. An element is read without the others: they may be many.
        """
        name, number = split_element(label)
        if number is not None and number.isdecimal() and int(number) <= MAX_INTEGER:
            found = (await self.load_elements(caller, TaskKey(run, name, int(number)), limit=1)).record
            if [row.index for row in found.tasks] == [int(number)]:
                return found
        record = await self.load_record(caller, run)
        name, element = resolve_task(record, label)
        rows = [row for row in record.tasks if row.task == name and element in (None, row.index)]
        return record._replace(tasks=sorted(rows, key=lambda row: row.index))

    async def load_elements(
        self, caller: Caller, first: TaskKey, states: Collection[TaskState] = (), limit: int = 50
    ) -> ElementPage:
        """Return elements of a mapped task from one on, in some states, and the number of all that match.

        Neither depends on the size of the run: the store selects and counts.
        """
        run = await self.load_run(caller, first.run)
        counts = await self._store.runs.count_task_states([run.id])
        if all(one.task != first.task for one in counts):
            raise unknown_task(run.workflow, [first.task], dict.fromkeys(one.task for one in counts))
        matching = (one for one in counts if one.task == first.task and one.is_mapped)
        total = sum(one.number for one in matching if not states or one.state in states)
        return ElementPage(RunRecord(run, await self._store.runs.list_elements(first, states, limit)), total)

    async def load_attempts(self, caller: Caller, run: str) -> list[AttemptRow]:
        """Return all attempts of a run's tasks."""
        await self.load_record(caller, run)
        return await self._store.runs.read_attempts(run)

    async def load_events(self, caller: Caller, run: str) -> list[EventRow]:
        """Return all events of a run, in order."""
        await self.load_record(caller, run)
        return await self._store.runs.read_events(run)

    # -- results

    async def load_result(self, caller: Caller, run: str) -> RunResult:
        """Return the present state of a run with the results of its tasks.

        An unreadable version is reported in the run's reason, an unreadable output as its task's error.
        """
        return await self.build_result(FinishedRun(await self.load_record(caller, run), None))

    async def load_plain_result(self, record: RunRecord, *, with_outputs: bool = False) -> RunResult:
        """Return the results of a loaded run's tasks; their outputs as plain values, whatever code is loaded here."""
        outputs = await self._read_outputs(record) if with_outputs else {}
        return await self.build_result(FinishedRun(record, outputs), is_plain=True)

    async def _read_outputs(self, record: RunRecord) -> dict[TaskRef, bytes]:
        stored = await self._store.runs.read_outputs(record.run.id, sorted({row.task for row in record.tasks}))
        return {(output.key.task, output.key.element): output.value for output in stored}

    async def build_result(self, finished: FinishedRun, *, is_plain: bool = False) -> RunResult:
        """Return the result of a run; without outputs these are read."""
        record, outputs = finished
        spec, problem = await self.load_spec_or_problem(record)
        errors = await self.last_errors(record)
        if outputs is None:
            outputs = await self._read_outputs(record)
        values, unreadable = self._decode_outputs(record, outputs, is_plain=is_plain)
        result = build_run_result(record, spec, errors | unreadable, values)
        return result if problem is None else replace(result, reason="; ".join(filter(None, [result.reason, problem])))

    def _decode_outputs(
        self, record: RunRecord, outputs: Mapping[TaskRef, bytes], *, is_plain: bool
    ) -> tuple[dict[TaskKey, Any], dict[TaskKey, TaskError]]:
        """Return the decoded outputs of tasks, and the errors of those that cannot be decoded."""
        runner = None if is_plain else self.runners.find(record.run.version_key)
        values: dict[TaskKey, Any] = {}
        unreadable: dict[TaskKey, TaskError] = {}
        for row in record.tasks:
            if row.state is not TaskState.SUCCESS or (value := outputs.get((row.task, row.index))) is None:
                continue
            key = TaskKey(record.run.id, row.task, row.index)
            try:  # without the workflow's code, plain values are better than none
                if runner is None:
                    plain, name = decode_untyped(value, row.variant), row.variant or ""
                    has_class = isinstance(plain, dict) and name.isidentifier() and name != "dict"
                    values[key] = NamedFields(name, plain) if has_class and not is_plain else plain
                else:
                    values[key] = runner.decode_value(row.task, value)
            except AUTHOR_ERRORS as error:  # decoding may call author code; the error concerns this output only
                unreadable[key] = TaskError("UnreadableOutput", describe(error))
        return values, unreadable

    async def last_errors(self, record: RunRecord) -> dict[TaskKey, TaskError]:
        """Return the last error of each task of a run; reads the attempts only if a task has failed."""
        for row in record.tasks:
            if row.state in (TaskState.FAILED, TaskState.UP_FOR_RETRY):
                return last_errors(await self._store.runs.read_attempts(record.run.id))
        return {}

    async def load_spec_or_problem(self, record: RunRecord) -> tuple[WorkflowSpec, str | None]:
        """Return the spec of a run; if it cannot be read, one without tasks, and the problem with its remedy."""
        run = record.run
        version = VersionKey(run.tenant, run.workflow, run.version)
        try:
            return self._versions.specs.get(version) or await self._versions.load_spec(version), None
        except StoreError:
            raise
        except OperationError as error:
            empty = WorkflowSpec(name=run.workflow, tasks=())
            return empty, f"{error}; load that version again, or cancel the run"

    async def newest_version(self, record: RunRecord) -> VersionKey:
        """Return the version that new runs of a run's workflow get here, else the one that was loaded last."""
        run = record.run
        current = self._versions.current.get((run.tenant, run.workflow))
        if current is not None:
            return current
        versions = await self._store.versions.for_tenant(run.tenant)
        stored = [version.key for version in versions if version.key.workflow == run.workflow]
        return stored[-1] if stored else run.version_key

    # -- notes

    async def read_notes(self, runs: Collection[RunRow]) -> dict[str, str]:
        """Return the notes on some loaded runs themselves, by run."""
        return await self._store.notes.for_runs([run.id for run in runs])

    async def notes(self, caller: Caller, run: str) -> dict[str | None, str]:
        """Return the notes on a run: its own under None, those on tasks under their names."""
        await self.load_run(caller, run)
        return await self.notes_of(run)

    async def notes_of(self, run: str) -> dict[str | None, str]:
        """Return the notes on a loaded run: its own under None, those on tasks under their names."""
        return {note.task: note.text for note in await self._store.notes.for_run(run)}
