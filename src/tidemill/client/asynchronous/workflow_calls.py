"""Methods of the client for workflows and runs."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from tidemill.api.paging import Page
from tidemill.client.asynchronous.run import AsyncRemoteRun
from tidemill.client.asynchronous.transport import AsyncTransport
from tidemill.client.calls import get, make, name_in_path, patch
from tidemill.client.values import RunInfo, WorkflowDescription, WorkflowInfo
from tidemill.kernel.errors import RequestError
from tidemill.workflows.states import RunState


class AsyncWorkflowCalls:
    """Methods for workflows and runs."""

    _transport: AsyncTransport

    async def start(self, workflow: str, given: Mapping[str, Any] | None = None, /, **params: Any) -> AsyncRemoteRun:
        """Start a run of a workflow, once, also if the request is repeated; params are keywords or a mapping."""
        if not isinstance(given, Mapping | None):
            message = f"params are keywords, or a mapping by their names, not {given!r}"
            raise RequestError(message, code="invalid_params")
        body = {"params": {**(given or {}), **params}}
        info = await self._transport.send(make(f"/workflows/{name_in_path(workflow)}/runs", RunInfo, body))
        return AsyncRemoteRun(self._transport, info.id)

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

    async def runs(
        self,
        workflow: str | None = None,
        state: RunState | str | Collection[RunState | str] | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        text: str | None = None,
        limit: int | None = 50,
    ) -> list[RunInfo]:
        """Return the newest runs, newest first; `limit=None` for all. `text` is a part of an id, a note, or a param."""
        states = [state] if isinstance(state, str) else state
        call = get(
            "/runs",
            Page[RunInfo],
            workflow=workflow,
            state=None if states is None else [str(one) for one in states],
            from_=None if since is None else since.isoformat(),
            to=None if until is None else until.isoformat(),
            q=text,
        )
        return await self._transport.collect(call, limit)
