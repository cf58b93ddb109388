"""`/ws/reactors/{name}`: commands to a reactor, and its state as it changes."""

import asyncio
from contextlib import aclosing
from typing import Any

from litestar.params import FromPath

from tidemill.access.principal import Permission, Resource
from tidemill.api.errors import to_problem
from tidemill.graphs.key_forms import key_from_json
from tidemill.graphs.views import CommandResult, ReactorCommand
from tidemill.kernel.concurrency import FirstErrorGroup
from tidemill.kernel.errors import NotFoundError, RequestError, TidemillError
from tidemill.server.live.closing import CloseCode, CloseError
from tidemill.server.live.codecs import decode_frame
from tidemill.server.live.connection import Endpoint, LiveSession, LiveSocket, serve_session
from tidemill.server.live.reactor_frames import (
    CHANGING_COMMANDS,
    CommandAnswer,
    CommandFrame,
    CommandProblem,
    FrameId,
    StateFrame,
)
from tidemill.server.request_context import request_id_of

MAX_COMMANDS = 16
"""Commands in progress on one connection; more are not read until some have ended."""
MAX_WATCHES = 16


async def reactor_socket(socket: LiveSocket, name: FromPath[str]) -> None:
    """Command a reactor and watch its state over a WebSocket."""
    await _serve_reactor(socket, name)


async def shared_reactor_socket(socket: LiveSocket, owner: FromPath[str], name: FromPath[str]) -> None:
    """Watch the state of a reactor that another tenant shares."""
    await _serve_reactor(socket, f"{owner}/{name}")


async def _serve_reactor(socket: LiveSocket, name: str) -> None:
    async def serve(session: LiveSession, group: FirstErrorGroup) -> None:
        await Commander(session, name, request_id_of(socket.scope), group).serve()

    await serve_session(socket, serve, Endpoint("reactor", name))


class Commander:
    """Carries out the commands of one connection, and keeps its watches."""

    def __init__(self, session: LiveSession, name: str, request_id: str, group: FirstErrorGroup) -> None:
        self._session = session
        self._connection = session.connection
        self._graph_client = session.context.node.graph_client
        self._name = name
        self._request_id = request_id
        self._group = group
        self._decoder = session.connection.codec.decoder(CommandFrame)
        self._slots = asyncio.Semaphore(MAX_COMMANDS)
        self._watches: dict[FrameId, asyncio.Task[Any]] = {}

    async def serve(self) -> None:
        """Take commands until the connection ends."""
        while True:
            payload = self._connection.codec.payload(await self._connection.receive())
            frame: CommandFrame = decode_frame(self._decoder, payload)
            await self._slots.acquire()
            self._group.start(f"connection: {frame.command}", self._answer(frame))

    async def _answer(self, frame: CommandFrame) -> None:
        try:
            if (result := await self._carry_out(frame)) is not None:
                await self._connection.send(CommandAnswer(frame.id, result))
        except TidemillError as error:
            await self._connection.send(CommandProblem(frame.id, to_problem(error, self._request_id)))
        finally:
            self._slots.release()

    async def _carry_out(self, frame: CommandFrame) -> CommandResult | None:
        """Carry out a command, and return its result; a watch answers with states."""
        frame.check()
        match frame.command:
            case "state":
                return await self._read(frame.key)
            case "watch":
                self._start_watch(frame)
                return None
            case "unwatch":
                self._stop_watch(frame.id)
                return await self._read()
        command = next(one for one in CHANGING_COMMANDS if one == frame.command)
        return await self._change(command, frame)

    async def _read(self, key: Any = None) -> CommandResult:
        state = await self._graph_client.reactor_state(self._session.caller, self._name, key_from_json(key))
        return CommandResult(firing=None, state=state)

    async def _change(self, command: ReactorCommand, frame: CommandFrame) -> CommandResult:
        principal = self._session.principal
        if not principal.has(Permission.WRITE, Resource("reactors", self._name)):
            message = f"{principal.actor} may not do this: it needs the permission 'write'"
            raise RequestError(message, code="not_allowed", status=403)
        caller, key = self._session.caller, key_from_json(frame.key)
        result = await self._graph_client.command(caller, self._name, command, frame.inputs, key)
        await self._session.context.node.access.audit.record(principal, f"reactor.{command}", self._name)
        return result

    # -- watches

    def _start_watch(self, frame: CommandFrame) -> None:
        if frame.id in self._watches:
            raise RequestError(f"there is a watch with the id {frame.id!r} already", code="watch_exists", status=409)
        if len(self._watches) >= MAX_WATCHES:
            message = f"a connection has at most {MAX_WATCHES} watches"
            raise RequestError(message, code="too_many_watches", status=409)
        self._watches[frame.id] = self._group.start("connection: watch", self._watch(frame.id, frame.interval))

    def _stop_watch(self, id: FrameId) -> None:
        if (watch := self._watches.pop(id, None)) is None:
            raise NotFoundError("watch", repr(id), f"there is no watch with the id {id!r}")
        watch.cancel()

    async def _watch(self, id: FrameId, every: float) -> None:
        """Send the state now, and again whenever it has changed."""
        try:
            async with aclosing(self._graph_client.watch_reactor(self._session.caller, self._name, every)) as changes:
                async for state, firing in changes:
                    await self._connection.send(StateFrame(id, state, firing))
        except NotFoundError as error:
            raise CloseError(CloseCode.UNLOADED, str(error)) from error
