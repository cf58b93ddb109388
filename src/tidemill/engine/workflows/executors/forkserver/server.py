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

from tidemill.engine.workflows.executors.code import load_workflows
from tidemill.engine.workflows.executors.forkserver import child
from tidemill.engine.workflows.executors.forkserver import protocol as framing
from tidemill.engine.workflows.executors.forkserver.protocol import ForkHooks
from tidemill.engine.workflows.executors.runner import TaskRunner
from tidemill.kernel.author_errors import describe
from tidemill.kernel.errors import OperationError

FDS_PER_SPAWN = 3
"""How many come with a Spawn: control socket, stdout, stderr."""

SPAWNED_REPORT_DELAY_MS = 5
"""Milliseconds that the node may wait to hear of a new child: most end sooner, and that need not wake it twice."""

_ANCILLARY_SIZE = socket.CMSG_LEN(FDS_PER_SPAWN * 4)


class ForkServer:
    """The fork server's only object."""

    def __init__(self, node_socket: socket.socket, deferred_hooks: list[ForkHooks]) -> None:
        self._node_socket = node_socket
        self._deferred_hooks = deferred_hooks
        """What new processes need only if there are threads; held back."""
        self._frame_decoder = framing.FrameDecoder()
        self._received_fds: list[int] = []
        self._runners: dict[str, TaskRunner] = {}
        self._children: dict[int, int] = {}  # pid -> number
        self._unsent = b""
        self._is_urgent = False
        """Whether somebody waits for what is unsent."""
        self._devnull = os.open(os.devnull, os.O_RDWR)
        self._wakeup_read_fd, self._wakeup_write_fd = os.pipe()
        for end in (self._wakeup_read_fd, self._wakeup_write_fd):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Do what the node says until it is gone; then kill what is left."""
        data = framing.read_frame(self._node_socket.fileno())
        if data is None:
            return
        first = framing.TO_SERVER_DECODER.decode(data)
        assert isinstance(first, framing.Prepare)
        with _exiting_on_disconnect(self._node_socket):
            prepared = self._prepare(first)
        self._queue_message(prepared)
        self._flush_unsent()
        if not prepared.error:
            self._serve_loop()

    def _prepare(self, request: framing.Prepare) -> framing.PrepareReply:
        try:
            found = load_workflows(request.source)
            versions = {name: workflow.wired().spec.version for name, workflow in found.items()}
        except BaseException as error:  # author code: importing runs it, and it may raise anything
            return framing.PrepareReply(error=describe(error))
        self._runners = {name: TaskRunner(workflow) for name, workflow in found.items()}
        return framing.PrepareReply(versions)

    def _register_hooks_if_threaded(self) -> None:
        """Let every child be repaired if there are threads besides this one; else it does that for its own forks."""
        if count_threads():
            for hooks in self._deferred_hooks:
                os.register_at_fork(**hooks)
            self._deferred_hooks = []

    def _serve_loop(self) -> None:
        self._register_hooks_if_threaded()
        own = self._node_socket.fileno(), self._devnull, self._wakeup_read_fd, self._wakeup_write_fd
        self._child_setup = child.ChildSetup(self._devnull, own, self._deferred_hooks)
        child.warm_up(self._devnull)
        signal.signal(signal.SIGCHLD, _ignore_signal)
        signal.siginterrupt(signal.SIGCHLD, False)
        signal.set_wakeup_fd(self._wakeup_write_fd, warn_on_full_buffer=False)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        gc.collect()
        gc.freeze()  # what is there now is shared with every child: the collector must not touch it
        poll = select.poll()
        for descriptor in (self._wakeup_read_fd, self._node_socket.fileno()):
            poll.register(descriptor, select.POLLIN)
        try:
            while True:
                ready = poll.poll(SPAWNED_REPORT_DELAY_MS if self._unsent else None)
                for descriptor, _ in ready:
                    if descriptor == self._wakeup_read_fd:
                        self._reap()
                    elif not self._handle_messages():
                        return
                if self._is_urgent or not ready:
                    self._flush_unsent()
        finally:
            self._kill_all()

    def _handle_messages(self) -> bool:
        """Do what the node says; False if it is gone."""
        try:
            # Not `recv_fds`: that has no ear for flags, and a process that a task executes would have them all.
            data, ancillary, _, _ = self._node_socket.recvmsg(
                framing.FIRST_READ_SIZE, _ANCILLARY_SIZE, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return False
        for _, _, packed in ancillary:
            self._received_fds += memoryview(packed).cast("i")
        for body in self._frame_decoder.feed(data):
            match framing.TO_SERVER_DECODER.decode(body):
                case framing.Spawn() as spawn:
                    given = self._received_fds[:FDS_PER_SPAWN]
                    del self._received_fds[:FDS_PER_SPAWN]
                    self._spawn(spawn, given)
                case framing.Signal(number, sent):
                    self._signal(number, sent)
        return bool(data)

    def _queue_message(self, message: framing.FromServer, *, is_urgent: bool = True) -> None:
        self._unsent += framing.encode_frame(message)
        self._is_urgent = self._is_urgent or is_urgent

    def _flush_unsent(self) -> None:
        """Send what was said since the last time."""
        data, self._unsent, self._is_urgent = self._unsent, b"", False
        try:
            self._node_socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return  # the node has gone, which is heard next

    # -- children

    def _spawn(self, spawn: framing.Spawn, descriptors: list[int]) -> None:
        try:
            call = self._runners[spawn.workflow].get_call(spawn.task)  # here, so that every child finds it ready
            pid = os.fork()
        except (KeyError, OperationError, OSError) as error:
            self._queue_message(framing.SpawnFailed(spawn.number, describe(error)))
        else:
            if pid == 0:
                child.child_main(call, descriptors, self._child_setup)
            self._children[pid] = spawn.number
            self._queue_message(framing.Spawned(spawn.number, pid), is_urgent=False)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _reap(self) -> None:
        """Take note of every child that has ended, after killing what it left behind."""
        os.read(self._wakeup_read_fd, framing.FIRST_READ_SIZE)
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
                self._queue_message(framing.Exited(number, os.waitstatus_to_exitcode(status)))

    def _signal(self, number: int, signum: int) -> None:
        for pid, one in self._children.items():
            if one == number:
                _signal_group(pid, signum)

    def _kill_all(self) -> None:
        for pid in self._children:
            _signal_group(pid, signal.SIGKILL)
        for pid in self._children:  # who waits for the end of this process waits for theirs
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _signal_group(pid: int, signum: int) -> None:
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:  # it has no group yet
        with suppress(ProcessLookupError):
            os.kill(pid, signum)
    except PermissionError:
        return  # it has become somebody else's


def _ignore_signal(*_: object) -> None:
    """Do nothing: that a signal is taken at all is what wakes the server.

    Its children keep this. It does no harm there, and to take it back would cost each of them a tenth of its start.
    """


@contextmanager
def _exiting_on_disconnect(node_socket: socket.socket) -> Iterator[None]:
    """End this process if the node goes while an import takes its time. Afterwards there is one thread again."""
    done, finish = os.pipe()

    def watch() -> None:
        poll = select.poll()
        poll.register(node_socket, 0)  # only whether it was closed
        poll.register(done, 0)
        if any(descriptor == node_socket.fileno() for descriptor, _ in poll.poll()):
            os._exit(1)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        os.close(finish)
        thread.join()
        os.close(done)
