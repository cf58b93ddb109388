"""What people do with runs: look, ask why, cancel, clear, annotate.

All of it goes through the store, so it works on any node, and without one: whoever plans sees the change.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from tidemill.annotations.codec import decode_plain
from tidemill.engine.workflows.board import Outcome
from tidemill.engine.workflows.executors.made_ready import MadeReady
from tidemill.engine.workflows.executors.runner import Runner
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.owners import Liveness
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, RequestError, StoreError
from tidemill.kernel.storable import is_storable, storable
from tidemill.storage.run_ports import Note, RunFilter, WorkflowStore
from tidemill.workflows.change import Applied, Change
from tidemill.workflows.clearing import Intervention, cancel, clear, clearing, elements_cleared
from tidemill.workflows.draft import Place
from tidemill.workflows.naming import pinned, unknown_run, unknown_task
from tidemill.workflows.records import AttemptRow, RunRecord, TaskError, TaskKey, VersionKey
from tidemill.workflows.result import RunResult, errors_of, result_of
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState, TaskState
from tidemill.workflows.succession import Succession
from tidemill.workflows.why import Facts, why

ATTEMPTS = 20  # at a change that others get ahead of

FactsOf = Callable[[RunRecord, str], Facts]
"""(run, task) -> what is to be known beside the run, for whoever plans it."""


class Operations:
    """Commands and questions about runs."""

    def __init__(
        self,
        store: WorkflowStore,
        library: Library,
        clock: Clock,
        *,
        actor: str,
        liveness: Liveness,
        touched: Callable[[str], None] = lambda run: None,  # noqa: ARG005
    ) -> None:
        self._store = store
        self._library = library
        self._clock = clock
        self._actor = actor
        self._touched = touched
        self._liveness = liveness
        self._runners: MadeReady[Runner] = MadeReady(library.code, Runner)

    # -- looking

    async def record(self, run: str) -> RunRecord:
        """Return a run as it is; RequestError if there is none."""
        for record in await self._store.runs.load([run]) if is_storable(run) else ():
            return record
        raise unknown_run(run)

    async def result(self, run: str, outcome: Outcome | None = None) -> RunResult:
        """Return a run with what became of its tasks, as of now, or as it was at its end.

        What of it cannot be read is told in its place: a version in the run's reason, an output as its task's error.
        """
        record, outputs = outcome or (await self.record(run), None)
        spec, trouble = await self._spec_or_trouble(record)
        attempts = await self._failed_attempts(record)
        if outputs is None:
            stored = await self._store.runs.outputs(run, sorted({row.task for row in record.tasks}))
            outputs = {(one.key.task, one.key.element): one.value for one in stored}
        mapped = [task.name for task in spec.tasks if task.each is not None]
        order = {task.name: number for number, task in enumerate(spec.in_order)}
        arranged = record._replace(tasks=sorted(record.tasks, key=lambda row: order.get(row.task, 0)))
        values, unread = self._decoded(record, outputs)
        found = result_of(arranged, errors_of(attempts) | unread, values, mapped)
        return found if trouble is None else replace(found, reason="; ".join(filter(None, [found.reason, trouble])))

    def _decoded(
        self, record: RunRecord, outputs: Mapping[Place, bytes]
    ) -> tuple[dict[TaskKey, Any], dict[TaskKey, TaskError]]:
        """Return the outputs of task runs as values, and what is wrong with those that cannot be read."""
        version = record.run.version_key
        runner = None if self._library.workflow(version) is None else self._runners.get(*version)
        values: dict[TaskKey, Any] = {}
        unread: dict[TaskKey, TaskError] = {}
        succeeded = {(row.task, row.index): row for row in record.tasks if row.state is TaskState.SUCCESS}
        for place in outputs.keys() & succeeded.keys():
            key, value = TaskKey(record.run.id, *place), outputs[place]
            try:  # if its code is not here, plain values are better than none
                if runner is None:
                    values[key] = decode_plain(value, succeeded[place].variant)
                else:
                    values[key] = runner.value(place[0], value)
            except AUTHOR_ERRORS as error:  # making a value may call author code; the other outputs are sound
                unread[key] = TaskError("UnreadableOutput", describe(error))
        return values, unread

    async def why(self, run: str, task: str, facts: FactsOf | None = None) -> list[str]:
        """Return why a task has not run, one sentence per reason."""
        record = await self.record(run)
        known = facts(record, task) if facts is not None else await self._facts(record)
        known = replace(known, newest=(await self.newest(record)).version)
        spec, trouble = await self._spec_or_trouble(record)
        return why(record, spec, task, known if trouble is None else replace(known, set_aside=trouble))

    async def _failed_attempts(self, record: RunRecord) -> list[AttemptRow]:
        """Return the tries of a run if something in it has failed; else they are not read."""
        has_errors = any(row.state in (TaskState.FAILED, TaskState.UP_FOR_RETRY) for row in record.tasks)
        return await self._store.runs.attempts(record.run.id) if has_errors else []

    async def _places(self, record: RunRecord) -> dict[Place, str]:
        """Return where in the author's code tries of a run failed, as file:line."""
        errors = errors_of(await self._failed_attempts(record))
        return {(key.task, key.element): one.place for key, one in errors.items()}

    async def _facts(self, record: RunRecord) -> Facts:
        paused = (record.run.tenant, record.run.workflow) in await self._store.schedules.paused()
        running = RunFilter(
            tenant=record.run.tenant,
            workflow=record.run.workflow,
            states=[RunState.RUNNING],
            limit=record.run.max_active + 1,
        )
        others = [row for row in await self._store.runs.find(running) if row.id != record.run.id]
        return Facts(
            now=self._clock.now(),
            paused=paused,
            active_runs=len(others),
            capacity=1,
            nodes=await self.nodes(),
            places=await self._places(record),  # for people: a program on a node has the errors themselves
        )

    async def nodes(self) -> int:
        """Return how many nodes may be alive on the store."""
        return sum(not self._liveness.is_dead(owner) for owner in await self._store.owners.all())

    def versions(self, record: RunRecord) -> list[str]:
        """Return the versions of a run's workflow whose code is here."""
        of = record.run.tenant, record.run.workflow
        return [one.version for one in self._library.loaded() if (one.tenant, one.workflow) == of]

    async def newest(self, record: RunRecord) -> VersionKey:
        """Return the version that new runs of a run's workflow get here; else the one that anybody loaded last."""
        run = record.run
        current = self._library.current(run.tenant, run.workflow)
        if current is not None:
            return current
        stored = [one.key for one in await self._store.versions.of(run.tenant) if one.key.workflow == run.workflow]
        return stored[-1] if stored else run.version_key

    async def pinned(self, run: str) -> str | None:
        """Return what is to be known of a run that is not pinned to the newest version; None if it is."""
        record = await self.record(run)
        newest = await self.newest(record)
        return None if newest == record.run.version_key else pinned(record.run, newest.version)

    async def _spec(self, record: RunRecord) -> WorkflowSpec:
        return await self._library.spec(record.run.version_key)

    async def _spec_or_trouble(self, record: RunRecord) -> tuple[WorkflowSpec, str | None]:
        """Return the structure of a run; if that cannot be read, one without tasks, and what is to be done."""
        try:
            return await self._spec(record), None
        except StoreError:
            raise
        except OperationError as error:
            nothing = WorkflowSpec(name=record.run.workflow, tasks=())
            return nothing, f"{error}; load that version again, or cancel the run"

    # -- acting

    async def cancel(self, run: str, reason: str = "cancelled") -> None:
        """Cancel a run: what has not ended never will, and running code is stopped."""

        async def change(record: RunRecord, by: Intervention) -> Change:
            return cancel(record, by)

        await self._intervene(run, _said("the reason", reason), change)

    async def clear(
        self, run: str, tasks: Collection[str] | None, *, preview: bool = False, latest: bool = False
    ) -> list[str]:
        """Let tasks, and all that comes after them, run again; return their names. None: everything that failed.

        With `latest` a run that has ended goes on with the newest version of its workflow.
        """
        record = await self.record(run)
        names = clear(record, *await self._aim(record, tasks, latest=latest))
        if not preview:

            async def change(found: RunRecord, by: Intervention) -> Change:
                spec, wanted, succession = await self._aim(found, tasks, latest=latest)
                if succession is not None:
                    by = replace(by, reason=f"cleared, to go on with version {succession.version}")
                return clearing(found, spec, wanted, by, succession)

            await self._intervene(run, "cleared", change)
        return names

    async def elements_cleared(
        self, run: str, tasks: Collection[str] | None, *, latest: bool = False
    ) -> dict[str, tuple[int, int]]:
        """Return how many elements of each mapped task that `clear` names would run again, and how many it has."""
        record = await self.record(run)
        return elements_cleared(record, *await self._aim(record, tasks, latest=latest))

    async def left_out(self, run: str) -> list[str]:
        """Return the tasks of a run that the newest version of its workflow does not have."""
        record = await self.record(run)
        spec = await self._library.spec(await self.newest(record))
        return sorted(record.by_task().keys() - spec.by_name.keys())

    async def _aim(
        self, record: RunRecord, tasks: Collection[str] | None, *, latest: bool
    ) -> tuple[WorkflowSpec, Collection[str] | None, Succession | None]:
        """Return the structure that a run goes on with, what of it is to be cleared, and how it comes to that."""
        if not latest:
            return await self._spec(record), tasks, None
        newest = await self.newest(record)
        older, trouble = await self._spec_or_trouble(record)
        numbers: dict[str, tuple[int, int]] = {}
        for one in await self._store.runs.attempts(record.run.id):
            attempt, number = numbers.get(one.key.task, (0, 0))
            numbers[one.key.task] = max(attempt, one.key.attempt), max(number, one.number)
        succession = Succession(
            record=record,
            version=newest.version,
            spec=await self._library.spec(newest),
            older=older if trouble is None else None,
            numbers=numbers,
        )
        return succession.spec, tasks, succession

    async def _intervene(
        self, run: str, reason: str, change: Callable[[RunRecord, Intervention], Awaitable[Change]]
    ) -> None:
        for _ in range(ATTEMPTS):
            record = await self.record(run)
            by = Intervention(at=self._clock.now(), actor=self._actor, reason=reason)
            if isinstance(await self._store.runs.apply(await change(record, by)), Applied):
                self._touched(run)
                return
        raise OperationError(f"run '{run}' keeps changing: nothing was done; try again")

    async def note(self, run: str, text: str, task: str | None = None) -> None:
        """Write a note on a run, or on one of its tasks; an empty text removes it."""
        text = _said("a note", text)
        record = await self.record(run)
        if task is not None and task not in (known := record.by_task()):
            raise unknown_task(record.run.workflow, [task], known)
        await self._store.notes.put(Note(run, task, text, self._clock.now()))

    async def notes(self, run: str) -> dict[str | None, str]:
        """Return the notes on a run: its own under None, those on tasks under their names."""
        if not is_storable(run):
            raise unknown_run(run)
        return {note.task: note.text for note in await self._store.notes.of(run)}


def _said(what: str, text: str) -> str:
    """Return what somebody said as every store can hold it."""
    if not isinstance(text, str):
        raise RequestError(f"{what} is a text, not {text!r}", code="invalid_text")
    return storable(text)


def active_states() -> tuple[RunState, ...]:
    """Return the states of runs that have not ended."""
    return tuple(state for state in RunState if not state.is_terminal)


def pool_use(records: Collection[RunRecord], pools: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return how many places of each pool are taken, and how many there are."""
    taken = [row.pool for record in records for row in record.tasks if row.state.is_claimed]
    return {pool: (taken.count(pool), slots) for pool, slots in pools.items()}


def aware(moment: datetime, what: str) -> datetime:
    """Return a moment that somebody gave; RequestError unless it says which zone it is in."""
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        message = f"{what} is an aware datetime, such as datetime(2026, 1, 1, tzinfo=UTC), not {moment!r}"
        raise RequestError(message, code="invalid_range")
    return moment
