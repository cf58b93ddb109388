# Written by scripts/blocking_client.py from client/asynchronous: change it there.
"""Methods of the client for workflows and runs."""

from collections.abc import Mapping
from typing import Any

from tidemill.api.paging import Page
from tidemill.api.port import Api
from tidemill.api.runs import start_run
from tidemill.client.calls import get, name_in_path, patch
from tidemill.client.synchronous.run import RemoteRun
from tidemill.client.synchronous.transport import Transport
from tidemill.client.values import WorkflowDescription, WorkflowInfo
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

    def workflows(
        self, *, text: str | None = None, tag: str | None = None, paused: bool | None = None
    ) -> list[WorkflowInfo]:
        """Return the workflows by name; `text` is a part of a name or a tag."""
        call = get("/workflows", Page[WorkflowInfo], q=text, tag=tag, paused=paused)
        return self._transport.collect(call)

    def workflow(self, name: str) -> WorkflowDescription:
        """Return a workflow: tasks, edges, schedules, triggers, the JSON Schema of its params, versions."""
        return self._transport.send(get(f"/workflows/{name_in_path(name)}", WorkflowDescription))

    def pause(self, workflow: str) -> None:
        """Pause a workflow: none of its runs begins, none of its tasks starts; running tasks continue."""
        self._transport.send(patch(f"/workflows/{name_in_path(workflow)}", WorkflowInfo, {"paused": True}))

    def resume(self, workflow: str) -> None:
        """Resume a paused workflow; slots that passed meanwhile get no run."""
        self._transport.send(patch(f"/workflows/{name_in_path(workflow)}", WorkflowInfo, {"paused": False}))

    def run_handle(self, id: str) -> RemoteRun:
        """Return a handle on a run by its id."""
        return RemoteRun(self._transport, id)
