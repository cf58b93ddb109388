"""Operations on one run: read it, explain it, cancel it, clear it, annotate it.

All of them go through the store, so they work on any node, and without one: the leader picks up the change.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from tidemill.access.principal import Caller
from tidemill.annotations.codec import decode_untyped
from tidemill.engine.loop_watch import describe_block
from tidemill.engine.workflows.client.nodes import list_nodes
from tidemill.engine.workflows.client.values import ClearResult, ElementPage
from tidemill.engine.workflows.executors.code import VersionCache
from tidemill.engine.workflows.executors.runner import TaskRunner
from tidemill.engine.workflows.leader.explain import executor_capacity, explain_context
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.notifications import FinishedRun
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import (
    LoadedCode,
    WorkflowVersions,
    code_note,
    find_code_problem,
    find_readable_spec,
    load_version_switch,
    read_loaded_code,
)
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.errors import OperationError, RequestError, StoreError, after_change
from tidemill.kernel.limits import MAX_INTEGER, MAX_TEXT_LENGTH, is_storable, make_storable
from tidemill.storage.workflow_ports import RunFilter, RunNote
from tidemill.workflows.change import Applied, Change
from tidemill.workflows.clearing import (
    ClearPlan,
    OperatorAction,
    VersionSwitch,
    build_cancel_change,
    plan_clear,
)
from tidemill.workflows.definition import WORKER_EXECUTOR
from tidemill.workflows.explain import ExplainContext, WorkerView, explain_task, explain_waiting
from tidemill.workflows.lookup import pinned_note, resolve_task, split_element, unknown_run, unknown_task
from tidemill.workflows.records import (
    AttemptKey,
    AttemptRow,
    EventRow,
    RunRecord,
    RunRow,
    TaskError,
    TaskKey,
    TaskRow,
    VersionKey,
)
from tidemill.workflows.result import RunResult, build_run_result, last_errors
from tidemill.workflows.run_draft import TaskRef
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState, TaskState
from tidemill.workflows.unfinished import has_begun

CheckRecord = Callable[[RunRecord], None]
"""Raises an error unless a run, as it is stored now, may be changed."""


class NamedFields(dict[str, Any]):
    """A value whose class is not loaded: its fields, printed as the class would print itself."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self._name = name

    def __repr__(self) -> str:
        return f"{self._name}({', '.join(f'{name}={value!r}' for name, value in self.items())})"


CHANGE_ATTEMPT_LIMIT = 20  # attempts at a change while other changes of the run get ahead of it


class RunOperations:
    """Reads and changes runs. A run of another tenant than the caller's is unknown."""

    def __init__(self, runtime: WorkflowRuntime, versions: WorkflowVersions, leader: LeaderState) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._clock = runtime.clock
        self._versions = versions
        self._leader = leader
        self.runners: VersionCache[TaskRunner] = VersionCache(versions.loaded, TaskRunner)

    # -- reading

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

    async def load_run(self, caller: Caller, run: str) -> RunRow:
        """Return a run without its tasks; RequestError if the caller's tenant has no such run."""
        row = await self._store.runs.find_run(run) if is_storable(run) else None
        if row is None or row.tenant != caller.tenant:
            raise unknown_run(run)
        return row

    async def dismiss(self, caller: Caller, runs: Collection[str]) -> int:
        """Dismiss the failures of some runs of the caller's tenant; return how many have been."""
        return await self._store.runs.dismiss(caller.tenant, runs, self._clock.now())

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

    async def load_result(self, caller: Caller, run: str) -> RunResult:
        """Return the present state of a run with the results of its tasks.

        An unreadable version is reported in the run's reason, an unreadable output as its task's error.
        """
        return await self._build_result(FinishedRun(await self.load_record(caller, run), None))

    async def load_plain_result(self, record: RunRecord, *, with_outputs: bool = False) -> RunResult:
        """Return the results of a loaded run's tasks; their outputs as plain values, whatever code is loaded here."""
        outputs = await self._read_outputs(record) if with_outputs else {}
        return await self._build_result(FinishedRun(record, outputs), is_plain=True)

    async def _read_outputs(self, record: RunRecord) -> dict[TaskRef, bytes]:
        stored = await self._store.runs.read_outputs(record.run.id, sorted({row.task for row in record.tasks}))
        return {(output.key.task, output.key.element): output.value for output in stored}

    async def _build_result(self, finished: FinishedRun, *, is_plain: bool = False) -> RunResult:
        record, outputs = finished
        spec, problem = await self._load_spec_or_problem(record)
        attempts = await self._failed_attempts(record)
        if outputs is None:
            outputs = await self._read_outputs(record)
        mapped = [task.name for task in spec.tasks if task.each is not None]
        order = {task.name: number for number, task in enumerate(spec.topological_order)}
        ordered = record._replace(tasks=sorted(record.tasks, key=lambda row: order.get(row.task, 0)))
        values, unreadable = self._decode_outputs(record, outputs, is_plain=is_plain)
        result = build_run_result(ordered, last_errors(attempts) | unreadable, values, mapped)
        return result if problem is None else replace(result, reason="; ".join(filter(None, [result.reason, problem])))

    async def load_attempts(self, caller: Caller, run: str) -> list[AttemptRow]:
        """Return all attempts of a run's tasks."""
        await self.load_record(caller, run)
        return await self._store.runs.read_attempts(run)

    async def load_events(self, caller: Caller, run: str) -> list[EventRow]:
        """Return all events of a run, in order."""
        await self.load_record(caller, run)
        return await self._store.runs.read_events(run)

    def _decode_outputs(
        self, record: RunRecord, outputs: Mapping[TaskRef, bytes], *, is_plain: bool
    ) -> tuple[dict[TaskKey, Any], dict[TaskKey, TaskError]]:
        """Return the decoded outputs of tasks, and the errors of those that cannot be decoded."""
        version = record.run.version_key
        runner = self.runners.get(*version) if version in self._versions.loaded and not is_plain else None
        values: dict[TaskKey, Any] = {}
        unreadable: dict[TaskKey, TaskError] = {}
        succeeded = {(row.task, row.index): row for row in record.tasks if row.state is TaskState.SUCCESS}
        for ref in outputs.keys() & succeeded.keys():
            key, value = TaskKey(record.run.id, *ref), outputs[ref]
            try:  # without the workflow's code, plain values are better than none
                if runner is None:
                    plain, name = decode_untyped(value, succeeded[ref].variant), succeeded[ref].variant or ""
                    has_class = isinstance(plain, dict) and name.isidentifier() and name != "dict"
                    values[key] = NamedFields(name, plain) if has_class and not is_plain else plain
                else:
                    values[key] = runner.decode_value(ref[0], value)
            except AUTHOR_ERRORS as error:  # decoding may call author code; the error concerns this output only
                unreadable[key] = TaskError("UnreadableOutput", describe(error))
        return values, unreadable

    async def why(self, caller: Caller, run: str, task: str) -> list[str]:
        """Return why a task has not run, or how it ended: one sentence per reason."""
        return await self._explain(await self.load_record(caller, run), task)

    async def why_queued(self, caller: Caller, run: str) -> list[str]:
        """Return why a run has not started: one sentence per reason; none if it has no task."""
        record = await self.load_record(caller, run)
        return await self._explain(record, record.tasks[0].task) if record.tasks else []

    async def why_waiting(self, caller: Caller, run: str) -> dict[str, list[str]]:
        """Return why each task of a run that has not ended has not: one sentence per reason, by task."""
        record = await self.load_record(caller, run)
        if record.run.state.is_terminal:
            return {}
        context, spec = await self._read_context(record)
        return explain_waiting(record, spec, partial(self._with_capacity, context, record.run.tenant))

    async def _explain(self, record: RunRecord, task: str) -> list[str]:
        name, _ = resolve_task(record, task)
        context, spec = await self._read_context(record)
        row = record.by_task()[name][0]
        return explain_task(record, spec, task, self._with_capacity(context, record.run.tenant, row))

    async def _read_context(self, record: RunRecord) -> tuple[ExplainContext, WorkflowSpec]:
        """Return what is known in addition to the run about why its tasks have not run, and the spec of the run."""
        if (coordinator := self._leader.coordinator) is not None:
            context = explain_context(coordinator, self._runtime, self._versions, record)
        else:
            context = await self._explain_context(record)
        blocker, stuck = await self._store.find_write_blocker(), await self._stuck_pids(record)
        context = replace(
            await self._with_code_notes(context, record),
            write_blocker=blocker,
            stuck_pids=stuck,
            loop_blocks=self._loop_blocks(record),
            workers=await self._workers_for(record),
        )
        spec, problem = await self._load_spec_or_problem(record)
        return context if problem is None else replace(context, quarantine_reason=problem), spec

    def _with_capacity(self, context: ExplainContext, tenant: str, row: TaskRow) -> ExplainContext:
        """Add how many slots the executor of a task run has for a tenant; only the leader knows of full ones."""
        if (coordinator := self._leader.coordinator) is None:
            return context
        return replace(context, capacity=executor_capacity(coordinator, row.executor, tenant))

    async def _with_code_notes(self, context: ExplainContext, record: RunRecord) -> ExplainContext:
        """Add what to do about a run that waits for code that no node has, or about those that it queues behind."""
        run = record.run
        if run.state.is_terminal:
            return context
        code = await read_loaded_code(self._store, self._runtime.liveness)
        if run.state is not RunState.QUEUED or has_begun(record.tasks):
            return replace(context, code_note=await self._code_note(record, code))
        running = RunFilter(tenant=run.tenant, workflow=run.workflow, states=[RunState.RUNNING], limit=run.max_active)
        others = await self._store.runs.load([row.id for row in await self._store.runs.find(running)])
        notes = [await self._code_note(other, code) for other in others]
        return replace(context, blocking_notes=[note for note in notes if note is not None])

    async def _workers_for(self, record: RunRecord) -> list[WorkerView]:
        """Return the living workers, if a task of the run waits for one."""
        if not any(row.executor == WORKER_EXECUTOR and row.state is TaskState.SCHEDULED for row in record.tasks):
            return []
        loaded = await self._store.versions.list_loaded()
        owners = {one.owner for one in loaded if one.key == record.run.version_key}
        return [
            WorkerView(labels=one.labels, has_code=one.id in owners, free_slots=one.concurrency - running)
            for one, state, _, running, _ in await list_nodes(self._runtime)
            if one.is_worker and state == "alive"
        ]

    async def _code_note(self, record: RunRecord, code: LoadedCode) -> str | None:
        newest = await self._newest_version(record)
        problem = await find_code_problem(self._versions, record.run.version_key)
        return code_note(record, code, newest, await find_readable_spec(self._versions, newest), problem)

    async def _stuck_pids(self, record: RunRecord) -> dict[TaskRef, int]:
        """Return the processes of tasks whose lease has expired, as far as they are seen to run on this host."""
        now = self._clock.now()
        silent = [row for row in record.tasks if row.lease_until is not None and row.lease_until < now]
        known = await self._store.owners.list_all() if silent else []
        owners = {owner.id: owner for owner in known if not owner.is_worker}
        return {
            (row.task, row.index): owner.pid
            for row in silent
            if (owner := owners.get(row.claimed_by or "")) is not None and self._runtime.liveness.is_running(owner)
        }

    def _loop_blocks(self, record: RunRecord) -> dict[TaskRef, str]:
        """Return how current attempts of a run have blocked the event loop of this node."""
        blocks = self._runtime.loop_blocks
        keys = [AttemptKey(record.run.id, row.task, row.index, row.attempt) for row in record.tasks] if blocks else []
        return {(key.task, key.element): describe_block(blocks[key]) for key in keys if key in blocks}

    async def _failed_attempts(self, record: RunRecord) -> list[AttemptRow]:
        """Read the attempts of a run if one of its tasks has failed."""
        has_errors = any(row.state in (TaskState.FAILED, TaskState.UP_FOR_RETRY) for row in record.tasks)
        return await self._store.runs.read_attempts(record.run.id) if has_errors else []

    async def _error_locations(self, record: RunRecord) -> dict[TaskRef, str]:
        """Return where in the author's code tasks of a run failed, as file:line."""
        errors = last_errors(await self._failed_attempts(record))
        return {(key.task, key.element): error.place for key, error in errors.items()}

    async def _explain_context(self, record: RunRecord) -> ExplainContext:
        """Return what the store knows in addition to the run about why a task of it has not run."""
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
            live_nodes=await self._count_live_nodes(),
            error_locations=await self._error_locations(record),
        )

    async def _count_live_nodes(self) -> int:
        """Return how many nodes that plan runs may be running on the store."""
        nodes = await list_nodes(self._runtime)
        return sum(node.state == "alive" and node.owner.plans for node in nodes)

    async def _newest_version(self, record: RunRecord) -> VersionKey:
        """Return the version that new runs of a run's workflow get here, else the one that was loaded last."""
        run = record.run
        current = self._versions.current.get((run.tenant, run.workflow))
        if current is not None:
            return current
        versions = await self._store.versions.for_tenant(run.tenant)
        stored = [version.key for version in versions if version.key.workflow == run.workflow]
        return stored[-1] if stored else run.version_key

    async def _load_spec_or_problem(self, record: RunRecord) -> tuple[WorkflowSpec, str | None]:
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

    # -- changing

    async def cancel(
        self, caller: Caller, run: str, reason: str = "cancelled", *, check: CheckRecord | None = None
    ) -> None:
        """Cancel a run and its active tasks; running code is stopped."""

        async def build_change(record: RunRecord, action: OperatorAction) -> Change:
            return build_cancel_change(record, action)

        await self._apply_action(caller, run, _checked_text("the reason", reason), build_change, check)

    async def clear(
        self,
        caller: Caller,
        run: str,
        tasks: Collection[str] | None,
        *,
        preview: bool = False,
        latest: bool = False,
        check: CheckRecord | None = None,
    ) -> ClearResult:
        """Rerun tasks, and all tasks after them; None for all that failed. With `preview` nothing is changed.

        With `latest` a run that has ended continues with the newest version of its workflow.
        """
        record = await self.load_record(caller, run)
        spec, named, switch = await self._clear_target(record, tasks, latest=latest)
        plan = plan_clear(record, spec, named, switch)
        missing = [] if switch is None else sorted(record.by_task().keys() - spec.by_name.keys())
        if preview:
            return await self._describe_clear(record, plan, switch, missing)

        async def build_change(current: RunRecord, action: OperatorAction) -> Change:
            new_spec, new_named, new_switch = await self._clear_target(current, tasks, latest=latest)
            if new_switch is not None:
                action = replace(action, reason=f"cleared, to continue with version {new_switch.version}")
            return plan_clear(current, new_spec, new_named, new_switch).build_change(action)

        await self._apply_action(caller, run, "cleared", build_change, check)
        with after_change(f"tasks of run '{run}' were cleared"):
            record = await self.load_record(caller, run)  # its state decides what the note advises
            return await self._describe_clear(record, plan, switch, missing)

    async def _describe_clear(
        self, record: RunRecord, plan: ClearPlan, switch: VersionSwitch | None, missing: list[str]
    ) -> ClearResult:
        newest = await self._newest_version(record)
        is_pinned = switch is None and newest != record.run.version_key
        return ClearResult(
            names=plan.names,
            reused=plan.reused,
            elements=plan.elements,
            version=record.run.version if switch is None else switch.version,
            missing_tasks=missing,
            note=pinned_note(record.run, newest.version) if is_pinned else None,
            live_nodes=await self._count_live_nodes(),
        )

    async def _clear_target(
        self, record: RunRecord, tasks: Collection[str] | None, *, latest: bool
    ) -> tuple[WorkflowSpec, Collection[str] | None, VersionSwitch | None]:
        """Return the spec that a run continues with, the tasks to clear, and the version switch, if there is one."""
        if not latest:
            return await self._versions.load_spec(record.run.version_key), tasks, None
        newest = await self._newest_version(record)
        switch = await load_version_switch(self._store, self._versions, record, newest)
        return switch.new_spec, tasks, switch

    async def _apply_action(
        self,
        caller: Caller,
        run: str,
        reason: str,
        build_change: Callable[[RunRecord, OperatorAction], Awaitable[Change]],
        check: CheckRecord | None,
    ) -> None:
        """Apply a change by the caller, rebuilding it when another change gets ahead of it."""
        for _ in range(CHANGE_ATTEMPT_LIMIT):
            record = await self.load_record(caller, run)
            if check is not None:
                check(record)
            action = OperatorAction(at=self._clock.now(), actor=caller.actor, reason=reason)
            if isinstance(await self._store.runs.apply(await build_change(record, action)), Applied):
                self._leader.on_run_changed(run)
                return
        raise OperationError(f"run '{run}' keeps changing: nothing was done; try again")

    # -- notes

    async def note(self, caller: Caller, run: str, text: str, task: str | None = None) -> str:
        """Write a note on a run, or on one of its tasks; an empty text removes it. Return the text as it is stored."""
        text = _checked_text("a note", text)
        record = await self.load_record(caller, run)
        if task is not None and task not in (known := record.by_task()):
            raise unknown_task(record.run.workflow, [task], known)
        await self._store.notes.upsert(RunNote(run, task, text, self._clock.now()))
        return text

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


def _checked_text(what: str, text: str) -> str:
    """Return a text of the caller in a form that every store can hold."""
    if not isinstance(text, str):
        raise RequestError(f"{what} is a text, not {text!r}", code="invalid_text")
    if len(text) > MAX_TEXT_LENGTH:
        message = f"{what} has at most {MAX_TEXT_LENGTH:,} characters, not {len(text):,}"
        raise RequestError(message, code="invalid_text")
    return make_storable(text)
