"""A warm process that has imported an author's module once, and forks for every attempt.

The node starts it, see `fork_start`. It has one thread, so that a fork copies nothing in the middle of something. When
the node is gone it kills all that it forked, and ends.
"""

import gc
import os
import select
import signal
import socket
import sys
import threading
from _thread import _count as count_threads
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidemill.engine.workflows.executors import child, framing
from tidemill.engine.workflows.executors.fork_hooks import Hooks
from tidemill.engine.workflows.executors.runner import Runner
from tidemill.engine.workflows.executors.source import load
from tidemill.kernel.author_errors import describe
from tidemill.kernel.errors import OperationError

DESCRIPTORS = 3
"""How many come with a Spawn: control socket, stdout, stderr."""

LINGER = 5
"""Milliseconds that the node may wait to hear of a new child: most end sooner, and that need not wake it twice."""

_ROOM = socket.CMSG_LEN(DESCRIPTORS * 4)


class Server:
    """The fork server's only object."""

    def __init__(self, node: socket.socket, repairs: list[Hooks]) -> None:
        self._node = node
        self._repairs = repairs
        """What new processes need only if there are threads; held back."""
        self._frames = framing.Frames()
        self._descriptors: list[int] = []
        self._runners: dict[str, Runner] = {}
        self._children: dict[int, int] = {}  # pid -> number
        self._unsent = b""
        self._is_urgent = False
        """Whether somebody waits for what is unsent."""
        self._nothing = os.open(os.devnull, os.O_RDWR)
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Do what the node says until it is gone; then kill what is left."""
        data = framing.receive(self._node.fileno())
        if data is None:
            return
        first = framing.TO_SERVER.decode(data)
        assert isinstance(first, framing.Prepare)
        with _ending_with(self._node):
            prepared = self._prepare(first)
        self._say(prepared)
        self._send()
        if not prepared.error:
            self._listen()

    def _prepare(self, wanted: framing.Prepare) -> framing.Prepared:
        try:
            found = load(wanted.source)
            versions = {name: workflow.wired().spec.version for name, workflow in found.items()}
        except BaseException as error:  # author code: importing runs it, and it may raise anything
            return framing.Prepared(error=describe(error))
        self._runners = {name: Runner(workflow) for name, workflow in found.items()}
        return framing.Prepared(versions)

    def _repair_if_needed(self) -> None:
        """Let every child be repaired if there are threads besides this one; else it does that for its own forks."""
        if count_threads():
            for hooks in self._repairs:
                os.register_at_fork(**hooks)
            self._repairs = []

    def _listen(self) -> None:
        self._repair_if_needed()
        own = self._node.fileno(), self._nothing, self._woken, self._wake
        self._inheritance = child.Inheritance(self._nothing, own, self._repairs)
        child.rehearse(self._nothing)
        signal.signal(signal.SIGCHLD, _wake_up)
        signal.siginterrupt(signal.SIGCHLD, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        gc.collect()
        gc.freeze()  # what is there now is shared with every child: the collector must not touch it
        poll = select.poll()
        for descriptor in (self._woken, self._node.fileno()):
            poll.register(descriptor, select.POLLIN)
        try:
            while True:
                ready = poll.poll(LINGER if self._unsent else None)
                for descriptor, _ in ready:
                    if descriptor == self._woken:
                        self._reap()
                    elif not self._hear():
                        return
                if self._is_urgent or not ready:
                    self._send()
        finally:
            self._kill_all()

    def _hear(self) -> bool:
        """Do what the node says; False if it is gone."""
        try:
            # Not `recv_fds`: that has no ear for flags, and a process that a task executes would have them all.
            data, ancillary, _, _ = self._node.recvmsg(framing.SHORT, _ROOM, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            return False
        for _, _, packed in ancillary:
            self._descriptors += memoryview(packed).cast("i")
        for body in self._frames.feed(data):
            match framing.TO_SERVER.decode(body):
                case framing.Spawn() as spawn:
                    given = self._descriptors[:DESCRIPTORS]
                    del self._descriptors[:DESCRIPTORS]
                    self._spawn(spawn, given)
                case framing.Signal(number, sent):
                    self._signal(number, sent)
        return bool(data)

    def _say(self, message: framing.FromServer, *, is_urgent: bool = True) -> None:
        self._unsent += framing.framed(message)
        self._is_urgent = self._is_urgent or is_urgent

    def _send(self) -> None:
        """Send what was said since the last time."""
        data, self._unsent, self._is_urgent = self._unsent, b"", False
        try:
            self._node.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return  # the node has gone, which is heard next

    # -- children

    def _spawn(self, spawn: framing.Spawn, descriptors: list[int]) -> None:
        try:
            call = self._runners[spawn.workflow].call(spawn.task)  # here, so that every child finds it ready
            pid = os.fork()
        except (KeyError, OperationError, OSError) as error:
            self._say(framing.NotSpawned(spawn.number, describe(error)))
        else:
            if pid == 0:
                child.begin(call, descriptors, self._inheritance)
            self._children[pid] = spawn.number
            self._say(framing.Spawned(spawn.number, pid), is_urgent=False)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _reap(self) -> None:
        """Take note of every child that has ended, after killing what it left behind."""
        os.read(self._woken, framing.SHORT)
        while self._children:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return
            pid = found.si_pid
            number = self._children.pop(pid, None)
            if number is not None:
                _signal_group(pid, signal.SIGKILL)  # before it is reaped: its number is nobody else's yet
            _, status = os.waitpid(pid, 0)
            if number is not None:
                self._say(framing.Exited(number, os.waitstatus_to_exitcode(status)))

    def _signal(self, number: int, sent: int) -> None:
        for pid, one in self._children.items():
            if one == number:
                _signal_group(pid, sent)

    def _kill_all(self) -> None:
        for pid in self._children:
            _signal_group(pid, signal.SIGKILL)
        for pid in self._children:  # who waits for the end of this process waits for theirs
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _signal_group(pid: int, sent: int) -> None:
    try:
        os.killpg(pid, sent)
    except ProcessLookupError:  # it has no group yet
        with suppress(ProcessLookupError):
            os.kill(pid, sent)
    except PermissionError:
        return  # it has become somebody else's


def _wake_up(*_: object) -> None:
    """Do nothing: that a signal is taken at all is what wakes the server.

    Its children keep this. It does no harm there, and to take it back would cost each of them a tenth of its start.
    """


@contextmanager
def _ending_with(node: socket.socket) -> Iterator[None]:
    """End this process if the node goes while an import takes its time. Afterwards there is one thread again."""
    done, finish = os.pipe()

    def watch() -> None:
        poll = select.poll()
        poll.register(node, 0)  # only whether it was closed
        poll.register(done, 0)
        if any(descriptor == node.fileno() for descriptor, _ in poll.poll()):
            os._exit(1)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        os.close(finish)
        thread.join()
        os.close(done)
