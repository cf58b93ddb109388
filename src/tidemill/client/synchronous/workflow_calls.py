# Written by scripts/blocking_client.py from client/asynchronous: change it there.
"""Methods of the client for workflows and runs."""

from collections.abc import Mapping
from typing import Any

from tidemill.api.port import Api
from tidemill.api.runs import start_run
from tidemill.client.synchronous.run import RemoteRun
from tidemill.client.synchronous.transport import Transport
from tidemill.kernel.errors import RequestError


class WorkflowCalls:
    """Methods for workflows and runs."""

    _transport: Transport
    _api: Api

    def start(self, workflow: str, given: Mapping[str, Any] | None = None, /, **params: Any) -> RemoteRun:
        """Start a run of a workflow, once, also if the request is repeated; params are keywords or a mapping."""
        if not isinstance(given, Mapping | None):
            message = f"params are keywords, or a mapping by their names, not {given!r}"
            raise RequestError(message, code="invalid_params")
        fields = {"name": workflow, "params": {**(given or {}), **params}}
        return RemoteRun(self._transport, (self._api.call(start_run, fields)).id)

    def run_handle(self, id: str) -> RemoteRun:
        """Return a handle on a run by its id."""
        return RemoteRun(self._transport, id)
