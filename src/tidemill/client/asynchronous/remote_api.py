"""Carries operations out at a server."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tidemill.api.operation import ListOperation, Operation
from tidemill.api.runs import get_run, list_run_events
from tidemill.client.answers import error_of_close, read_watched_state, unreachable
from tidemill.client.asynchronous.transport import STREAM_IDLE_LIMIT, AsyncTransport
from tidemill.client.calls import encode, name_in_path, to_call
from tidemill.client.pauses import Deadline, async_pause
from tidemill.graphs.state import ReactorState
from tidemill.kernel.durations import Duration, parse_duration
from tidemill.workflows.result import RunResult
from tidemill.workflows.states import RunState

Answer = TypeVar("Answer")
Item = TypeVar("Item")

WATCH_LIMIT = 10.0
"""Seconds after which a waiting client looks at a run again, if no event of it arrives."""

END_STATES = frozenset(state.value for state in RunState if state.is_terminal)


class AsyncRemoteApi:
    """Sends the requests of operations to a server."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def call(self, operation: Operation[..., Answer], fields: Mapping[str, Any]) -> Answer:
        """Return the answer to a request with these fields."""
        return await self._transport.send(to_call(operation, fields))

    async def collect(
        self, operation: ListOperation[..., Item], fields: Mapping[str, Any], limit: int | None
    ) -> list[Item]:
        """Return the items of a list, `limit` at most."""
        call = to_call(operation, fields)
        if not operation.takes_page:
            return (await self._transport.send(call)).items[:limit]
        return await self._transport.collect(call, limit)

    async def stream(
        self, operation: ListOperation[..., Item], fields: Mapping[str, Any], idle_limit: float = STREAM_IDLE_LIMIT
    ) -> AsyncGenerator[Item, None]:
        """Yield the items of a list as they come, across reconnects, until it has ended."""
        call = to_call(operation, fields)
        async with aclosing(self._transport.follow(call, ends=True, idle_limit=idle_limit)) as events:
            async for event in events:
                yield msgspec.json.decode(event.data, type=operation.item)

    async def result(self, run: str, *, outputs: bool = True) -> RunResult:
        """Return the state of a run."""
        return (await self.call(get_run, {"run": run, "outputs": outputs})).to_result()

    async def wait(self, run: str, timeout: Duration | None = None) -> RunResult:
        """Return the result of a run when it has ended; TimeoutError after the timeout."""
        deadline = Deadline(timeout)
        while not (await self.call(get_run, {"run": run})).state.is_terminal:
            if not (seconds := deadline.remaining(WATCH_LIMIT)):
                raise TimeoutError(f"run {run} has not ended within {timeout}; it continues")
            with suppress(TimeoutError):
                await self._wait_for_end(run, deadline, seconds)
        return await self.result(run)

    async def _wait_for_end(self, run: str, deadline: Deadline, seconds: float) -> None:
        """Return when a run has ended, or too little time remains to wait this many seconds for another event."""
        async with aclosing(self.stream(list_run_events, {"run": run}, seconds)) as events:
            async for event in events:
                if event.task is None and event.after in END_STATES:
                    return
                if deadline.remaining(seconds) < seconds:
                    return

    async def watch_reactor(self, name: str, every: Duration) -> AsyncGenerator[ReactorState, None]:
        """Yield the state of a reactor whenever it has changed, at most so often, across reconnects."""
        connection, failures = self._transport.connection, 0
        path = "/".join(map(name_in_path, name.split("/")))
        request = encode({"id": 1, "command": "watch", "every": parse_duration(every)}).decode()
        while True:
            try:
                async with connect(
                    connection.socket_url(f"/ws/reactors/{path}"),
                    additional_headers=connection.socket_headers(),
                    open_timeout=connection.timeout,
                ) as socket:
                    await socket.send(request)
                    async for text in socket:
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
            await async_pause(connection.retry.delay_after(failures))
