"""The workflows and runs of a server, for commands: its answers, as the rows that commands show."""

from collections.abc import AsyncIterator, Collection

from tidemill.cli.run_view import RunView
from tidemill.cli.server_rows import (
    RunReplay,
    to_attempt_row,
    to_event_row,
    to_numbered_line,
    to_run_row,
)
from tidemill.cli.workflow_service import NumberedLine, WorkflowService
from tidemill.client import AsyncClient
from tidemill.engine.workflows.client.values import ClearResult, RunSnapshot
from tidemill.kernel.errors import RequestError
from tidemill.workflows.lookup import unknown_run
from tidemill.workflows.records import RunRow
from tidemill.workflows.result import RunResult
from tidemill.workflows.states import RunState

SEARCH_LIMIT = 500  # runs searched for a part of an id


class ServerWorkflows(WorkflowService):
    """Works with a server, through the client."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    # -- runs

    async def find_runs(self, workflow: str | None, states: Collection[RunState], limit: int) -> list[RunRow]:
        found = await self._client.runs(workflow, states or None, limit=limit)
        return [to_run_row(one) for one in reversed(found)]

    async def resolve_run_id(self, part: str) -> str:
        found = await self._client.runs(text=part, limit=SEARCH_LIMIT) if part else []
        matching = [one.id for one in found if one.id.startswith(part) or one.id.endswith(part)]
        if part in matching or len(matching) == 1:
            return part if part in matching else matching[0]
        if not matching:
            raise unknown_run(part)
        message = f"{len(matching)} runs have an id that begins or ends with '{part}': give more of it"
        raise RequestError(message, code="ambiguous_run", status=409, run=part)

    async def read_view(self, run: str) -> RunView:
        handle = self._client.run_handle(run)
        info, result = await handle.info(), await handle.state()
        attempts = [to_attempt_row(run, one) for name in result.tasks for one in await handle.attempts(name)]
        events = [to_event_row(run, one) async for one in handle.events()]
        notes: dict[str | None, str] = {} if info.note is None else {None: info.note}
        return RunView(row=to_run_row(info), result=result, attempts=attempts, events=events, notes=notes)

    async def load_result(self, run: str) -> RunResult:
        return await self._client.run_handle(run).state()

    async def why(self, run: str, task: str) -> list[str]:
        return await self._client.run_handle(run).why(task)

    async def cancel(self, run: str, reason: str) -> None:
        await self._client.run_handle(run).cancel(reason)

    async def clear(
        self, run: str, tasks: Collection[str] | None, *, preview: bool = False, latest: bool = False
    ) -> ClearResult:
        plan = await self._client.run_handle(run).retry(tasks, preview=preview, latest=latest)
        return ClearResult(
            names=plan.reruns,
            reused=plan.reused,
            elements={name: (one.reruns, one.total) for name, one in plan.elements.items()},
            version=plan.version,
            missing_tasks=plan.missing_tasks,
            note=plan.note,
            live_nodes=1,  # the server that answers
        )

    async def note(self, run: str, text: str, task: str | None = None) -> None:
        if task is not None:
            raise RequestError("a server takes notes on runs, not on tasks: leave out --task", code="no_task_notes")
        await self._client.run_handle(run).note(text)

    async def logs(self, run: str, task: str, *, follow: bool) -> AsyncIterator[NumberedLine]:
        numbers: dict[int, int] = {}
        handle = self._client.run_handle(run)
        async for line in handle.logs(task, follow=follow):
            if line.attempt not in numbers:
                numbers = {one.attempt: one.try_number for one in await handle.attempts(task)}
            yield to_numbered_line(line, numbers.get(line.attempt, line.attempt))

    async def watch(self, run: str, *, events: bool) -> AsyncIterator[RunSnapshot]:
        handle = self._client.run_handle(run)
        tasks = (await handle.state(outputs=False)).tasks
        replay = RunReplay(to_run_row(await handle.info()), tasks)
        async for transition in handle.events(follow=True):
            replay.apply(transition)
            yield RunSnapshot(replay.record, [], [to_event_row(run, transition)] if events else [])
        yield RunSnapshot(replay.record, [], [])

    async def cancel_backfill(self, id: str) -> int:
        return (await self._client.cancel_backfill(id)).runs.get(RunState.CANCELLED, 0)
