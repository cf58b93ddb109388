"""The backfills of a store, for commands that open the store themselves."""

from tidemill.access.principal import Caller
from tidemill.cli.workflow_service import WorkflowService
from tidemill.engine.workflows.client.workflow_client import WorkflowClient


class StoreWorkflows(WorkflowService):
    """Works on a store; the node that leads there carries out what is changed."""

    def __init__(self, client: WorkflowClient, caller: Caller) -> None:
        self._client = client
        self._caller = caller

    async def cancel_backfill(self, id: str) -> int:
        return await self._client.cancel_backfill(self._caller, id)
