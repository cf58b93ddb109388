"""Changes runs: starts, cancels, clears, dismisses and annotates them.

Changes go through the store, so they work on any node, and without one: the leader picks them up.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.access.audit import AuditRow
from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.nodes import count_live_nodes
from tidemill.engine.workflows.client.runs import RunReader
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.starts.starter import ONCE_SLOT, RunCause, RunOrigin, RunStarter, StartRequest
from tidemill.engine.workflows.versions import WorkflowVersions, load_version_switch
from tidemill.kernel.errors import OperationError, RequestError, after_change
from tidemill.kernel.limits import MAX_TEXT_LENGTH, is_storable, make_storable
from tidemill.storage.run_lists import RunPosition
from tidemill.storage.workflow_ports import RunNote
from tidemill.workflows.change import Applied, Change
from tidemill.workflows.clearing import ClearPlan, OperatorAction, VersionSwitch, build_cancel_change, plan_clear
from tidemill.workflows.lookup import pinned_note, unknown_task
from tidemill.workflows.records import RunRecord
from tidemill.workflows.spec import WorkflowSpec

BATCH = 500  # runs that are dismissed in one transaction
CHANGE_ATTEMPT_LIMIT = 20  # attempts at a change while other changes of the run get ahead of it

CheckRecord = Callable[[RunRecord], None]
"""Raises an error unless a run, as it is stored now, may be changed."""


class ClearResult(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that clearing a run reruns."""

    names: list[str]
    reused: list[str]
    """The tasks whose results are kept."""
    elements: Mapping[str, tuple[int, int]]
    """By mapped task: how many of its elements rerun, and how many it has."""
    version: str
    """The workflow version that the run continues with."""
    missing_tasks: list[str]
    """Tasks of the run that this version does not have."""
    note: str | None
    """A note for a run that stays pinned to a version that is not the newest."""
    live_nodes: int
    """The number of nodes that may be running on the store."""


class RunChanges:
    """Changes the runs of a store. A run of another tenant than the caller's is unknown."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        leader: LeaderState,
        starter: RunStarter,
        runs: RunReader,
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._clock = runtime.clock
        self._versions = versions
        self._leader = leader
        self._starter = starter
        self._runs = runs

    # -- starting

    async def start(
        self,
        caller: Caller,
        workflow: str,
        params: Mapping[str, Any],
        *,
        once: str | None = None,
        origin: RunOrigin = RunOrigin.MANUAL,
        cause: RunCause | None = None,
        is_repeated: bool = False,
        audit: Callable[[str], AuditRow] | None = None,
    ) -> str:
        """Start a run of a loaded workflow; return its id. The entry of `audit` is written with it.

        With `once`, the key of a call that may be repeated, a repetition returns the run that the first has started.
        If the call is known to be repeated, it does so also while the workflow is paused or not loaded.
        """
        if once is not None and is_repeated and (found := await self._find_started(caller, workflow, once)) is not None:
            return found
        version = self._versions.current.get((caller.tenant, workflow))
        loaded = None if version is None else self._versions.loaded.get(version)
        if loaded is None:
            raise self._versions.not_loaded_error(caller.tenant, workflow)
        request = StartRequest(
            tenant=caller.tenant,
            workflow=loaded,
            params=params,
            origin=origin,
            cause=cause or RunCause(id=caller.actor),
            key=once,
            once_per_key=once is not None,
            audit=audit,
        )
        run = await self._starter.start(request)
        if run is None and once is not None:
            run = await self._find_started(caller, workflow, once)
        if run is None:
            raise OperationError(f"workflow '{workflow}' could not be started")
        return run

    async def _find_started(self, caller: Caller, workflow: str, once: str) -> str | None:
        if not is_storable(workflow):
            return None
        return await self._store.runs.find_fired(caller.tenant, workflow, once, ONCE_SLOT)

    # -- one run

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
        record = await self._runs.load_record(caller, run)
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
            record = await self._runs.load_record(caller, run)  # its state decides what the note advises
            return await self._describe_clear(record, plan, switch, missing)

    async def _describe_clear(
        self, record: RunRecord, plan: ClearPlan, switch: VersionSwitch | None, missing: list[str]
    ) -> ClearResult:
        newest = await self._runs.newest_version(record)
        is_pinned = switch is None and newest != record.run.version_key
        return ClearResult(
            names=plan.names,
            reused=plan.reused,
            elements=plan.elements,
            version=record.run.version if switch is None else switch.version,
            missing_tasks=missing,
            note=pinned_note(record.run, newest.version) if is_pinned else None,
            live_nodes=await count_live_nodes(self._runtime),
        )

    async def _clear_target(
        self, record: RunRecord, tasks: Collection[str] | None, *, latest: bool
    ) -> tuple[WorkflowSpec, Collection[str] | None, VersionSwitch | None]:
        """Return the spec that a run continues with, the tasks to clear, and the version switch, if there is one."""
        if not latest:
            return await self._versions.load_spec(record.run.version_key), tasks, None
        newest = await self._runs.newest_version(record)
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
            record = await self._runs.load_record(caller, run)
            if check is not None:
                check(record)
            action = OperatorAction(at=self._clock.now(), actor=caller.actor, reason=reason)
            if isinstance(await self._store.runs.apply(await build_change(record, action)), Applied):
                self._leader.on_run_changed(run)
                return
        raise OperationError(f"run '{run}' keeps changing: nothing was done; try again")

    async def note(self, caller: Caller, run: str, text: str, task: str | None = None) -> str:
        """Write a note on a run, or on one of its tasks; an empty text removes it. Return the text as it is stored."""
        text = _checked_text("a note", text)
        record = await self._runs.load_record(caller, run)
        if task is not None and task not in (known := record.by_task()):
            raise unknown_task(record.run.workflow, [task], known)
        await self._store.notes.upsert(RunNote(run, task, text, self._clock.now()))
        return text

    # -- failures

    async def dismiss(self, caller: Caller, runs: Collection[str]) -> int:
        """Dismiss the failures of some runs of the caller's tenant; return how many have been."""
        return await self._store.runs.dismiss(caller.tenant, runs, self._clock.now())

    async def dismiss_all(self, caller: Caller, **filters: Any) -> int:
        """Dismiss the unresolved failures that match the filters of a list of runs; return how many there were."""
        number, after = 0, None
        while (found := await self._runs.list_page(caller, **filters, unresolved=True, after=after, limit=BATCH)).runs:
            number += await self.dismiss(caller, [row.id for row in found.runs])
            after = RunPosition(found.runs[-1].created_at, found.runs[-1].id)
        return number


def _checked_text(what: str, text: str) -> str:
    """Return a text of the caller in a form that every store can hold."""
    if not isinstance(text, str):
        raise RequestError(f"{what} is a text, not {text!r}", code="invalid_text")
    if len(text) > MAX_TEXT_LENGTH:
        message = f"{what} has at most {MAX_TEXT_LENGTH:,} characters, not {len(text):,}"
        raise RequestError(message, code="invalid_text")
    return make_storable(text)
