"""Methods of the client for workflows and runs."""

from collections.abc import Mapping
from typing import Any

from tidemill.api.port import AsyncApi
from tidemill.api.runs import start_run
from tidemill.client.asynchronous.run import AsyncRemoteRun
from tidemill.client.asynchronous.transport import AsyncTransport
from tidemill.kernel.errors import RequestError


class AsyncWorkflowCalls:
    """Methods for workflows and runs."""

    _transport: AsyncTransport
    _api: AsyncApi

    async def start(self, workflow: str, given: Mapping[str, Any] | None = None, /, **params: Any) -> AsyncRemoteRun:
        """Start a run of a workflow, once, also if the request is repeated; params are keywords or a mapping."""
        if not isinstance(given, Mapping | None):
            message = f"params are keywords, or a mapping by their names, not {given!r}"
            raise RequestError(message, code="invalid_params")
        fields = {"name": workflow, "params": {**(given or {}), **params}}
        return AsyncRemoteRun(self._transport, (await self._api.call(start_run, fields)).id)

    def run_handle(self, id: str) -> AsyncRemoteRun:
        """Return a handle on a run by its id."""
        return AsyncRemoteRun(self._transport, id)
