"""A reactor on the server: read it, command it, watch it."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tidemill.api.dead_letters import (
    drop_reactor_dead_letter,
    get_reactor_dead_letter,
    list_reactor_dead_letters,
    replay_reactor_dead_letter,
)
from tidemill.api.errors import to_error
from tidemill.api.port import AsyncApi
from tidemill.api.reactors import command_reactor, get_reactor, get_timeseries, list_firings, list_recoveries
from tidemill.client.answers import unreachable
from tidemill.client.asynchronous.transport import AsyncTransport
from tidemill.client.calls import encode, name_in_path
from tidemill.client.close_codes import error_of_close
from tidemill.client.live_frames import ReactorFrame
from tidemill.client.pauses import async_pause
from tidemill.graphs.key_forms import format_key, key_to_json
from tidemill.graphs.outcomes import DeadLetter
from tidemill.graphs.state import Latency, ReactorState, Recovery
from tidemill.graphs.views import CommandResult, FiringView, ReactorCommand, ReplayResult
from tidemill.kernel.durations import Duration, parse_duration


class AsyncRemoteReactor:
    """One reactor on the server; one that another tenant shares is named `tenant/name`."""

    def __init__(self, api: AsyncApi, transport: AsyncTransport, name: str) -> None:
        self.name = name
        self._api = api
        self._transport = transport
        self._fields = {"name": name}

    def __repr__(self) -> str:
        return f"<reactor {self.name}>"

    async def state(self, key: Any = None) -> ReactorState:
        """Return the present state of the reactor and its accumulators; of a keyed reactor, also that of one key."""
        return await self._api.call(get_reactor, {**self._fields, "key": _in_query(key)})

    async def firings(self, limit: int = 50, key: Any = None) -> list[FiringView]:
        """Return the newest firings that are kept, newest first; of a keyed reactor, also those of one key."""
        return await self._api.collect(list_firings, {**self._fields, "key": _in_query(key)}, limit)

    async def timeseries(self) -> list[int]:
        """Return the firing counts of the last 60 minutes, oldest first."""
        return (await self._api.call(get_timeseries, self._fields)).per_minute

    async def latency(self) -> Latency:
        """Return median and 99th percentile of the newest firings' durations, in seconds."""
        state = await self.state()
        return Latency(state.p50, state.p99)

    async def events(self, limit: int | None = 50) -> list[Recovery]:
        """Return what the supervisor did with the reactor and its accumulators, newest first."""
        return await self._api.collect(list_recoveries, self._fields, limit)

    async def pause(self) -> ReactorState:
        """Pause the reactor: it keeps its inputs, and does not fire."""
        return (await self._command("pause")).state

    async def resume(self) -> ReactorState:
        """Resume the reactor."""
        return (await self._command("resume")).state

    async def restart(self) -> ReactorState:
        """Restart the reactor with what is stored of it."""
        return (await self._command("restart")).state

    async def force_fire(self, key: Any = None) -> FiringView:
        """Fire now, with the inputs as they are; of a keyed reactor, those of one key."""
        return _firing(await self._command("force_fire", None, key))

    async def fire_with(self, inputs: Mapping[str, Any], key: Any = None) -> FiringView:
        """Fire now with other inputs, which replace the kept ones; of a keyed reactor, those of one key."""
        return _firing(await self._command("fire_with", inputs, key))

    async def _command(
        self, command: ReactorCommand, inputs: Mapping[str, Any] | None = None, key: Any = None
    ) -> CommandResult:
        given = {"inputs": inputs, "key": key_to_json(key)}
        fields = self._fields | {"command": command} | {name: one for name, one in given.items() if one is not None}
        return await self._api.call(command_reactor, fields)

    async def dead_letters(self, limit: int | None = None) -> list[DeadLetter]:
        """Return the dead letters of the reactor and its accumulators, newest first."""
        return await self._api.collect(list_reactor_dead_letters, self._fields, limit)

    async def dead_letter(self, dead_letter_id: str) -> DeadLetter:
        """Return a dead letter, with values that are too large for a list."""
        return await self._api.call(get_reactor_dead_letter, {**self._fields, "id": dead_letter_id})

    async def replay(self, dead_letter_id: str, event: Any = None) -> ReplayResult:
        """Process a dead letter again, or another event instead of its own."""
        fields = {**self._fields, "id": dead_letter_id, "event": event}
        return await self._api.call(replay_reactor_dead_letter, fields)

    async def drop(self, dead_letter_id: str) -> None:
        """Delete a dead letter."""
        await self._api.call(drop_reactor_dead_letter, {**self._fields, "id": dead_letter_id})

    async def watch(self, every: Duration = 0.25) -> AsyncIterator[ReactorState]:
        """Yield the state of the reactor whenever it has changed, at most so often, across reconnects."""
        connection, failures = self._transport.connection, 0
        path = "/".join(map(name_in_path, self.name.split("/")))
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
                        if (state := _watched_state(text)) is not None:
                            yield state
                failure: Exception = ConnectionError("it closed the connection")
            except ConnectionClosed as closed:
                if (error := error_of_close(closed, "reactor", self.name)) is not None:
                    raise error from closed
                failure = closed
            except (OSError, TimeoutError, InvalidHandshake) as error_:
                failure = error_
            failures += 1
            if failures > connection.retry.times:
                raise unreachable(connection.url, failure) from failure
            await async_pause(connection.retry.delay_after(failures))


def _in_query(key: Any) -> str | None:
    return None if key is None else format_key(key)


def _firing(result: CommandResult) -> FiringView:
    assert result.firing is not None, "the server answers a command to fire with the firing"
    return result.firing


def _watched_state(text: str | bytes) -> ReactorState | None:
    """Return the state in a frame; None if it only confirms the command. Raises the problem that it reports."""
    frame = msgspec.json.decode(text, type=ReactorFrame)
    if frame.error is not None:
        raise to_error(frame.error)
    return frame.state
