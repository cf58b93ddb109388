"""A warm process that has imported an author's module once, and forks for every attempt.

It is started by the node as `python -m`, with a socket to the node as its only argument. It has one thread, so that a
fork copies nothing in the middle of something. When the node is gone it kills all that it forked, and ends.
"""

import gc
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidemill.engine.workflows.executors import child, framing
from tidemill.engine.workflows.executors.runner import Call, Runner
from tidemill.engine.workflows.executors.source import load
from tidemill.kernel.author_errors import describe
from tidemill.kernel.errors import OperationError

DESCRIPTORS = 3
"""How many come with a Spawn: control socket, stdout, stderr."""


class Server:
    """The fork server's only object."""

    def __init__(self, node: socket.socket) -> None:
        self._node = node
        self._frames = framing.Frames()
        self._descriptors: list[int] = []
        self._runners: dict[str, Runner] = {}
        self._children: dict[int, int] = {}  # pid -> number
        self._pids: dict[int, int] = {}
        self._unsent = b""
        self._nothing = os.open(os.devnull, os.O_RDWR)
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        self._own = node.fileno(), self._nothing, self._woken, self._wake
        """What no child may have."""

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

    def _listen(self) -> None:
        signal.signal(signal.SIGCHLD, _wake_up)
        signal.siginterrupt(signal.SIGCHLD, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        child.rehearse(self._nothing)
        gc.collect()
        gc.freeze()  # what is there now is shared with every child: the collector must not touch it
        poll = select.poll()
        for descriptor in (self._woken, self._node.fileno()):
            poll.register(descriptor, select.POLLIN)
        try:
            while True:
                for descriptor, _ in poll.poll():
                    if descriptor == self._woken:
                        self._reap()
                    elif not self._hear():
                        return
                self._send()
        finally:
            self._kill_all()

    def _hear(self) -> bool:
        """Do what the node says; False if it is gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._node, 65536, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            return False
        self._descriptors += descriptors
        for body in self._frames.feed(data):
            match framing.TO_SERVER.decode(body):
                case framing.Spawn() as spawn:
                    given = self._descriptors[:DESCRIPTORS]
                    del self._descriptors[:DESCRIPTORS]
                    self._spawn(spawn, given)
                case framing.Signal(number, sent):
                    self._signal(number, sent)
        return bool(data)

    def _say(self, message: framing.FromServer) -> None:
        self._unsent += framing.framed(message)

    def _send(self) -> None:
        """Send what was said since the last time."""
        data, self._unsent = self._unsent, b""
        if data:
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
                self._become_child(call, descriptors)
            self._children[pid] = spawn.number
            self._pids[spawn.number] = pid
            self._say(framing.Spawned(spawn.number, pid))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _become_child(self, call: Call, descriptors: list[int]) -> None:
        """Run one attempt in what was just forked, and never return."""
        status = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            os.dup2(self._nothing, 0)
            os.dup2(descriptors[1], 1)
            os.dup2(descriptors[2], 2)
            for descriptor in (*self._own, descriptors[1], descriptors[2]):
                os.close(descriptor)
            child.attend(descriptors[0], call)
            status = 0
        except (BrokenPipeError, ConnectionResetError):
            pass  # the node is gone, or wants no more of it
        except BaseException as error:  # nothing of this process may go on as a second fork server
            os.write(2, f"{describe(error)}\n".encode(errors="replace"))
        finally:
            os._exit(status)

    def _reap(self) -> None:
        """Take note of every child that has ended, after killing what it left behind."""
        os.read(self._woken, 4096)
        while self._children:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return
            pid = found.si_pid
            number = self._children.pop(pid, None)
            if number is not None:
                self._pids.pop(number)
                _kill_group(pid)  # before it is reaped: its number is nobody else's yet
            _, status = os.waitpid(pid, 0)
            if number is not None:
                self._say(framing.Exited(number, os.waitstatus_to_exitcode(status)))

    def _signal(self, number: int, sent: int) -> None:
        pid = self._pids.get(number)
        if pid is None:
            return
        try:
            os.killpg(pid, sent)
        except ProcessLookupError:  # it has no group yet
            with suppress(ProcessLookupError):
                os.kill(pid, sent)

    def _kill_all(self) -> None:
        for number in self._pids:
            self._signal(number, signal.SIGKILL)
        for pid in self._children:  # who waits for the end of this process waits for theirs
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


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


if __name__ == "__main__":
    Server(socket.socket(fileno=int(sys.argv[1]))).serve()
