"""Carries operations out at a server."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import msgspec

from tidemill.api.operation import ListOperation, Operation
from tidemill.api.runs import get_run, list_run_events
from tidemill.client.asynchronous.transport import STREAM_IDLE_LIMIT, AsyncTransport
from tidemill.client.calls import to_call
from tidemill.client.pauses import Deadline
from tidemill.kernel.durations import Duration
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
