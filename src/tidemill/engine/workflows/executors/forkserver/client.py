"""The node's side of a fork server: starts it, sends it requests, and ends it."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import msgspec

from tidemill.engine.workflows.executors.code import CodeLocation
from tidemill.engine.workflows.executors.forkserver import protocol
from tidemill.engine.workflows.executors.forkserver.main import BIND_NOW_VARIABLE
from tidemill.kernel.concurrency import call_in_new_thread
from tidemill.kernel.errors import OperationError
from tidemill.kernel.settings import secret_variables

SERVER_MODULE = "tidemill.engine.workflows.executors.forkserver.main"

SERVER_DIED = "the fork server has died"

LEASE_EXPIRED = "its worker could not renew its lease in time, and ended it"

SHUTDOWN_TIMEOUT = 2.0
"""Seconds that a fork server has to kill its children and end."""


def _task_environment() -> dict[str, str]:
    """Return the environment of tasks: that of the node, without the secrets of its settings."""
    hidden = secret_variables(os.environ)
    return {name: value for name, value in os.environ.items() if name not in hidden} | {BIND_NOW_VARIABLE: "1"}


class ChildExit(msgspec.Struct, frozen=True):
    """The end of a child."""

    status: int | None = None
    """Its exit code, negative for the signal that ended it; None if there is none."""
    reason: str = ""
    """Why there is no status: the process was never started, or its fork server is gone."""


class ForkServerClient:
    """One fork server. The exit of each child is reported to the callback it was spawned with."""

    def __init__(self, location: CodeLocation, lease: float | None = None) -> None:
        self.location = location
        self._lease = lease
        self.mtime_ns = location.read_mtime_ns()
        self.versions: dict[str, str] = {}
        self.is_alive = False
        self._exit_callbacks: dict[int, Callable[[ChildExit], None]] = {}
        self._process_groups: dict[int, int] = {}
        self._no_children = asyncio.Event()
        self._last_child_id = 0
        self._abort_reason = ""
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self._is_write_blocked = False
        self._frame_decoder = protocol.FrameDecoder()
        self._socket: socket.socket
        self._process: subprocess.Popen[bytes]

    async def open(self) -> None:
        """Start the fork server and wait until it has imported the module; OperationError if that fails."""
        self._loop = asyncio.get_running_loop()
        self._prepare_reply: asyncio.Future[protocol.PrepareReply] = self._loop.create_future()
        try:
            await call_in_new_thread(f"start fork server: {self.location.module}", self._start_process)
        except OSError as error:
            raise OperationError(f"cannot start a process: {error}") from error
        self._socket.setblocking(False)
        self.is_alive = True
        self._loop.add_reader(self._socket, self._on_readable)
        self._send_message(protocol.Prepare(self.location, self._lease))
        if self._abort_reason:  # `abort` was called while the process was being started
            self._disconnect(self._abort_reason)
        try:
            reply = await self._prepare_reply
            if reply.error:
                raise OperationError(
                    f"module '{self.location.module}' cannot be imported in a separate process: {reply.error}"
                )
        except BaseException:
            await self.close()
            raise
        self.versions = reply.versions

    def _start_process(self) -> None:
        self._socket, server_end = socket.socketpair()
        with server_end:
            try:
                # A separate session: Ctrl-C at the terminal is for the node, which ends its children in order.
                self._process = subprocess.Popen(
                    # -P: modules of the working folder must not replace those of the standard library.
                    [sys.executable, "-P", "-m", SERVER_MODULE, str(server_end.fileno())],
                    pass_fds=[server_end.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    env=_task_environment(),
                )
            except OSError:
                self._socket.close()
                raise

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    async def wait_drained(self) -> None:
        """Wait until it has no children, or is disconnected."""
        while self._exit_callbacks:
            self._no_children.clear()
            await self._no_children.wait()

    def abort(self, reason: str) -> None:
        """Disconnect from the fork server for a reason. It sees that and ends, with its children."""
        self._abort_reason = reason
        self._disconnect(reason)

    async def close(self) -> None:
        """End the fork server with all its children, and wait for its exit; kill it after SHUTDOWN_TIMEOUT.

        Author code can delay its exit with a thread, or with a call that lets no other thread run.
        """
        self._disconnect(SERVER_DIED)
        try:
            async with asyncio.timeout(SHUTDOWN_TIMEOUT):  # real time: a process does not follow the node's clock
                await self._wait_exit()
        except TimeoutError:
            self._process.kill()
            await self._wait_exit()

    async def _wait_exit(self) -> None:
        await call_in_new_thread(f"wait for process {self.pid}", self._process.wait)

    # -- children

    def spawn(self, workflow: str, task: str, descriptors: list[int], on_exit: Callable[[ChildExit], None]) -> int:
        """Fork a child for a task and return its number. The child's descriptors are closed in this process.

        `on_exit` is called once, in a later turn of the loop.
        """
        if not self.is_alive:
            for descriptor in descriptors:
                os.close(descriptor)
            raise OperationError(SERVER_DIED)
        self._last_child_id += 1
        self._exit_callbacks[self._last_child_id] = on_exit
        self._send_message(protocol.Spawn(self._last_child_id, workflow, task), descriptors)
        return self._last_child_id

    def signal(self, child_id: int, signum: signal.Signals) -> None:
        """Send a signal to a child's process group, if the child is alive."""
        if child_id in self._exit_callbacks:
            self._send_message(protocol.Signal(child_id, signum))

    def renew_leases(self) -> None:
        """Let all children run on for the length of a lease."""
        if self.is_alive and self._exit_callbacks:
            self._send_message(protocol.LeasesRenewed())

    # -- the socket

    def _send_message(self, message: msgspec.Struct, descriptors: list[int] | None = None) -> None:
        self._unsent.append((protocol.encode_frame(message), descriptors or []))
        if len(self._unsent) == 1:
            self._flush_unsent()

    def _flush_unsent(self) -> None:
        """Send as much as the socket accepts now; descriptors go with the first byte of their message."""
        try:
            while self._unsent:
                data, descriptors = self._unsent[0]
                sent = socket.send_fds(self._socket, [data], descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                if sent < len(data):
                    self._unsent[0] = data[sent:], []
                else:
                    self._unsent.popleft()
            if self._is_write_blocked:
                self._is_write_blocked = False
                self._loop.remove_writer(self._socket)
        except BlockingIOError:
            self._is_write_blocked = True
            self._loop.add_writer(self._socket, self._flush_unsent)
        except OSError:
            self._disconnect(SERVER_DIED)

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnect(SERVER_DIED)
            return
        for body in self._frame_decoder.feed(data):
            match protocol.FROM_SERVER_DECODER.decode(body):
                case protocol.PrepareReply() as reply:
                    if not self._prepare_reply.done():
                        self._prepare_reply.set_result(reply)
                case protocol.Spawned(number, group):
                    self._process_groups[number] = group
                case protocol.Exited(number, status):
                    self._on_child_exit(number, ChildExit(status))
                case protocol.Expired(number):
                    self._on_child_exit(number, ChildExit(reason=LEASE_EXPIRED))
                case protocol.SpawnFailed(number, reason):
                    self._on_child_exit(number, ChildExit(reason=f"cannot start a process: {reason}"))

    def _on_child_exit(self, child_id: int, child_exit: ChildExit) -> None:
        self._process_groups.pop(child_id, None)
        self._loop.call_soon(self._exit_callbacks.pop(child_id), child_exit)
        if not self._exit_callbacks:
            self._no_children.set()

    def _disconnect(self, reason: str) -> None:
        """Close the connection, kill the children, and report each of them with a reason."""
        if not self.is_alive:
            return
        self.is_alive = False
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        for _, descriptors in self._unsent:
            for descriptor in descriptors:
                with suppress(OSError):
                    os.close(descriptor)
        self._unsent.clear()
        if not self._prepare_reply.done():
            self._prepare_reply.set_result(protocol.PrepareReply(error=reason))
        for group in self._process_groups.values():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)  # the fork server may be dead and unable to do it
        self._process_groups.clear()
        callbacks, self._exit_callbacks = self._exit_callbacks, {}
        self._no_children.set()
        for on_exit in callbacks.values():
            self._loop.call_soon(on_exit, ChildExit(reason=reason))
