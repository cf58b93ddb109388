"""The gateway: a process that is the driver of Ray for one node. Run with `python -m`, and the socket to the node.

Ray's driver blocks threads, logs and exits on its own terms, and ends its whole process when the head of the cluster is
gone for a minute. Here it can: the node starts another gateway. Nothing is lost with a gateway, because actors belong
to the cluster (`lifetime="detached"`), and their names say which attempts they hold.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import ray  # extra: ray
from ray import exceptions  # extra: ray

from tidemill.engine.ray import protocol
from tidemill.engine.ray.actor_deaths import DEATHS, describe_death
from tidemill.engine.ray.process_actor import ProcessActor
from tidemill.engine.ray.protocol import ProcessStatus

LIST_INTERVAL = 2.0
"""Seconds between two lists of the actors."""

RETRY_INTERVAL = 1.0
"""Seconds until an actor that cannot be reached is asked again."""

CONFIRM_TIMEOUT = 3.0
"""Seconds that an actor has to answer before it is killed instead of stopped. Those without resources never answer."""

EXIT_TIMEOUT = 5.0
"""Seconds that a process has to end by itself before its actor is removed."""

Result = TypeVar("Result")


class Gateway:
    """One connection to a cluster, for one node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._tasks = asyncio.TaskGroup()
        self._thread = ThreadPoolExecutor(1, "ray")
        self._prefix = ""
        self._actors: dict[str, Any] = {}
        """The handles of the actors that are observed, by name."""
        self._over: set[str] = set()
        """The names of those that have ended. They stay until they are removed, or Ray lists them no more."""

    async def run(self) -> None:
        """Connect as the first message says, then serve the others until the node closes the connection."""
        connect = protocol.TO_GATEWAY_DECODER.decode(await self._reader.readline())
        assert isinstance(connect, protocol.Connect)
        self._prefix = connect.prefix
        session = await self._in_thread(lambda: _connect(connect))
        self._send(protocol.Connected(session))
        async with self._tasks:
            self._start(self._list_repeatedly())
            while line := await self._reader.readline():
                self._start(self._serve(protocol.TO_GATEWAY_DECODER.decode(line)))
            os._exit(0)  # the node is gone; Ray's own end takes seconds, and changes nothing

    def _start(self, work: Any) -> None:
        self._tasks.create_task(work)

    def _send(self, message: protocol.FromGateway) -> None:
        self._writer.write(protocol.encode_line(message))

    def _send_status(self, name: str, status: ProcessStatus) -> None:
        self._send(protocol.StatusSeen(name, status))

    async def _in_thread(self, call: Callable[[], Result]) -> Result:
        """Make a blocking call of Ray, one at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    # -- observation

    async def _list_repeatedly(self) -> None:
        while True:
            names = await self._in_thread(ray.util.list_named_actors)
            mine = [name for name in names if name.startswith(self._prefix)]
            self._send(protocol.Listed(mine))
            self._forget(self._over.difference(mine))
            await self._observe_new(mine)
            await asyncio.sleep(LIST_INTERVAL)  # real time: this process has no other

    async def _observe_new(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._actors and (actor := await self._find(name)) is not None:
                self._observe(name, actor)

    def _observe(self, name: str, actor: Any) -> None:
        if name not in self._actors:
            self._actors[name] = actor
            self._start(self._watch(name, actor))

    async def _watch(self, name: str, actor: Any) -> None:
        """Report the status of an actor until it is over."""
        self._send_status(
            name, ProcessStatus(state="pending", reason="no node of the Ray cluster has its resources free")
        )
        status: ProcessStatus | None = None
        while status is None:
            try:
                await _answer(actor.confirm.remote())
                self._send_status(name, ProcessStatus(state="running"))
                status = _describe_end(await _answer(actor.wait_end.remote()))
            except DEATHS as error:
                status = describe_death(error)
            except exceptions.RayError:  # it cannot be reached, or Ray has another problem: that says nothing about it
                await asyncio.sleep(RETRY_INTERVAL)  # real time: this process has no other
        self._send_status(name, status)
        self._over.add(name)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._actors.pop(name, None)
            self._over.discard(name)

    # -- commands

    async def _serve(self, message: protocol.ToGateway) -> None:
        match message:
            case protocol.Create():
                await self._create(message)
            case protocol.Stop(name, grace):
                await self._stop(name, grace)
            case protocol.Remove(name):
                await self._remove(name)

    async def _create(self, message: protocol.Create) -> None:
        number = message.number
        try:
            actor_class = _build_actor_class(message)
        except (ValueError, TypeError) as error:
            self._send(protocol.Created(number, _explain(error), is_refused=True))
            return
        try:
            actor = await self._in_thread(lambda: actor_class.remote(message.arguments, message.environment))
        except (exceptions.RayError, ValueError, RuntimeError) as error:  # the head does not answer, or not well
            self._send(protocol.Created(number, _explain(error)))
            return
        self._send(protocol.Created(number))
        self._observe(message.name, actor)

    async def _stop(self, name: str, grace: float) -> None:
        """Stop the process of an actor, then the actor. One that does not answer has not started, or is dead."""
        actor = await self._find(name)
        if actor is None:
            return
        with suppress(TimeoutError, exceptions.RayError):
            async with asyncio.timeout(CONFIRM_TIMEOUT):
                await _answer(actor.confirm.remote())
            async with asyncio.timeout(grace + CONFIRM_TIMEOUT):
                await _answer(actor.stop.remote(grace))
                await asyncio.sleep(0.2)  # real time: the answer to `wait_end` overtakes the death of the actor
        await self._in_thread(lambda: ray.kill(actor))

    async def _remove(self, name: str) -> None:
        """End an actor once its process has ended, or has had the time to: it may still delete its files."""
        actor = await self._find(name)
        if actor is None:
            return
        with suppress(TimeoutError, exceptions.RayError):
            async with asyncio.timeout(EXIT_TIMEOUT):
                await _answer(actor.wait_end.remote())
        await self._in_thread(lambda: ray.kill(actor))

    async def _find(self, name: str) -> Any | None:
        """Return the handle of an actor; None if there is none of this name."""
        if name in self._actors:
            return self._actors[name]
        try:
            return await self._in_thread(lambda: ray.get_actor(name))
        except ValueError:
            return None


def _connect(connect: protocol.Connect) -> str:
    """Connect this process to a cluster, and return the name of its session."""
    ray.init(
        address=connect.address,
        namespace=connect.namespace,
        log_to_driver=False,
        configure_logging=False,
    )
    if connect.address.startswith("ray://"):  # a client has no session: a worker of the cluster tells it
        return str(ray.get(ray.remote(num_cpus=0)(_read_session).remote()))
    return _read_session()


def _read_session() -> str:
    return str(ray.get_runtime_context().get_session_name())


def _build_actor_class(message: protocol.Create) -> Any:
    """Return the class of an actor that survives this process; one that exists already is not created again."""
    options = {"max_restarts": 0, **message.options}
    return ray.remote(ProcessActor).options(name=message.name, lifetime="detached", get_if_exists=True, **options)


async def _answer(reference: Any) -> Any:
    """Wait for the answer of an actor."""
    return await asyncio.wrap_future(reference.future())


def _describe_end(end: dict[str, Any]) -> ProcessStatus:
    status, tail = end["exit"], end["log_tail"]
    if end["is_stopped"]:
        return ProcessStatus(state="ended", cause="deleted", exit=status, log_tail=tail, reason="it was stopped")
    if status == 0:
        return ProcessStatus(state="ended", cause="completed", exit=0, log_tail=tail)
    reason = f"its process was killed by signal {-status}" if status < 0 else f"its process exited with code {status}"
    return ProcessStatus(state="ended", cause="error", exit=status, log_tail=tail, reason=reason)


async def serve(descriptor: int) -> None:
    """Run a gateway on a socket until the node closes it; report what ends it sooner."""
    end = socket.socket(fileno=descriptor)
    reader, writer = await asyncio.open_connection(sock=end, limit=protocol.LINE_LIMIT)
    try:
        await Gateway(reader, writer).run()
    except Exception as error:  # of Ray: the node shows it, and starts another gateway
        writer.write(protocol.encode_line(protocol.ClusterLost(_explain(error))))
        await writer.drain()
        os._exit(1)  # Ray's threads could keep the process


def _explain(error: BaseException) -> str:
    """Return the innermost error in words: Ray and task groups wrap it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    texts = [str(error), str(error.__cause__), str(error.__context__)]
    if any("AuthenticationError" in text for text in texts):
        return (
            "the cluster refuses the token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN in the environment of the node"
        )
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
