"""Tasks in processes of their own, forked from a warm one: they can be killed, and die with the node.

Each attempt has a process group. It is asked to end with SIGTERM and made to with SIGKILL, and whatever it started goes
with it. What it prints is its log; what it returns comes over a socket that nobody else has.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.executors.attempt_output import OutputBuffer, echo_to_logging
from tidemill.engine.workflows.executors.code import VersionCache, WorkflowLookup
from tidemill.engine.workflows.executors.forkserver import protocol as framing
from tidemill.engine.workflows.executors.forkserver.client import ForkServerClient
from tidemill.engine.workflows.executors.forkserver.pool import ForkServerPool
from tidemill.engine.workflows.executors.interface import (
    STOP_GRACE_PERIOD,
    AttemptListener,
    AttemptRequest,
    Executor,
    LogRecord,
    RecentAttempts,
    build_timeout_failure,
)
from tidemill.engine.workflows.executors.runner import TaskRunner
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, TidemillError
from tidemill.workflows.attempt_results import AttemptResult, Cancelled, Failed, HandedBack, Lost
from tidemill.workflows.records import AttemptKey, TaskError


class FdSelector:
    """Calls back whenever there is something to be read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._selector = DefaultSelector()
        loop.add_reader(self._selector.fileno(), self._call_ready)

    def close(self) -> None:
        """Hear nothing any more."""
        self._loop.remove_reader(self._selector.fileno())
        self._selector.close()

    def add(self, descriptor: int, callback: Callable[[], object]) -> None:
        """Call whenever there is something to be read here, or the other side has gone."""
        self._selector.register(descriptor, EVENT_READ, callback)

    def remove(self, descriptor: int) -> None:
        """Do not any more, if it was wanted at all; to be said before the descriptor is closed."""
        with suppress(KeyError):
            self._selector.unregister(descriptor)

    def _call_ready(self) -> None:
        wanted = self._selector.get_map()
        for key, _ in self._selector.select(0):
            if wanted.get(key.fd) is key:  # a call before this one may have changed that
                key.data()


READ_CHUNK_SIZE = 64 * 1024

DRAIN_READ_LIMIT = 16
"""How many chunks a pipe, or a socket, can hold of what was written before the end."""

NOT_STARTED = "it has not begun"


class _ProcessAttempt:
    """An attempt that is here: its process, and what has been heard of it."""

    def __init__(
        self,
        request: AttemptRequest,
        loop: asyncio.AbstractEventLoop,
        selector: FdSelector,
        output: OutputBuffer,
        clock: Clock,
    ) -> None:
        self.request = request
        self.output = output
        self.server: ForkServerClient | None = None
        self.child_id = 0
        """Of its process, once there is one."""
        self.watchdog: asyncio.Task[Any] | None = None
        self.reported_ending: AttemptResult | None = None
        """How it says that it ended."""
        self.stop_ending: AttemptResult | None = None
        """How it ends because somebody wants it to."""
        self.is_reportable = True
        """Whether anybody is to hear how it ends."""
        self._loop = loop
        self._selector = selector
        self._clock = clock
        self._frame_decoder = framing.FrameDecoder()
        self._control: socket.socket | None = None
        self._pipes: dict[str, int] = {}
        self._child_fds: list[int] = []
        self._unsent = memoryview(b"")

    def open_channels(self) -> None:
        """Open what will lead to the process."""
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        self._child_fds.append(theirs.detach())
        for stream in ("stdout", "stderr"):
            self._pipes[stream], end = os.pipe()
            os.set_blocking(self._pipes[stream], False)
            self._child_fds.append(end)

    def start_io(self) -> list[int]:
        """Write the order to where the process will find it, listen, and return the descriptors at its end."""
        assert self._control is not None
        self._unsent = memoryview(framing.encode_frame(self.request, limit=framing.REQUEST_FRAME_LIMIT))
        self._selector.add(self._control.fileno(), self._read_control)
        for stream, pipe in self._pipes.items():
            self._selector.add(pipe, partial(self._read_stream, stream))
        if not self._send():
            self._loop.add_writer(self._control, self._continue_send)
        theirs, self._child_fds = self._child_fds, []
        return theirs

    def _send(self) -> bool:
        """Send as much of the order as the socket takes now; whether that was all."""
        assert self._control is not None
        try:
            self._unsent = self._unsent[self._control.send(self._unsent) :]
        except BlockingIOError:
            return False
        except OSError:
            self._unsent = self._unsent[:0]  # it has died, and its end says so
        return not self._unsent

    def _continue_send(self) -> None:
        if self._send():
            assert self._control is not None
            self._loop.remove_writer(self._control)

    def close_control(self) -> None:
        """Close the control socket: a process that waits, or runs, sees that and ends."""
        if self._control is not None:
            self._selector.remove(self._control.fileno())
            if self._unsent:
                self._loop.remove_writer(self._control)
            self._control.close()
            self._control = None

    def drain_and_close(self) -> None:
        """Take what is left to be read, and close everything; who escaped, and still writes, is not heard out."""
        for _ in range(DRAIN_READ_LIMIT):
            if self._control is None or not self._read_control():
                break
        self.close_control()
        for stream in tuple(self._pipes):
            for _ in range(DRAIN_READ_LIMIT):
                if not self._read_stream(stream):
                    break
            self._close_pipe(stream)
        for descriptor in self._child_fds:
            os.close(descriptor)
        self._child_fds.clear()
        self.output.finish()

    def _read_control(self) -> bool:
        """Take what it says; whether there may be more."""
        assert self._control is not None
        try:
            data = self._control.recv(READ_CHUNK_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close_control()
            return False
        try:
            for body in self._frame_decoder.feed(data):
                self._handle_message(framing.FROM_CHILD_DECODER.decode(body))
        except (msgspec.DecodeError, framing.FrameTooLongError) as error:  # author code may have written to the socket
            message = f"the process said something that cannot be understood: {error}"
            self.reported_ending = self.reported_ending or Failed(error=TaskError("GarbageFromProcess", message))
            if self.server is not None:
                self.server.signal(self.child_id, signal.SIGKILL)
            self.close_control()
            return False
        return True

    def _handle_message(self, message: framing.FromChild) -> None:
        match message:
            case framing.LogMessage(record):
                echo_to_logging(self.request.key, record)
                self.output.add(record)
            case framing.ResultMessage() as told:
                self.reported_ending = self.reported_ending or told.to_ending(self._clock.now())
                if self.reported_ending is not None:
                    self._stop_reading()

    def _stop_reading(self) -> None:
        """Listen no more: a process that has told how it ended ends, and what is left is read when it has."""
        for descriptor in self._pipes.values():
            self._selector.remove(descriptor)
        if self._control is not None:
            self._selector.remove(self._control.fileno())

    def _read_stream(self, stream: str) -> bool:
        """Take what it printed; whether there may be more."""
        try:
            data = os.read(self._pipes[stream], READ_CHUNK_SIZE)
        except BlockingIOError:
            return False
        if not data:
            self._close_pipe(stream)
            return False
        self.output.write(stream, data)
        return True

    def _close_pipe(self, stream: str) -> None:
        descriptor = self._pipes.pop(stream, None)
        if descriptor is not None:
            self._selector.remove(descriptor)
            os.close(descriptor)


class Subprocess(Executor):
    """Runs attempts in processes of their own, at most `concurrency` at a time."""

    name = "subprocess"
    is_immediate = False

    def __init__(
        self,
        lookup: WorkflowLookup,
        listener: AttemptListener,
        clock: Clock,
        *,
        concurrency: int = 8,
        grace: float = STOP_GRACE_PERIOD,
    ) -> None:
        self._listener = listener
        self._clock = clock
        self._concurrency = concurrency
        self._grace = grace
        self._pool = ForkServerPool(lookup)
        self._runners: VersionCache[TaskRunner] = VersionCache(lookup, TaskRunner)
        self._tasks = TaskScope()
        self._attempts: dict[AttemptKey, _ProcessAttempt] = {}
        self._recent = RecentAttempts()
        self._all_ended = asyncio.Event()
        self._cleanup = ExitStack()

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._selector = self._cleanup.enter_context(closing(FdSelector(self._loop)))
        await self._tasks.open()
        self._pool.open(self._tasks)

    async def close(self, timeout: float) -> None:
        for attempt in self._attempts.values():
            attempt.is_reportable = False
            self._signal(attempt, signal.SIGTERM)
        if self._attempts:
            self._all_ended.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._all_ended.wait()
        self.abandon()
        await self._pool.close()
        await self._tasks.close()
        self._cleanup.close()

    def abandon(self) -> None:
        """Kill everything that runs here, without a report."""
        for attempt in self._attempts.values():
            attempt.is_reportable = False
            self._signal(attempt, signal.SIGKILL)
            attempt.close_control()
        self._attempts.clear()

    def free_slots(self) -> int:
        return max(0, self._concurrency - len(self._attempts))

    def running(self) -> set[AttemptKey]:
        return set(self._attempts)

    async def submit(self, request: AttemptRequest) -> None:
        if request.key in self._attempts or request.key in self._recent:
            return
        request = self._runners.get(request.tenant, request.workflow, request.version).trim_inputs(request)
        output = OutputBuffer(self._clock, self._log_sink_for(request.key))
        attempt = _ProcessAttempt(request, self._loop, self._selector, output, self._clock)
        self._attempts[request.key] = attempt
        try:
            attempt.server = await self._pool.get_server(request.tenant, request.workflow, request.version)
            if self._attempts.get(request.key) is not attempt:
                return  # abandoned meanwhile
            attempt.open_channels()
        except BaseException as error:
            self._attempts.pop(request.key, None)
            attempt.drain_and_close()
            if isinstance(error, OSError):
                raise OperationError(f"no process could be started: {error}") from error
            raise
        self._tasks.start(str(request.key), self._start(attempt, attempt.server))

    def _log_sink_for(self, key: AttemptKey) -> Callable[[list[LogRecord]], None]:
        def log(records: list[LogRecord]) -> None:
            attempt = self._attempts.get(key)
            if attempt is not None and attempt.is_reportable:
                self._listener.on_log(key, records)

        return log

    # -- one attempt, from its first word to its end

    async def _start(self, attempt: _ProcessAttempt, server: ForkServerClient) -> None:
        """Let it run if it may. It ends when the link says so, at once if it has gone."""
        try:
            if not await self._request_start(attempt):
                self._finish(attempt, NOT_STARTED)
                return
            self._start_timeout(attempt)
            order, ended = attempt.request, partial(self._finish, attempt)
            attempt.child_id = server.spawn(order.workflow, order.key.task, attempt.start_io(), ended)
        except OperationError as error:
            self._finish(attempt, str(error))
        except BaseException:
            self._finish(attempt, NOT_STARTED)
            raise

    async def _request_start(self, attempt: _ProcessAttempt) -> bool:
        if not attempt.request.has_begun and attempt.stop_ending is None:
            try:
                attempt.is_reportable = await self._listener.record_start(attempt.request.key) and attempt.is_reportable
            except TidemillError as error:
                attempt.stop_ending = HandedBack(f"it could not be recorded that it begins: {error}")
        return attempt.is_reportable and attempt.stop_ending is None

    def _finish(self, attempt: _ProcessAttempt, status: int | str) -> None:
        """Take note of the end of its process, or of why there is none."""
        if attempt.watchdog is not None:
            attempt.watchdog.cancel()
        attempt.drain_and_close()
        key = attempt.request.key
        if self._attempts.get(key) is not attempt:
            return
        del self._attempts[key]
        self._recent.add(key)
        if not self._attempts:
            self._all_ended.set()
        if attempt.is_reportable:
            self._listener.on_ended(key, _resolve_ending(attempt, status))

    # -- stopping

    async def cancel(self, key: AttemptKey, reason: str) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None:
            self._stop(attempt, Cancelled(reason))

    def _start_timeout(self, attempt: _ProcessAttempt) -> None:
        if attempt.request.timeout is not None and attempt.watchdog is None:
            attempt.watchdog = self._tasks.start(f"watch: {attempt.request.key}", self._enforce_timeout(attempt))

    async def _enforce_timeout(self, attempt: _ProcessAttempt) -> None:
        await self._clock.sleep(attempt.request.timeout or 0.0)
        attempt.watchdog = None
        self._stop(attempt, build_timeout_failure(attempt.request))

    def _stop(self, attempt: _ProcessAttempt, ending: AttemptResult) -> None:
        """Ask it to end, and make it end after the grace; what it said before counts."""
        if attempt.stop_ending is not None:
            return
        if attempt.reported_ending is None:
            attempt.stop_ending = ending
        if attempt.watchdog is not None:
            attempt.watchdog.cancel()
        attempt.watchdog = self._tasks.start(f"end: {attempt.request.key}", self._terminate_then_kill(attempt))

    async def _terminate_then_kill(self, attempt: _ProcessAttempt) -> None:
        self._signal(attempt, signal.SIGTERM)
        await asyncio.sleep(self._grace)  # real time: a process takes it to clean up, whatever the clock says
        self._signal(attempt, signal.SIGKILL)

    def _signal(self, attempt: _ProcessAttempt, signum: signal.Signals) -> None:
        if attempt.server is not None and attempt.child_id:
            attempt.server.signal(attempt.child_id, signum)


def _resolve_ending(attempt: _ProcessAttempt, status: int | str) -> AttemptResult:
    """Return how an attempt ended, from all that is known."""
    exit_code = status if isinstance(status, int) else None
    if attempt.stop_ending is not None:
        return (
            replace(attempt.stop_ending, exit=exit_code)
            if isinstance(attempt.stop_ending, Failed)
            else attempt.stop_ending
        )
    if attempt.reported_ending is not None:
        return attempt.reported_ending
    if isinstance(status, str):
        return Lost(status)
    message = f"the process {_describe_exit(status)} before it returned"
    return Failed(error=TaskError("ProcessExit", message), exit=status)


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = ", perhaps out of memory," if -status == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"
