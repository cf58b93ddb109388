# Written by scripts/blocking_client.py from the asynchronous module of this name: change it there.
"""Carries operations out at a server."""

from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from typing import Any, TypeVar

import msgspec

from tidemill.api.operation import ListOperation, Operation
from tidemill.api.runs import get_run, list_run_events
from tidemill.client.calls import to_call
from tidemill.client.pauses import Deadline
from tidemill.client.synchronous.transport import STREAM_IDLE_LIMIT, Transport
from tidemill.kernel.durations import Duration
from tidemill.workflows.result import RunResult
from tidemill.workflows.states import RunState

Answer = TypeVar("Answer")
Item = TypeVar("Item")

WATCH_LIMIT = 10.0
"""Seconds after which a waiting client looks at a run again, if no event of it arrives."""

END_STATES = frozenset(state.value for state in RunState if state.is_terminal)


class RemoteApi:
    """Sends the requests of operations to a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def call(self, operation: Operation[..., Answer], fields: Mapping[str, Any]) -> Answer:
        """Return the answer to a request with these fields."""
        return self._transport.send(to_call(operation, fields))

    def collect(self, operation: ListOperation[..., Item], fields: Mapping[str, Any], limit: int | None) -> list[Item]:
        """Return the items of a list, `limit` at most."""
        call = to_call(operation, fields)
        if not operation.takes_page:
            return (self._transport.send(call)).items[:limit]
        return self._transport.collect(call, limit)

    def stream(
        self, operation: ListOperation[..., Item], fields: Mapping[str, Any], idle_limit: float = STREAM_IDLE_LIMIT
    ) -> Generator[Item, None]:
        """Yield the items of a list as they come, across reconnects, until it has ended."""
        call = to_call(operation, fields)
        with closing(self._transport.follow(call, ends=True, idle_limit=idle_limit)) as events:
            for event in events:
                yield msgspec.json.decode(event.data, type=operation.item)

    def result(self, run: str, *, outputs: bool = True) -> RunResult:
        """Return the state of a run."""
        return (self.call(get_run, {"run": run, "outputs": outputs})).to_result()

    def wait(self, run: str, timeout: Duration | None = None) -> RunResult:
        """Return the result of a run when it has ended; TimeoutError after the timeout."""
        deadline = Deadline(timeout)
        while not (self.call(get_run, {"run": run})).state.is_terminal:
            if not (seconds := deadline.remaining(WATCH_LIMIT)):
                raise TimeoutError(f"run {run} has not ended within {timeout}; it continues")
            with suppress(TimeoutError):
                self._wait_for_end(run, deadline, seconds)
        return self.result(run)

    def _wait_for_end(self, run: str, deadline: Deadline, seconds: float) -> None:
        """Return when a run has ended, or too little time remains to wait this many seconds for another event."""
        with closing(self.stream(list_run_events, {"run": run}, seconds)) as events:
            for event in events:
                if event.task is None and event.after in END_STATES:
                    return
                if deadline.remaining(seconds) < seconds:
                    return
