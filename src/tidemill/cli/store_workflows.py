"""The workflows and runs of a store, for commands that open the store themselves."""

from collections.abc import AsyncIterator, Collection

from tidemill.access.principal import Caller
from tidemill.cli.run_view import RunView, read_run_view
from tidemill.cli.workflow_service import NumberedLine, WorkflowService
from tidemill.engine.workflows.client.values import ClearResult, RunSnapshot
from tidemill.engine.workflows.client.workflow_client import WorkflowClient
from tidemill.kernel.settings import Settings
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, RunRow
from tidemill.workflows.result import RunResult
from tidemill.workflows.states import RunState


class StoreWorkflows(WorkflowService):
    """Works on a store; the node that leads there carries out what is changed."""

    def __init__(self, client: WorkflowClient, caller: Caller) -> None:
        self._client = client
        self._caller = caller

    async def find_runs(self, workflow: str | None, states: Collection[RunState], limit: int) -> list[RunRow]:
        return await self._client.find_runs(self._caller, workflow, states, limit)

    async def resolve_run_id(self, part: str) -> str:
        return await self._client.resolve_run_id(self._caller, part)

    async def read_view(self, run: str) -> RunView:
        return await read_run_view(self._client, self._caller, run)

    async def load_result(self, run: str) -> RunResult:
        return await self._client.load_result(self._caller, run)

    async def why(self, run: str, task: str) -> list[str]:
        return await self._client.why(self._caller, run, task)

    async def cancel(self, run: str, reason: str) -> None:
        await self._client.cancel(self._caller, run, reason)

    async def clear(
        self, run: str, tasks: Collection[str] | None, *, preview: bool = False, latest: bool = False
    ) -> ClearResult:
        return await self._client.clear(self._caller, run, tasks, preview=preview, latest=latest)

    async def note(self, run: str, text: str, task: str | None = None) -> None:
        await self._client.note(self._caller, run, text, task)

    async def logs(self, run: str, task: str, *, follow: bool) -> AsyncIterator[NumberedLine]:
        numbers: dict[AttemptKey, int] = {}
        delay = Settings.read().tick_interval
        async for line in self._client.logs(self._caller, run, task, follow=follow, final_delay=delay):
            key = AttemptKey(*line.key, line.attempt)
            if key not in numbers:
                numbers = {one.key: one.number for one in await self._client.load_attempts(self._caller, run)}
            element = None if line.key.element == UNMAPPED else line.key.element
            record = line.record
            yield NumberedLine(
                element=element,
                number=numbers.get(key, line.attempt),
                at=record.at,
                message=record.message,
                level=record.level,
                stream=record.stream,
                fields=record.fields,
            )

    async def watch(self, run: str, *, events: bool) -> AsyncIterator[RunSnapshot]:
        async for snapshot in self._client.watch(self._caller, run, events=events):
            yield snapshot

    async def cancel_backfill(self, id: str) -> int:
        return await self._client.cancel_backfill(self._caller, id)
