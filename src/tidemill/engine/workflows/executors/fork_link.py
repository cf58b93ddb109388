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

from tidemill.engine.workflows.executors import framing
from tidemill.engine.workflows.executors.fork_start import BIND_NOW
from tidemill.engine.workflows.executors.source import Source
from tidemill.kernel.concurrency import in_own_thread
from tidemill.kernel.errors import OperationError

PROGRAM = "tidemill.engine.workflows.executors.fork_start"

GONE = "the process that starts tasks has died"

LAST = 2.0
"""Seconds that a fork server has to kill its children, and end."""


class ForkLink:
    """One fork server. What its children come to is told to whoever spawned them."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.stamp = source.stamp()
        self.versions: dict[str, str] = {}
        self.is_alive = False
        self._ends: dict[int, Callable[[int | str], None]] = {}
        self._groups: dict[int, int] = {}
        self._emptied = asyncio.Event()
        self._numbers = 0
        self._verdict = ""
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self._is_held_up = False
        self._frames = framing.Frames()
        self._node: socket.socket
        self._process: subprocess.Popen[bytes]

    async def open(self) -> None:
        """Start it and let it import the module; OperationError if that fails."""
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[framing.Prepared] = self._loop.create_future()
        try:
            await in_own_thread(f"start of a process for {self.source.module}", self._start)
        except OSError as error:
            raise OperationError(f"no process could be started: {error}") from error
        self._node.setblocking(False)
        self.is_alive = True
        self._loop.add_reader(self._node, self._hear)
        self._say(framing.Prepare(self.source))
        if self._verdict:  # it was given up before it could be spoken to
            self._lose(self._verdict)
        try:
            prepared = await self._ready
            if prepared.error:
                raise OperationError(
                    f"module '{self.source.module}' cannot be imported in a process of its own: {prepared.error}"
                )
        except BaseException:
            await self.close()
            raise
        self.versions = prepared.versions

    def _start(self) -> None:
        self._node, server = socket.socketpair()
        with server:
            try:
                # A session of its own: a Ctrl-C at the terminal is for the node, which ends its children in good order.
                self._process = subprocess.Popen(
                    [sys.executable, "-m", PROGRAM, str(server.fileno())],
                    pass_fds=[server.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    env=os.environ | {BIND_NOW: "1"},
                )
            except OSError:
                self._node.close()
                raise

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    async def drained(self) -> None:
        """Wait until it has no children, or is gone."""
        while self._ends:
            self._emptied.clear()
            await self._emptied.wait()

    def give_up(self, reason: str) -> None:
        """Let go of it, for this reason. It ends by itself when it sees that, and so do its children."""
        self._verdict = reason
        self._lose(reason)

    async def close(self) -> None:
        """End it, with every child that is left, and wait until it is gone: it is killed if it takes too long for that.

        Author code may keep it, with a thread of its own, or a call that lets no other thread run.
        """
        self._lose(GONE)
        try:
            async with asyncio.timeout(LAST):  # real time: a process takes it
                await self._waited()
        except TimeoutError:
            self._process.kill()
            await self._waited()

    async def _waited(self) -> None:
        await in_own_thread(f"end of process {self.pid}", self._process.wait)

    # -- children

    def spawn(self, workflow: str, task: str, descriptors: list[int], ended: Callable[[int | str], None]) -> int:
        """Fork for a task, and return the child's number. The descriptors, which are the child's, are closed here.

        `ended` is called once, later, with its exit status, or with a reason if there is no telling.
        """
        if not self.is_alive:
            for descriptor in descriptors:
                os.close(descriptor)
            raise OperationError(GONE)
        self._numbers += 1
        self._ends[self._numbers] = ended
        self._say(framing.Spawn(self._numbers, workflow, task), descriptors)
        return self._numbers

    def signal(self, number: int, sent: signal.Signals) -> None:
        """Send a signal to a child's process group, if it still lives."""
        if number in self._ends:
            self._say(framing.Signal(number, sent))

    # -- the socket

    def _say(self, message: msgspec.Struct, descriptors: list[int] | None = None) -> None:
        self._unsent.append((framing.framed(message), descriptors or []))
        if len(self._unsent) == 1:
            self._send()

    def _send(self) -> None:
        """Send as much as the socket takes now; descriptors go with the first byte of their message."""
        try:
            while self._unsent:
                data, descriptors = self._unsent[0]
                sent = socket.send_fds(self._node, [data], descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                if sent < len(data):
                    self._unsent[0] = data[sent:], []
                else:
                    self._unsent.popleft()
            if self._is_held_up:
                self._is_held_up = False
                self._loop.remove_writer(self._node)
        except BlockingIOError:
            self._is_held_up = True
            self._loop.add_writer(self._node, self._send)
        except OSError:
            self._lose(GONE)

    def _hear(self) -> None:
        try:
            data = self._node.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose(GONE)
            return
        for body in self._frames.feed(data):
            match framing.FROM_SERVER.decode(body):
                case framing.Prepared() as prepared:
                    if not self._ready.done():
                        self._ready.set_result(prepared)
                case framing.Spawned(number, group):
                    self._groups[number] = group
                case framing.Exited(number, status):
                    self._tell(number, status)
                case framing.NotSpawned(number, reason):
                    self._tell(number, f"no process could be started: {reason}")

    def _tell(self, number: int, how: int | str) -> None:
        self._groups.pop(number, None)
        self._loop.call_soon(self._ends.pop(number), how)
        if not self._ends:
            self._emptied.set()

    def _lose(self, reason: str) -> None:
        """Take note that it is gone, or is to go."""
        if not self.is_alive:
            return
        self.is_alive = False
        self._loop.remove_reader(self._node)
        self._loop.remove_writer(self._node)
        self._node.close()
        for _, descriptors in self._unsent:
            for descriptor in descriptors:
                with suppress(OSError):
                    os.close(descriptor)
        self._unsent.clear()
        if not self._ready.done():
            self._ready.set_result(framing.Prepared(error=reason))
        for group in self._groups.values():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)  # nobody else may be left to do it
        self._groups.clear()
        ends, self._ends = self._ends, {}
        self._emptied.set()
        for ended in ends.values():
            self._loop.call_soon(ended, reason)
