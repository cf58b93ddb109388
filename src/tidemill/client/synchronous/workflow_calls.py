# Written by scripts/blocking_client.py from the asynchronous module of this name: change it there.
"""Methods of the client for workflows and runs."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from tidemill.api.port import Api
from tidemill.api.runs import list_runs, start_run
from tidemill.client.synchronous.handles import Run, name_of
from tidemill.client.synchronous.transport import Transport
from tidemill.kernel.errors import RequestError
from tidemill.workflows.states import RunState
from tidemill.workflows.workflow import Workflow


class WorkflowCalls:
    """Methods for workflows and runs."""

    _transport: Transport
    _api: Api

    def start(self, workflow: str | Workflow, given: Mapping[str, Any] | None = None, /, **params: Any) -> Run:
        """Start a run of a workflow, once even if the request is repeated; params are keywords or a mapping."""
        if not isinstance(given, Mapping | None):
            message = f"params are keywords, or a mapping by their names, not {given!r}"
            raise RequestError(message, code="invalid_params")
        run = self._api.call(start_run, {"name": name_of(workflow), "params": {**(given or {}), **params}})
        return Run(self._api, run.id)

    def run_handle(self, id: str) -> Run:
        """Return a handle on a run by its id."""
        return Run(self._api, id)

    def runs(
        self,
        workflow: str | Workflow | None = None,
        state: RunState | str | Collection[RunState | str] | None = None,
        limit: int | None = 50,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        text: str = "",
        tag: str = "",
        cause: str = "",
        key: str = "",
    ) -> list[Run]:
        """Return the newest runs, newest first; `limit=None` for all.

        `text` is a part of an id, a workflow, a note, or a param; `tag` is one of the workflow. `cause` is what started
        the run, such as "schedule", or its name, such as that of a trigger or reactor. `key` is that of a schedule,
        what `dedup` says, or the id of a backfill.
        """
        name = None if workflow is None else name_of(workflow)
        fields = {"workflow": name, "state": state, "since": since, "until": until, "text": text}
        fields |= {"tag": tag, "cause": cause, "key": key}
        return [Run(self._api, one.id, one) for one in self._api.collect(list_runs, fields, limit)]
