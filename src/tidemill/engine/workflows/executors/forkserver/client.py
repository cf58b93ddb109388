"""A fork server as the node sees it: started, spoken to, and ended."""

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
from tidemill.engine.workflows.executors.forkserver import protocol as framing
from tidemill.engine.workflows.executors.forkserver.main import BIND_NOW_VARIABLE
from tidemill.kernel.concurrency import call_in_new_thread
from tidemill.kernel.errors import OperationError

SERVER_MODULE = "tidemill.engine.workflows.executors.forkserver.main"

SERVER_DIED = "the process that starts tasks has died"

SHUTDOWN_TIMEOUT = 2.0
"""Seconds that a fork server has to kill its children, and end."""


class ForkServerClient:
    """One fork server. What its children come to is told to whoever spawned them."""

    def __init__(self, location: CodeLocation) -> None:
        self.location = location
        self.mtime_ns = location.read_mtime_ns()
        self.versions: dict[str, str] = {}
        self.is_alive = False
        self._exit_callbacks: dict[int, Callable[[int | str], None]] = {}
        self._process_groups: dict[int, int] = {}
        self._no_children = asyncio.Event()
        self._last_child_id = 0
        self._abort_reason = ""
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self._is_write_blocked = False
        self._frame_decoder = framing.FrameDecoder()
        self._socket: socket.socket
        self._process: subprocess.Popen[bytes]

    async def open(self) -> None:
        """Start it and let it import the module; OperationError if that fails."""
        self._loop = asyncio.get_running_loop()
        self._prepare_reply: asyncio.Future[framing.PrepareReply] = self._loop.create_future()
        try:
            await call_in_new_thread(f"start of a process for {self.location.module}", self._start_process)
        except OSError as error:
            raise OperationError(f"no process could be started: {error}") from error
        self._socket.setblocking(False)
        self.is_alive = True
        self._loop.add_reader(self._socket, self._on_readable)
        self._send_message(framing.Prepare(self.location))
        if self._abort_reason:  # it was given up before it could be spoken to
            self._disconnect(self._abort_reason)
        try:
            prepared = await self._prepare_reply
            if prepared.error:
                raise OperationError(
                    f"module '{self.location.module}' cannot be imported in a process of its own: {prepared.error}"
                )
        except BaseException:
            await self.close()
            raise
        self.versions = prepared.versions

    def _start_process(self) -> None:
        self._socket, server = socket.socketpair()
        with server:
            try:
                # A session of its own: a Ctrl-C at the terminal is for the node, which ends its children in good order.
                self._process = subprocess.Popen(
                    [sys.executable, "-m", SERVER_MODULE, str(server.fileno())],
                    pass_fds=[server.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    env=os.environ | {BIND_NOW_VARIABLE: "1"},
                )
            except OSError:
                self._socket.close()
                raise

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    async def wait_drained(self) -> None:
        """Wait until it has no children, or is gone."""
        while self._exit_callbacks:
            self._no_children.clear()
            await self._no_children.wait()

    def abort(self, reason: str) -> None:
        """Let go of it, for this reason. It ends by itself when it sees that, and so do its children."""
        self._abort_reason = reason
        self._disconnect(reason)

    async def close(self) -> None:
        """End it, with every child that is left, and wait until it is gone: it is killed if it takes too long for that.

        Author code may keep it, with a thread of its own, or a call that lets no other thread run.
        """
        self._disconnect(SERVER_DIED)
        try:
            async with asyncio.timeout(SHUTDOWN_TIMEOUT):  # real time: a process takes it
                await self._wait_exit()
        except TimeoutError:
            self._process.kill()
            await self._wait_exit()

    async def _wait_exit(self) -> None:
        await call_in_new_thread(f"end of process {self.pid}", self._process.wait)

    # -- children

    def spawn(self, workflow: str, task: str, descriptors: list[int], on_exit: Callable[[int | str], None]) -> int:
        """Fork for a task, and return the child's number. The descriptors, which are the child's, are closed here.

        `ended` is called once, later, with its exit status, or with a reason if there is no telling.
        """
        if not self.is_alive:
            for descriptor in descriptors:
                os.close(descriptor)
            raise OperationError(SERVER_DIED)
        self._last_child_id += 1
        self._exit_callbacks[self._last_child_id] = on_exit
        self._send_message(framing.Spawn(self._last_child_id, workflow, task), descriptors)
        return self._last_child_id

    def signal(self, child_id: int, signum: signal.Signals) -> None:
        """Send a signal to a child's process group, if it still lives."""
        if child_id in self._exit_callbacks:
            self._send_message(framing.Signal(child_id, signum))

    # -- the socket

    def _send_message(self, message: msgspec.Struct, descriptors: list[int] | None = None) -> None:
        self._unsent.append((framing.encode_frame(message), descriptors or []))
        if len(self._unsent) == 1:
            self._flush_unsent()

    def _flush_unsent(self) -> None:
        """Send as much as the socket takes now; descriptors go with the first byte of their message."""
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
            match framing.FROM_SERVER_DECODER.decode(body):
                case framing.PrepareReply() as prepared:
                    if not self._prepare_reply.done():
                        self._prepare_reply.set_result(prepared)
                case framing.Spawned(number, group):
                    self._process_groups[number] = group
                case framing.Exited(number, status):
                    self._on_child_exit(number, status)
                case framing.SpawnFailed(number, reason):
                    self._on_child_exit(number, f"no process could be started: {reason}")

    def _on_child_exit(self, child_id: int, status: int | str) -> None:
        self._process_groups.pop(child_id, None)
        self._loop.call_soon(self._exit_callbacks.pop(child_id), status)
        if not self._exit_callbacks:
            self._no_children.set()

    def _disconnect(self, reason: str) -> None:
        """Take note that it is gone, or is to go."""
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
            self._prepare_reply.set_result(framing.PrepareReply(error=reason))
        for group in self._process_groups.values():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)  # nobody else may be left to do it
        self._process_groups.clear()
        ends, self._exit_callbacks = self._exit_callbacks, {}
        self._no_children.set()
        for ended in ends.values():
            self._loop.call_soon(ended, reason)
