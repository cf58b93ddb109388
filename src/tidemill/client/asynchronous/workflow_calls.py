"""Methods of the client for workflows and runs."""

from collections.abc import Mapping
from typing import Any

from tidemill.api.paging import Page
from tidemill.api.port import AsyncApi
from tidemill.api.runs import start_run
from tidemill.client.asynchronous.run import AsyncRemoteRun
from tidemill.client.asynchronous.transport import AsyncTransport
from tidemill.client.calls import get, name_in_path, patch
from tidemill.client.values import WorkflowDescription, WorkflowInfo
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

    async def workflows(
        self, *, text: str | None = None, tag: str | None = None, paused: bool | None = None
    ) -> list[WorkflowInfo]:
        """Return the workflows by name; `text` is a part of a name or a tag."""
        call = get("/workflows", Page[WorkflowInfo], q=text, tag=tag, paused=paused)
        return await self._transport.collect(call)

    async def workflow(self, name: str) -> WorkflowDescription:
        """Return a workflow: tasks, edges, schedules, triggers, the JSON Schema of its params, versions."""
        return await self._transport.send(get(f"/workflows/{name_in_path(name)}", WorkflowDescription))

    async def pause(self, workflow: str) -> None:
        """Pause a workflow: none of its runs begins, none of its tasks starts; running tasks continue."""
        await self._transport.send(patch(f"/workflows/{name_in_path(workflow)}", WorkflowInfo, {"paused": True}))

    async def resume(self, workflow: str) -> None:
        """Resume a paused workflow; slots that passed meanwhile get no run."""
        await self._transport.send(patch(f"/workflows/{name_in_path(workflow)}", WorkflowInfo, {"paused": False}))

    def run_handle(self, id: str) -> AsyncRemoteRun:
        """Return a handle on a run by its id."""
        return AsyncRemoteRun(self._transport, id)
