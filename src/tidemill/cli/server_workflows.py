"""The backfills of a server, for commands."""

from tidemill.cli.workflow_service import WorkflowService
from tidemill.client import AsyncClient
from tidemill.workflows.states import RunState


class ServerWorkflows(WorkflowService):
    """Works with a server, through the client."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def cancel_backfill(self, id: str) -> int:
        return (await self._client.cancel_backfill(id)).runs.get(RunState.CANCELLED, 0)
