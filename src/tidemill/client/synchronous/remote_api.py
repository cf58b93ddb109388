# Written by scripts/blocking_client.py from the asynchronous module of this name: change it there.
"""Carries operations out at a server."""

from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from typing import Any, TypeVar

import msgspec
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import connect

from tidemill.api.operation import ListOperation, Operation
from tidemill.api.runs import get_run, list_run_events
from tidemill.client.answers import error_of_close, read_watched_state, unreachable
from tidemill.client.calls import encode, name_in_path, to_call
from tidemill.client.pauses import Deadline, pause
from tidemill.client.synchronous.transport import STREAM_IDLE_LIMIT, Transport
from tidemill.graphs.state import ReactorState
from tidemill.kernel.durations import Duration, parse_duration
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

    def watch_reactor(self, name: str, every: Duration) -> Generator[ReactorState, None]:
        """Yield the state of a reactor whenever it has changed, at most so often, across reconnects."""
        connection, failures = self._transport.connection, 0
        path = "/".join(map(name_in_path, name.split("/")))
        request = encode({"id": 1, "command": "watch", "every": parse_duration(every)}).decode()
        while True:
            try:
                with connect(
                    connection.socket_url(f"/ws/reactors/{path}"),
                    additional_headers=connection.socket_headers(),
                    open_timeout=connection.timeout,
                ) as socket:
                    socket.send(request)
                    for text in socket:
                        failures = 0
                        if (state := read_watched_state(text)) is not None:
                            yield state
                failure: Exception = ConnectionError("it closed the connection")
            except ConnectionClosed as closed:
                if (error := error_of_close(closed, "reactor", name)) is not None:
                    raise error from closed
                failure = closed
            except (OSError, TimeoutError, InvalidHandshake) as error_:
                failure = error_
            failures += 1
            if failures > connection.retry.times:
                raise unreachable(connection.url, failure) from failure
            pause(connection.retry.delay_after(failures))
