"""Operations on waits: list them, and answer them, on any node, and without one."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from tidemill.access.principal import Caller, Principal
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.kernel.limits import is_storable
from tidemill.workflows.answerers import may_answer
from tidemill.workflows.answers import build_answer_change, check_answer
from tidemill.workflows.change import Applied
from tidemill.workflows.records import RunRecord, RunRow
from tidemill.workflows.waits import COMMENT_LIMIT, Answer, WaitRow

ATTEMPT_LIMIT = 20  # attempts at an answer while other changes of the run get ahead of it
FIRST = datetime(1, 1, 1, tzinfo=UTC), ""
"""A position before all waits."""


class WaitOperations:
    """Reads and answers waits. A wait of another tenant than the caller's is unknown."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        leader: LeaderState,
        load_record: Callable[[Caller, str], Awaitable[RunRecord]],
    ) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._leader = leader
        self._load_record = load_record

    async def get(self, caller: Caller, wait: str) -> WaitRow:
        """Return a wait; RequestError if the caller's tenant has none of this id."""
        found = await self._store.waits.get(wait) if is_storable(wait) else None
        if found is None or found.tenant != caller.tenant:
            raise RequestError(f"there is no wait '{wait}'", code="wait_not_found", status=404, wait=wait)
        return found

    async def of_run(self, caller: Caller, run: str) -> Sequence[WaitRow]:
        """Return the waits of a run, oldest first."""
        return await self._store.waits.of_run((await self._load_record(caller, run)).run.id)

    async def list_page(
        self,
        caller: Caller,
        *,
        state: str = "",
        workflow: str = "",
        run: str = "",
        after: tuple[datetime, str] = FIRST,
        limit: int = 50,
    ) -> tuple[Sequence[WaitRow], int]:
        """Return waits after a position, oldest first, and the number of all that match."""
        if not is_storable(workflow) or not is_storable(run):
            return [], 0
        chosen = {"state": state, "workflow": workflow, "run": run}
        rows = await self._store.waits.list_page(caller.tenant, **chosen, after=after, limit=limit)
        return rows, await self._store.waits.count(caller.tenant, **chosen)

    async def may_answer(self, caller: Caller, wait: WaitRow) -> bool:
        """Return whether a caller may answer a wait; without authentication everybody may."""
        if not isinstance(caller, Principal) or caller.credential is None:
            return True
        run = await self._store.runs.find_run(wait.run)
        starter = None if run is None or "not:starter" not in wait.by else await self._find_starter(run)
        return may_answer(wait.by, caller.actor, caller.role, starter)

    async def _find_starter(self, run: RunRow) -> str | None:
        """Return who has started a run, or the run that it comes from."""
        current: RunRow | None = run
        while current is not None and current.origin in ("task", "handler"):
            current = None if current.caused_by is None else await self._store.runs.find_run(current.caused_by)
        return None if current is None or current.origin != "manual" else current.caused_by

    async def answer(
        self, caller: Caller, wait: str, value: Any, *, variant: str | None = None, comment: str = "", by: str = ""
    ) -> WaitRow:
        """Answer an open wait, and return it; RequestError if it is closed, or the answer is not accepted."""
        if len(comment) > COMMENT_LIMIT or not is_storable(comment):
            message = f"a comment has at most {COMMENT_LIMIT:,} characters"
            raise RequestError(message, code="invalid_answer", errors=[{"path": "comment", "message": message}])
        for _ in range(ATTEMPT_LIMIT):
            found = await self.get(caller, wait)
            if not await self.may_answer(caller, found):
                who = ", ".join(found.by) or "role:write"
                message = f"{caller.actor} may not answer '{found.name}': it takes answers from {who}"
                raise RequestError(message, code="not_allowed", status=403, by=found.by)
            _check_open(found)
            checked = check_answer(found.name, found.type, value, variant)
            answer = Answer(
                name=found.name,
                value=msgspec.json.decode(checked.value),
                variant=checked.variant,
                by=by or caller.actor,
                at=self._clock.now(),
                comment=comment,
            )
            record = await self._load_record(caller, found.run)
            change = build_answer_change(record, found, answer)
            if isinstance(await self._store.runs.apply(change), Applied):
                self._leader.on_run_changed(found.run)
                self._metrics.increment("answers_total", source=answer.source)
                return await self.get(caller, wait)
        raise OperationError(f"run '{found.run}' keeps changing: nothing was answered; try again")


def _check_open(wait: WaitRow) -> None:
    """Raise a RequestError that says who has closed a wait, when and how, unless it is open."""
    if wait.state == "open":
        return
    answer = wait.final_answer
    by = "" if answer is None else answer.by
    at = "" if wait.closed_at is None else wait.closed_at.isoformat()
    who = f" by {by}" if by else ""
    message = f"'{wait.name}' of run {wait.run} is no longer open: it was {wait.state}{who} at {at}"
    raise RequestError(message, code="wait_closed", status=409, state=wait.state, by=by, at=at)
