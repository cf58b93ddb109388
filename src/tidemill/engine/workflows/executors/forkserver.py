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
from tidemill.engine.workflows.executors.source import load, workflows_in
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
        self._nothing = os.open(os.devnull, os.O_RDWR)
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Do what the node says until it is gone; then kill what is left."""
        data = framing.receive(self._node)
        if data is None:
            return
        first = framing.TO_SERVER.decode(data)
        assert isinstance(first, framing.Prepare)
        with _ending_with(self._node):
            prepared = self._prepare(first)
        self._say(prepared)
        if not prepared.error:
            self._listen()

    def _prepare(self, wanted: framing.Prepare) -> framing.Prepared:
        try:
            found = workflows_in(load(wanted.source))
            versions = {name: workflow.wired().spec.version for name, workflow in found.items()}
        except BaseException as error:  # author code: importing runs it, and it may raise anything
            return framing.Prepared(error=describe(error))
        self._runners = {name: Runner(workflow) for name, workflow in found.items()}
        return framing.Prepared(versions)

    def _listen(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        gc.collect()
        gc.freeze()  # what is there now is shared with every child: the collector must not touch it
        poll = select.poll()
        poll.register(self._node, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        try:
            while True:
                ready = {descriptor for descriptor, _ in poll.poll()}
                if self._woken in ready:
                    with suppress(BlockingIOError):
                        os.read(self._woken, 4096)
                    self._reap()
                if self._node.fileno() in ready and not self._hear():
                    return
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
        with suppress(BrokenPipeError, ConnectionResetError):
            self._node.sendall(framing.framed(message))

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
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _become_child(self, call: Call, descriptors: list[int]) -> None:
        """Run one attempt in what was just forked, and never return."""
        status = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor, place in zip((self._nothing, *descriptors[1:]), range(3), strict=True):
                os.dup2(descriptor, place)
            for descriptor in (self._nothing, self._woken, self._wake, *descriptors[1:]):
                os.close(descriptor)
            self._node.close()
            child.attend(socket.socket(fileno=descriptors[0]), call)
            status = 0
        except (BrokenPipeError, ConnectionResetError):
            pass  # the node is gone, or wants no more of it
        except BaseException as error:  # nothing of this process may go on as a second fork server
            os.write(2, f"{describe(error)}\n".encode(errors="replace"))
        finally:
            os._exit(status)

    def _reap(self) -> None:
        """Take note of every child that has ended, after killing what it left behind."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            number = self._children.pop(found.si_pid, None)
            if number is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(found.si_pid, signal.SIGKILL)  # before it is reaped: its number is nobody else's yet
            _, status = os.waitpid(found.si_pid, 0)
            if number is not None:
                del self._pids[number]
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
