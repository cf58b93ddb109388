"""The node's side of the gateway to Ray: starts it, talks to it, and starts another one when it ends."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tidemill.engine.ray import protocol
from tidemill.engine.ray.protocol import ProcessStatus
from tidemill.engine.tasks import TaskScope
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_new_thread
from tidemill.kernel.errors import OperationError
from tidemill.telemetry import events
from tidemill.telemetry.logs import FailureStreaks

logger = logging.getLogger(__name__)

GATEWAY_MODULE = "tidemill.engine.ray.gateway"

CONNECT_TIMEOUT = 60.0
"""Seconds that a gateway has to connect, as the client of a distant cluster too."""

CONNECT_TRIES_VARIABLE = "RAY_NUM_REDIS_GET_RETRIES"
"""How often Ray tries to reach the head, once per second. It is 20 by default; another gateway tries again anyway."""

SILENCE_TIMEOUT = 20.0
"""Seconds without a message until a connected gateway is replaced: it lists the actors every 2 s."""

CREATE_TIMEOUT = 30.0
"""Seconds to wait until an actor is created."""

SHUTDOWN_TIMEOUT = 2.0
"""Seconds that a gateway has to end once its connection is closed."""


class ActorObserver(Protocol):
    """Receives what the gateway sees."""

    def on_connected(self, session: str) -> None:
        """Accept that the gateway is connected to a session of a cluster."""

    def on_listed(self, names: Sequence[str]) -> None:
        """Accept the names of all actors that exist."""

    def on_status(self, name: str, status: ProcessStatus) -> None:
        """Accept the status of an actor's process."""


class RayGateway:
    """The connection of a node to a Ray cluster, which it repairs for as long as it is open."""

    def __init__(
        self,
        address: str,
        namespace: str,
        clock: Clock,
        observer: ActorObserver,
        silence_timeout: float = SILENCE_TIMEOUT,
    ) -> None:
        self._address = address
        self._namespace = namespace
        self._clock = clock
        self._observer = observer
        self._silence_timeout = silence_timeout
        self._tasks = TaskScope()
        self._backoff = Backoff(1.0, 30.0)
        self._streaks = FailureStreaks()
        self._writer: asyncio.StreamWriter | None = None
        self._replies: dict[int, asyncio.Future[protocol.Created]] = {}
        self._last_number = 0
        self.is_connected = False
        """Whether the gateway reaches the cluster."""
        self.problem = "it is not connected yet"
        """Why it does not."""

    async def open(self, prefix: str) -> None:
        """Begin to connect, and to observe the actors whose names have a prefix."""
        await self._tasks.open()
        self._tasks.start("ray gateway", self._keep_connected(prefix))

    async def close(self) -> None:
        """Disconnect. The actors live on."""
        await self._tasks.close()

    # -- commands

    async def create(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], options: Mapping[str, Any]
    ) -> str:
        """Create an actor that runs Python with some arguments; return what Ray objects to it, or an empty text.

        OperationError if the cluster does not answer, or not well: the actor may exist.
        """
        self._last_number += 1
        number = self._last_number
        reply: asyncio.Future[protocol.Created] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        self._send(protocol.Create(number, name, list(arguments), dict(environment), dict(options)))
        try:
            async with asyncio.timeout(CREATE_TIMEOUT):  # real time: a process does not follow the node's clock
                created = await reply
        except TimeoutError:
            raise OperationError(f"Ray at {self._address} has not answered for {CREATE_TIMEOUT:g} s") from None
        finally:
            self._replies.pop(number, None)
        if created.error and not created.is_refused:
            raise OperationError(f"Ray at {self._address} has not created an actor: {created.error}")
        return created.error

    def stop(self, name: str, grace: float) -> None:
        """End the process of an actor, and its actor: in order, then by force after `grace` seconds."""
        self._send(protocol.Stop(name, grace))

    def remove(self, name: str) -> None:
        """End an actor once its process has ended, or some seconds later."""
        self._send(protocol.Remove(name))

    def _send(self, message: protocol.ToGateway) -> None:
        if self._writer is None or not self.is_connected:
            raise OperationError(f"Ray at {self._address} cannot be reached: {self.problem}")
        self._writer.write(protocol.encode_line(message))

    # -- the connection

    async def _keep_connected(self, prefix: str) -> None:
        failures = 0
        while True:
            was_connected = False
            try:
                await self._run_gateway(prefix)
            except Exception as error:  # without its gateway, the node would no longer judge any actor
                self.problem = str(error) or type(error).__name__
                self._log_failure(None if isinstance(error, OperationError) else error)
            finally:
                was_connected, self.is_connected = self.is_connected, False
                self._fail_replies()
            failures = 1 if was_connected else failures + 1
            await self._clock.sleep(self._backoff.delay(failures))

    async def _run_gateway(self, prefix: str) -> None:
        """Run one gateway until it ends; always raises OperationError."""
        own_end, process = _start_process()  # not on a thread: a cancellation would leave the process behind
        reader, writer = await asyncio.open_connection(sock=own_end, limit=protocol.LINE_LIMIT)
        try:
            self._writer = writer
            writer.write(protocol.encode_line(protocol.Connect(self._address, self._namespace, prefix)))
            timeout = CONNECT_TIMEOUT
            while True:
                self._accept(await _read_message(reader, timeout))
                timeout = self._silence_timeout
        finally:
            self._writer = None
            writer.close()
            await call_in_new_thread("end ray gateway", lambda: _end_process(process))

    def _accept(self, message: protocol.FromGateway) -> None:
        match message:
            case protocol.Connected(session):
                self.is_connected = True
                self.problem = ""
                self._log_success()
                self._observer.on_connected(session)
            case protocol.Listed(names):
                self._observer.on_listed(names)
            case protocol.StatusSeen(name, status):
                self._observer.on_status(name, status)
            case protocol.Created(number):
                if (reply := self._replies.get(number)) is not None and not reply.done():
                    reply.set_result(message)
            case protocol.ClusterLost(reason):
                raise OperationError(reason)

    def _fail_replies(self) -> None:
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(OperationError(f"the connection to Ray at {self._address} was lost"))

    def _log_failure(self, traceback: Exception | None) -> None:
        if self._streaks.record_failure(self._address, self.problem) is not None:
            extra = {"address": self._address, "error": self.problem}
            logger.warning(events.RAY_DISCONNECTED, exc_info=traceback, extra=extra)

    def _log_success(self) -> None:
        self._streaks.reset(self._address)
        logger.info(events.RAY_CONNECTED, extra={"address": self._address})


def _start_process() -> "tuple[socket.socket, subprocess.Popen[bytes]]":
    own_end, gateway_end = socket.socketpair()
    with gateway_end:
        try:
            process = subprocess.Popen(
                # -P: modules of the working folder must not replace those of the standard library.
                [sys.executable, "-P", "-m", GATEWAY_MODULE, str(gateway_end.fileno())],
                pass_fds=[gateway_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # Ray repeats itself there every second; the gateway reports the reason
                start_new_session=True,
                env={CONNECT_TRIES_VARIABLE: "3", **os.environ},
            )
        except OSError as error:
            own_end.close()
            raise OperationError(f"cannot start a process: {error}") from error
    own_end.setblocking(False)
    return own_end, process


def _end_process(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(SHUTDOWN_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def _read_message(reader: asyncio.StreamReader, timeout: float) -> protocol.FromGateway:
    """Return the next message; OperationError if there is none in time, or no more."""
    try:
        async with asyncio.timeout(timeout):  # real time: a process does not follow the node's clock
            line = await reader.readline()
    except TimeoutError:
        raise OperationError(f"the cluster has not answered for {timeout:g} s") from None
    except (OSError, ValueError) as error:
        raise OperationError(f"the gateway has failed: {error}") from error
    if not line:
        raise OperationError("the gateway has died")
    message: protocol.FromGateway = protocol.FROM_GATEWAY_DECODER.decode(line)
    return message
