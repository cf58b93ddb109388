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
from tidemill.engine.ray.actor_deaths import describe_death
from tidemill.engine.ray.process_actor import ProcessActor
from tidemill.engine.ray.protocol import ProcessStatus

LIST_INTERVAL = 2.0
"""Seconds between two lists of the actors."""

RETRY_INTERVAL = 1.0
"""Seconds until an actor that cannot be reached is asked again."""

STOP_ANSWER_TIMEOUT = 10.0
"""Seconds beyond the grace period until an actor that does not answer is killed."""

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
        self._started: set[str] = set()
        """The names of those that run."""
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
            if name not in self._actors:
                with suppress(ValueError):  # it has died since it was listed
                    self._observe(name, await self._in_thread(lambda name=name: ray.get_actor(name)))  # type: ignore[misc]

    def _observe(self, name: str, actor: Any) -> None:
        if name not in self._actors:
            self._actors[name] = actor
            self._start(self._watch(name, actor))

    async def _watch(self, name: str, actor: Any) -> None:
        """Report the status of an actor until it is over."""
        self._send_status(name, ProcessStatus(state="pending", reason="Ray has not started it yet"))
        status: ProcessStatus | None = None
        while status is None:
            try:
                await _answer(actor.confirm.remote())
                self._started.add(name)
                self._send_status(name, ProcessStatus(state="running"))
                status = _describe_end(await _answer(actor.wait_end.remote()))
            except exceptions.ActorUnavailableError:
                await asyncio.sleep(RETRY_INTERVAL)  # real time: this process has no other
            except exceptions.RayError as error:
                status = describe_death(error)
        self._send_status(name, status)
        self._started.discard(name)
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
                await self._kill(name)

    async def _create(self, message: protocol.Create) -> None:
        try:
            actor = await self._in_thread(lambda: _create_actor(message))
        except (exceptions.RayError, ValueError, TypeError) as error:
            self._send(protocol.Created(message.number, f"{type(error).__name__}: {error}"))
            return
        self._send(protocol.Created(message.number))
        self._observe(message.name, actor)

    async def _stop(self, name: str, grace: float) -> None:
        """Stop the process of an actor, then the actor. One that has not started has no process."""
        if name in self._started:
            with suppress(TimeoutError, exceptions.RayError):
                async with asyncio.timeout(grace + STOP_ANSWER_TIMEOUT):
                    await _answer(self._actors[name].stop.remote(grace))
                    await asyncio.sleep(0.2)  # real time: the answer to `wait_end` overtakes the death of the actor
        await self._kill(name)

    async def _kill(self, name: str) -> None:
        def kill() -> None:
            with suppress(ValueError):  # there is no actor of this name
                ray.kill(self._actors.get(name) or ray.get_actor(name))

        await self._in_thread(kill)


def _connect(connect: protocol.Connect) -> str:
    """Connect this process to a cluster, and return the name of its session."""
    ray.init(
        address=connect.address,
        namespace=connect.namespace,
        log_to_driver=False,
        configure_logging=False,
    )
    if connect.address.startswith("ray://"):  # a client has no session of its own: a worker of the cluster tells it
        return str(ray.get(ray.remote(num_cpus=0)(_read_session).remote()))
    return _read_session()


def _read_session() -> str:
    return str(ray.get_runtime_context().get_session_name())


def _create_actor(message: protocol.Create) -> Any:
    """Create an actor that survives this process; one that exists already is the same."""
    options = {"max_restarts": 0, **message.options}
    remote_class = ray.remote(ProcessActor).options(
        name=message.name, lifetime="detached", get_if_exists=True, **options
    )
    return remote_class.remote(message.arguments, message.environment)


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
