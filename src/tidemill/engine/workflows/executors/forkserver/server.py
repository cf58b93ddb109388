"""The fork server: a warm process that imports an author's module once and forks a child for every attempt.

The node starts it through `main`. It has one thread, so that a fork never copies a half-finished operation of another
one. When the node disconnects, it kills its children and ends. If children have leases, it also kills those that were
not renewed in time: then the node is frozen or cut off from its store, and another one is about to run their tasks.
"""

import gc
import os
import select
import signal
import socket
import sys
import threading
import time
from _thread import _count as count_threads
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidemill.engine.workflows.executors.code import load_workflows
from tidemill.engine.workflows.executors.forkserver import child, protocol
from tidemill.engine.workflows.executors.forkserver.protocol import ForkHooks
from tidemill.engine.workflows.executors.runner import TaskRunner
from tidemill.kernel.author_errors import describe
from tidemill.kernel.errors import OperationError
from tidemill.telemetry.author_output import AUTHOR_OUTPUT

FDS_PER_SPAWN = 3
"""The number of descriptors that come with a Spawn: control socket, stdout, stderr."""

SPAWNED_REPORT_DELAY_MS = 5
"""Milliseconds that a Spawned message may wait: most children end sooner, and one message then reports both."""

_ANCILLARY_SIZE = socket.CMSG_LEN(FDS_PER_SPAWN * 4)


class ForkServer:
    """Serves one node: imports its module, forks children, signals them and reports their exits."""

    def __init__(self, node_socket: socket.socket, deferred_hooks: list[ForkHooks]) -> None:
        self._node_socket = node_socket
        self._deferred_hooks = deferred_hooks
        """Hooks that children need only if this process has other threads."""
        self._frame_decoder = protocol.FrameDecoder()
        self._received_fds: list[int] = []
        self._runners: dict[str, TaskRunner] = {}
        self._child_ids: dict[int, int] = {}
        """The number of each child by its pid."""
        self._lease: float | None = None
        self._expires_at: dict[int, float] = {}
        """By pid, when the lease of each child ends, on the monotonic clock; empty if they have none."""
        self._expired: set[int] = set()
        """The children that were killed because their lease has ended."""
        self._unsent = b""
        self._is_urgent = False
        """Whether the node waits for an unsent message."""
        self._devnull = os.open(os.devnull, os.O_RDWR)
        self._wakeup_read_fd, self._wakeup_write_fd = os.pipe()
        for end in (self._wakeup_read_fd, self._wakeup_write_fd):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Handle the node's messages until it disconnects; then kill the children."""
        data = protocol.read_frame(self._node_socket.fileno())
        if data is None:
            return
        request = protocol.TO_SERVER_DECODER.decode(data)
        assert isinstance(request, protocol.Prepare)
        self._lease = request.lease
        AUTHOR_OUTPUT.observe_descriptors()
        with _exiting_on_disconnect(self._node_socket):
            reply = self._prepare(request)
        self._queue_message(reply)
        self._flush_unsent()
        if not reply.error:
            self._serve_loop()

    def _prepare(self, request: protocol.Prepare) -> protocol.PrepareReply:
        try:
            workflows = load_workflows(request.source)
            versions = {name: workflow.wired().spec.version for name, workflow in workflows.items()}
        except BaseException as error:  # author code: importing runs it, and it may raise anything
            return protocol.PrepareReply(error=describe(error))
        self._runners = {name: TaskRunner(workflow) for name, workflow in workflows.items()}
        return protocol.PrepareReply(versions)

    def _register_hooks_if_threaded(self) -> None:
        """Register the deferred hooks here if the import has started threads; else each child registers them."""
        if count_threads():
            for hooks in self._deferred_hooks:
                os.register_at_fork(**hooks)
            self._deferred_hooks = []

    def _serve_loop(self) -> None:
        self._register_hooks_if_threaded()
        own_fds = self._node_socket.fileno(), self._devnull, self._wakeup_read_fd, self._wakeup_write_fd
        self._child_setup = child.ChildSetup(self._devnull, own_fds, self._deferred_hooks)
        child.warm_up(self._devnull)
        signal.signal(signal.SIGCHLD, _ignore_signal)
        signal.siginterrupt(signal.SIGCHLD, False)
        signal.set_wakeup_fd(self._wakeup_write_fd, warn_on_full_buffer=False)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        gc.collect()
        gc.freeze()  # children share the memory of these objects: the collector must not write to it
        poll = select.poll()
        for descriptor in (self._wakeup_read_fd, self._node_socket.fileno()):
            poll.register(descriptor, select.POLLIN)
        try:
            while True:
                ready = poll.poll(SPAWNED_REPORT_DELAY_MS if self._unsent else self._next_expiry_ms())
                for descriptor, _ in ready:
                    if descriptor == self._wakeup_read_fd:
                        self._reap()
                    elif not self._handle_messages():
                        return
                if self._is_urgent or not ready:
                    self._flush_unsent()
                if self._expires_at:
                    self._kill_expired()
        finally:
            self._kill_all()

    def _handle_messages(self) -> bool:
        """Handle the messages that have arrived; False if the node has disconnected."""
        try:
            # Not `recv_fds`: it accepts no MSG_CMSG_CLOEXEC, and programs that a task executes would inherit all.
            data, ancillary, _, _ = self._node_socket.recvmsg(
                protocol.FIRST_READ_SIZE, _ANCILLARY_SIZE, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return False
        for _, _, packed in ancillary:
            self._received_fds += memoryview(packed).cast("i")
        for body in self._frame_decoder.feed(data):
            match protocol.TO_SERVER_DECODER.decode(body):
                case protocol.Spawn() as spawn:
                    child_fds = self._received_fds[:FDS_PER_SPAWN]
                    del self._received_fds[:FDS_PER_SPAWN]
                    self._spawn(spawn, child_fds)
                case protocol.Signal(number, signum):
                    self._signal(number, signum)
                case protocol.LeasesRenewed():
                    self._expires_at = dict.fromkeys(self._expires_at, self._lease_end())
        return bool(data)

    def _queue_message(self, message: protocol.FromServer, *, is_urgent: bool = True) -> None:
        self._unsent += protocol.encode_frame(message)
        self._is_urgent = self._is_urgent or is_urgent

    def _flush_unsent(self) -> None:
        """Send the queued messages."""
        data, self._unsent, self._is_urgent = self._unsent, b"", False
        try:
            self._node_socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return  # the node has disconnected, which the next read reports

    # -- children

    def _spawn(self, spawn: protocol.Spawn, descriptors: list[int]) -> None:
        try:
            call = self._runners[spawn.workflow].get_call(spawn.task)  # here, so that all children share it
            pid = os.fork()
        except (KeyError, OperationError, OSError) as error:
            self._queue_message(protocol.SpawnFailed(spawn.number, describe(error)))
        else:
            if pid == 0:
                child.child_main(call, descriptors, self._child_setup)
            self._child_ids[pid] = spawn.number
            if self._lease is not None:
                self._expires_at[pid] = self._lease_end()
            self._queue_message(protocol.Spawned(spawn.number, pid), is_urgent=False)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _reap(self) -> None:
        """Report every child that has ended, after killing its process group."""
        os.read(self._wakeup_read_fd, protocol.FIRST_READ_SIZE)
        while self._child_ids:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            pid = ended.si_pid
            number = self._child_ids.pop(pid, None)
            self._expires_at.pop(pid, None)
            if number is not None:
                _signal_group(pid, signal.SIGKILL)  # before it is reaped: until then its pid is not reused
            _, status = os.waitpid(pid, 0)
            if number is not None:
                self._queue_message(self._describe_end(pid, number, status))

    def _describe_end(self, pid: int, number: int, status: int) -> protocol.FromServer:
        if pid in self._expired:
            self._expired.discard(pid)
            return protocol.Expired(number)
        return protocol.Exited(number, os.waitstatus_to_exitcode(status))

    # -- leases

    def _lease_end(self) -> float:
        """Return when a lease ends that begins now."""
        return time.monotonic() + (self._lease or 0.0)  # real time: a process does not follow the node's clock

    def _next_expiry_ms(self) -> float | None:
        """Return the milliseconds until the next lease ends; None if no child has one."""
        return max(0.0, min(self._expires_at.values()) - time.monotonic()) * 1000 if self._expires_at else None

    def _kill_expired(self) -> None:
        now = time.monotonic()
        for pid in [pid for pid, end in self._expires_at.items() if end <= now]:
            del self._expires_at[pid]
            self._expired.add(pid)
            _signal_group(pid, signal.SIGKILL)

    def _signal(self, number: int, signum: int) -> None:
        for pid, child_id in self._child_ids.items():
            if child_id == number:
                _signal_group(pid, signum)

    def _kill_all(self) -> None:
        for pid in self._child_ids:
            _signal_group(pid, signal.SIGKILL)
        for pid in self._child_ids:  # the node waits for the end of this process, and so for theirs
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _signal_group(pid: int, signum: int) -> None:
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:  # it has no process group yet
        with suppress(ProcessLookupError):
            os.kill(pid, signum)
    except PermissionError:
        return  # it has changed its user


def _ignore_signal(*_: object) -> None:
    """Do nothing: that the signal is handled at all wakes the server.

    Children keep this handler. It does no harm there, and to reset it would cost each of them a tenth of its start.
    """


@contextmanager
def _exiting_on_disconnect(node_socket: socket.socket) -> Iterator[None]:
    """Exit if the node disconnects during the import. The thread that watches for it ends with the block."""
    done_read_fd, done_write_fd = os.pipe()

    def watch() -> None:
        poll = select.poll()
        poll.register(node_socket, 0)  # reports only that it was closed
        poll.register(done_read_fd, 0)
        if any(descriptor == node_socket.fileno() for descriptor, _ in poll.poll()):
            os._exit(1)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        os.close(done_write_fd)
        thread.join()
        os.close(done_read_fd)
