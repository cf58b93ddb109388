"""Runs attempts in separate processes, forked from a warm one: they can be killed, and die with the node.

Each attempt has a process group. SIGTERM asks it to end, SIGKILL forces it to, and the processes that it started end
with it. What it prints becomes its log; its return value comes over a socket that no other process has.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.executors.attempt_output import (
    OutputBuffer,
    echo_to_logging,
    mask_ending,
    mask_record,
)
from tidemill.engine.workflows.executors.attempt_table import AttemptTable, RunningAttempt
from tidemill.engine.workflows.executors.code import CodeLocations, LoadedWorkflows, VersionCache, locate_code
from tidemill.engine.workflows.executors.forkserver import protocol
from tidemill.engine.workflows.executors.forkserver.client import ChildExit, ForkServerClient
from tidemill.engine.workflows.executors.forkserver.pool import IMPORT_TIMEOUT, ForkServerPool
from tidemill.engine.workflows.executors.interface import (
    STOP_GRACE_PERIOD,
    AttemptListener,
    AttemptRequest,
    Executor,
    HandleCall,
)
from tidemill.engine.workflows.executors.runner import TaskRunner
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.kernel.masking import SecretMask
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.attempt_results import AttemptResult, Cancelled, Failed, Lost
from tidemill.workflows.node_calls import NO_NODE, NodeCall
from tidemill.workflows.records import AttemptKey, TaskError, VersionKey

READ_CHUNK_SIZE = 64 * 1024

DRAIN_READ_LIMIT = 16
"""The number of chunks that a pipe or a socket can hold of what was written before the process ended."""

NOT_STARTED = ChildExit(reason="it was not started")


class FdSelector:
    """Calls back when a descriptor is readable. All of them share one entry in the loop's own selector."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._selector = DefaultSelector()
        self._callbacks: dict[int, Callable[[], object]] = {}
        loop.add_reader(self._selector.fileno(), self._call_ready)

    def close(self) -> None:
        """Stop all callbacks."""
        self._loop.remove_reader(self._selector.fileno())
        self._selector.close()

    def add(self, descriptor: int, callback: Callable[[], object]) -> None:
        """Call `callback` whenever the descriptor is readable or its other end is closed."""
        self._selector.register(descriptor, EVENT_READ, callback)
        self._callbacks[descriptor] = callback

    def remove(self, descriptor: int) -> None:
        """Stop the callbacks of a descriptor, if there are any; call this before closing it."""
        if self._callbacks.pop(descriptor, None) is not None:
            self._selector.unregister(descriptor)

    def _call_ready(self) -> None:
        for key, _ in self._selector.select(0):
            callback = self._callbacks.get(key.fd)
            if callback is not None and callback is key.data:  # else an earlier callback has removed it
                callback()


class _ProcessAttempt(RunningAttempt):
    """An attempt in a separate process, with the node's ends of its control socket and pipes."""

    def __init__(
        self,
        request: AttemptRequest,
        loop: asyncio.AbstractEventLoop,
        selector: FdSelector,
        listener: AttemptListener,
        clock: Clock,
        on_call: "Callable[[_ProcessAttempt, NodeCall], None]",
        mask: SecretMask,
    ) -> None:
        super().__init__(request)
        self.server: ForkServerClient | None = None
        self.child_id = 0
        """The number of its process; 0 before there is one."""
        self.returned_ending: AttemptResult | None = None
        """The result that its process has sent."""
        self._loop = loop
        self._selector = selector
        self._listener = listener
        self._clock = clock
        self._on_call = on_call
        self._mask = mask
        self._output = OutputBuffer(clock, self._on_log, mask, keeps_printed=request.captures_output)
        self._frame_decoder = protocol.FrameDecoder()
        self._control: socket.socket | None = None
        self._pipes: dict[str, int] = {}
        self._child_fds: list[int] = []
        self._unsent = memoryview(b"")

    def open_channels(self) -> None:
        """Open the control socket and the pipes."""
        self._control, child_end = socket.socketpair()
        self._control.setblocking(False)
        self._child_fds.append(child_end.detach())
        for stream in ("stdout", "stderr"):
            self._pipes[stream], write_end = os.pipe()
            os.set_blocking(self._pipes[stream], False)
            self._child_fds.append(write_end)

    def start_io(self) -> list[int]:
        """Write the request into the control socket, start reading, and return the child's descriptors."""
        assert self._control is not None
        self._unsent = memoryview(b"")
        self._selector.add(self._control.fileno(), self._read_control)
        for stream, pipe in self._pipes.items():
            self._selector.add(pipe, partial(self._read_stream, stream))
        self._send_frame(protocol.encode_frame(self.request, limit=protocol.REQUEST_FRAME_LIMIT))
        child_fds, self._child_fds = self._child_fds, []
        return child_fds

    def reply(self, reply: protocol.CallReply) -> None:
        """Send the reply to a call, unless the process has ended meanwhile."""
        if self._control is not None:
            self._send_frame(protocol.encode_frame(reply))

    def _send_frame(self, frame: bytes) -> None:
        assert self._control is not None
        self._unsent = memoryview(frame)
        if not self._send():
            self._loop.add_writer(self._control, self._continue_send)

    def _send(self) -> bool:
        """Send as much as the socket accepts now; return whether that was all of it."""
        assert self._control is not None
        try:
            self._unsent = self._unsent[self._control.send(self._unsent) :]
        except BlockingIOError:
            return False
        except OSError:
            self._unsent = self._unsent[:0]  # the process has died; its exit is reported separately
        return not self._unsent

    def _continue_send(self) -> None:
        if self._send():
            assert self._control is not None
            self._loop.remove_writer(self._control)

    def signal(self, signum: signal.Signals) -> None:
        """Send a signal to the process group, if there is one."""
        if self.server is not None and self.child_id:
            self.server.signal(self.child_id, signum)

    def close_control(self) -> None:
        """Close the control socket; the process sees that and ends."""
        if self._control is not None:
            self._selector.remove(self._control.fileno())
            if self._unsent:
                self._loop.remove_writer(self._control)
            self._control.close()
            self._control = None

    def drain_and_close(self) -> None:
        """Read what is left and close everything. A process that escaped and still writes is not read to its end."""
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
        self._output.finish()

    def _read_control(self) -> bool:
        """Handle the messages that have arrived; return whether there may be more."""
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
                self._handle_message(protocol.FROM_CHILD_DECODER.decode(body))
        except (msgspec.DecodeError, protocol.FrameTooLongError) as error:  # author code may write to the socket
            message = f"the process sent a message that cannot be decoded: {error}"
            self.returned_ending = self.returned_ending or Failed(error=TaskError("GarbageFromProcess", message))
            self.signal(signal.SIGKILL)
            self.close_control()
            return False
        return True

    def _handle_message(self, message: protocol.FromChild) -> None:
        match message:
            case protocol.LogMessage(record):
                echo_to_logging(self.request.key, record if self._mask.is_empty else mask_record(self._mask, record))
                self._output.add(record)
            case protocol.CallMessage(call):
                self._on_call(self, call)
            case protocol.ResultMessage():
                self.returned_ending = self.returned_ending or message.to_ending(self._clock.now())
                if self.returned_ending is not None:
                    self._stop_reading()

    def _stop_reading(self) -> None:
        """Remove all callbacks: after its result a process ends, and the rest is read when it has."""
        for descriptor in self._pipes.values():
            self._selector.remove(descriptor)
        if self._control is not None:
            self._selector.remove(self._control.fileno())

    def _read_stream(self, stream: str) -> bool:
        """Read what the process has printed; return whether there may be more."""
        try:
            data = os.read(self._pipes[stream], READ_CHUNK_SIZE)
        except BlockingIOError:
            return False
        if not data:
            self._close_pipe(stream)
            return False
        self._output.write(stream, data)
        return True

    def _close_pipe(self, stream: str) -> None:
        descriptor = self._pipes.pop(stream, None)
        if descriptor is not None:
            self._selector.remove(descriptor)
            os.close(descriptor)

    def _on_log(self, records: list[LogRecord]) -> None:
        if not self.is_reported:
            self._listener.on_log(self.request.key, records)


class Subprocess(Executor):
    """Runs attempts in separate processes, at most `concurrency` at a time."""

    name = "subprocess"
    is_immediate = False

    def __init__(
        self,
        workflows: LoadedWorkflows,
        listener: AttemptListener,
        clock: Clock,
        *,
        concurrency: int = 8,
        handle_call: HandleCall | None = None,
        mask: SecretMask | None = None,
        grace: float = STOP_GRACE_PERIOD,
        import_timeout: float = IMPORT_TIMEOUT,
        lease: float | None = None,
        locations: CodeLocations | None = None,
    ) -> None:
        """Create the executor; with a `lease`, an attempt ends that is not renewed for that many seconds.

        `locations` says where the code is, if it is not loaded in this process.
        """
        self._listener = listener
        self._clock = clock
        self._concurrency = concurrency
        self._handle_call = handle_call
        self._mask = mask or SecretMask()
        self._grace = grace
        self._lease = lease
        self._pool = ForkServerPool(locations or VersionCache(workflows, locate_code), import_timeout, lease)
        self._runners: VersionCache[TaskRunner] = VersionCache(workflows, TaskRunner)
        self._tasks = TaskScope()
        self._attempts: AttemptTable[_ProcessAttempt] = AttemptTable()
        self._all_ended = asyncio.Event()
        self._cleanup = ExitStack()

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._selector = self._cleanup.enter_context(closing(FdSelector(self._loop)))
        await self._tasks.open()
        self._pool.open(self._tasks)

    async def close(self, timeout: float) -> None:
        for attempt in self._attempts:
            attempt.is_reported = True
            attempt.signal(signal.SIGTERM)
        if self._attempts:
            self._all_ended.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._all_ended.wait()
        self._kill_all()
        await self._pool.close()
        await self._tasks.close()
        self._cleanup.close()

    def _kill_all(self) -> None:
        """Kill all processes, without reports."""
        for attempt in self._attempts:
            attempt.is_reported = True
            attempt.signal(signal.SIGKILL)
            attempt.close_control()
            self._attempts.forget(attempt)

    def free_slots(self) -> int:
        return max(0, self._concurrency - len(self._attempts))

    def running(self) -> set[AttemptKey]:
        return self._attempts.keys()

    def on_leases_renewed(self) -> None:
        if self._lease is not None:
            self._pool.renew_leases()

    def starts_now(self, version: VersionKey) -> bool:
        try:
            return self._pool.find_server(version) is not None
        except OperationError:  # `submit` reports it
            return False

    async def submit(self, request: AttemptRequest) -> None:
        if self._attempts.is_known(request.key):
            return
        attempt = self._accept(request)
        with self._forgetting_refused(attempt):
            attempt.server = await self._pool.get_server(*request.version_key)
            attempt.open_channels()
        self._tasks.start(str(request.key), self._start(attempt, attempt.server))

    def submit_now(self, request: AttemptRequest) -> None:
        server = self._pool.find_server(request.version_key)
        if server is None or not request.has_begun:
            super().submit_now(request)
        elif not self._attempts.is_known(request.key):
            attempt = self._accept(request)
            with self._forgetting_refused(attempt):
                attempt.server = server
                attempt.open_channels()
                self._fork(attempt, server)

    def _accept(self, request: AttemptRequest) -> _ProcessAttempt:
        request = self._trim_inputs(request)
        attempt = _ProcessAttempt(
            request, self._loop, self._selector, self._listener, self._clock, self._start_call, self._mask
        )
        self._attempts.add(attempt)
        return attempt

    @contextmanager
    def _forgetting_refused(self, attempt: _ProcessAttempt) -> Iterator[None]:
        """Forget an attempt that cannot be started: its caller reports it."""
        try:
            yield
        except BaseException as error:
            self._attempts.forget(attempt)
            attempt.drain_and_close()
            if isinstance(error, OSError):
                raise OperationError(f"cannot start a process: {error}") from error
            raise

    def _trim_inputs(self, request: AttemptRequest) -> AttemptRequest:
        """Return the request with only what its process needs."""
        return self._runners.get(request.tenant, request.workflow, request.version).trim_inputs(request)

    # -- one attempt, from its start to its end

    async def _start(self, attempt: _ProcessAttempt, server: ForkServerClient) -> None:
        """Start the process if the attempt may run; the fork server's client reports its exit to `_finish`."""
        try:
            await attempt.request_start(self._listener)
            if attempt.may_start:
                self._fork(attempt, server)
            else:
                self._finish(attempt, NOT_STARTED)
        except BaseException:
            self._finish(attempt, NOT_STARTED)
            raise

    def _fork(self, attempt: _ProcessAttempt, server: ForkServerClient) -> None:
        """Start the process; report the attempt as ended if its fork server has died meanwhile."""
        self._start_timeout(attempt)
        request, on_exit = attempt.request, partial(self._finish, attempt)
        try:
            attempt.child_id = server.spawn(request.workflow, request.key.task, attempt.start_io(), on_exit)
        except OperationError as error:
            self._finish(attempt, ChildExit(reason=str(error)))

    def _start_call(self, attempt: _ProcessAttempt, call: NodeCall) -> None:
        self._tasks.start(f"call of {attempt.request.key}", self._answer_call(attempt, call))

    async def _answer_call(self, attempt: _ProcessAttempt, call: NodeCall) -> None:
        """Make a call of a process on the node, and send the answer or the error."""
        try:
            if self._handle_call is None:
                raise OperationError(NO_NODE)
            reply = protocol.CallReply.to_answer(call, await self._handle_call(attempt.request, call))
        except Exception as error:  # of any kind: it belongs to the task, which waits for a reply
            reply = protocol.CallReply(error=protocol.CallError.from_error(error))
        attempt.reply(reply)

    def _finish(self, attempt: _ProcessAttempt, child_exit: ChildExit) -> None:
        """Remove an attempt whose process has ended, or was never started, and report it."""
        attempt.cancel_watchdog()
        attempt.drain_and_close()
        if not self._attempts.remove(attempt):
            return
        if not self._attempts:
            self._all_ended.set()
        if not attempt.is_reported:
            ending = _resolve_ending(attempt, child_exit)
            self._listener.on_ended(
                attempt.request.key, ending if self._mask.is_empty else mask_ending(self._mask, ending)
            )

    # -- stopping

    async def cancel(self, key: AttemptKey, reason: str) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None:
            self._stop(attempt, Cancelled(reason))

    def _start_timeout(self, attempt: _ProcessAttempt) -> None:
        if attempt.request.timeout is not None:
            self._start_watchdog(attempt, self._enforce_timeout(attempt))

    def _start_watchdog(self, attempt: _ProcessAttempt, work: Coroutine[Any, Any, None]) -> None:
        attempt.watchdog = self._tasks.start(f"watchdog: {attempt.request.key}", work)

    async def _enforce_timeout(self, attempt: _ProcessAttempt) -> None:
        await self._clock.sleep(attempt.request.timeout or 0.0)
        attempt.watchdog = None
        self._stop(attempt, attempt.build_timeout_failure())

    def _stop(self, attempt: _ProcessAttempt, ending: AttemptResult) -> None:
        """Ask the process to end, and kill it after the grace period; a result that it has sent before counts."""
        if attempt.stop_ending is not None:
            return
        if attempt.returned_ending is None:
            attempt.stop_ending = ending
        attempt.cancel_watchdog()
        self._start_watchdog(attempt, self._terminate_then_kill(attempt))

    async def _terminate_then_kill(self, attempt: _ProcessAttempt) -> None:
        attempt.signal(signal.SIGTERM)
        await asyncio.sleep(self._grace)  # real time: a process does not follow the node's clock
        attempt.signal(signal.SIGKILL)


def _resolve_ending(attempt: _ProcessAttempt, child_exit: ChildExit) -> AttemptResult:
    """Return the result of an attempt whose process has ended."""
    if isinstance(attempt.stop_ending, Failed):
        return replace(attempt.stop_ending, exit=child_exit.status)
    if attempt.stop_ending is not None:
        return attempt.stop_ending
    if attempt.returned_ending is not None:
        return attempt.returned_ending
    if child_exit.status is None:
        return Lost(child_exit.reason)
    message = f"the process {_describe_exit(child_exit.status)} before it returned"
    return Failed(error=TaskError("ProcessExit", message), exit=child_exit.status)


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = ", perhaps out of memory," if -status == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"
