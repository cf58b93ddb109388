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
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.engine.service import Tasks
from tidemill.engine.workflows.executors import framing
from tidemill.engine.workflows.executors.ears import Ears
from tidemill.engine.workflows.executors.fork_link import ForkLink
from tidemill.engine.workflows.executors.fork_pool import ForkPool
from tidemill.engine.workflows.executors.interface import Executor, LogRecord, Order, Reports
from tidemill.engine.workflows.executors.made_ready import MadeReady
from tidemill.engine.workflows.executors.output import Output
from tidemill.engine.workflows.executors.runner import Runner
from tidemill.engine.workflows.executors.source import Lookup
from tidemill.engine.workflows.executors.stopping import GRACE, Past, ran_out_of_time
from tidemill.engine.workflows.executors.task_log import echo
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, TidemillError
from tidemill.workflows.endings import Ending, Failed, Lost, Returned, Stopped
from tidemill.workflows.records import AttemptKey, TaskError

CHUNK = 64 * 1024

FULL = 16
"""How many chunks a pipe, or a socket, can hold of what was written before the end."""

NEVER = "it has not begun"


class _Attempt:
    """An attempt that is here: its process, and what has been heard of it."""

    def __init__(self, order: Order, loop: asyncio.AbstractEventLoop, ears: Ears, output: Output, clock: Clock) -> None:
        self.order = order
        self.output = output
        self.link: ForkLink | None = None
        self.number = 0
        """Of its process, once there is one."""
        self.watch: asyncio.Task[Any] | None = None
        self.told: Ending | None = None
        """How it says that it ended."""
        self.stop: Ending | None = None
        """How it ends because somebody wants it to."""
        self.is_wanted = True
        """Whether anybody is to hear how it ends."""
        self._loop = loop
        self._ears = ears
        self._clock = clock
        self._frames = framing.Frames()
        self._control: socket.socket | None = None
        self._pipes: dict[str, int] = {}
        self._theirs: list[int] = []
        self._unsent = memoryview(b"")

    def connect(self) -> None:
        """Open what will lead to the process."""
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        self._theirs.append(theirs.detach())
        for stream in ("stdout", "stderr"):
            self._pipes[stream], end = os.pipe()
            os.set_blocking(self._pipes[stream], False)
            self._theirs.append(end)

    def begin(self) -> list[int]:
        """Write the order to where the process will find it, listen, and return the descriptors at its end."""
        assert self._control is not None
        self._unsent = memoryview(framing.framed(self.order, limit=framing.LONGEST))
        self._ears.add(self._control.fileno(), self._hear)
        for stream, pipe in self._pipes.items():
            self._ears.add(pipe, partial(self._read, stream))
        if not self._send():
            self._loop.add_writer(self._control, self._send_on)
        theirs, self._theirs = self._theirs, []
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

    def _send_on(self) -> None:
        if self._send():
            assert self._control is not None
            self._loop.remove_writer(self._control)

    def cut_off(self) -> None:
        """Close the control socket: a process that waits, or runs, sees that and ends."""
        if self._control is not None:
            self._ears.remove(self._control.fileno())
            if self._unsent:
                self._loop.remove_writer(self._control)
            self._control.close()
            self._control = None

    def disconnect(self) -> None:
        """Take what is left to be read, and close everything; who escaped, and still writes, is not heard out."""
        for _ in range(FULL):
            if self._control is None or not self._hear():
                break
        self.cut_off()
        for stream in tuple(self._pipes):
            for _ in range(FULL):
                if not self._read(stream):
                    break
            self._close_pipe(stream)
        for descriptor in self._theirs:
            os.close(descriptor)
        self._theirs.clear()
        self.output.end()

    def _hear(self) -> bool:
        """Take what it says; whether there may be more."""
        assert self._control is not None
        try:
            data = self._control.recv(CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.cut_off()
            return False
        try:
            for body in self._frames.feed(data):
                self._take(framing.FROM_CHILD.decode(body))
        except (msgspec.DecodeError, framing.TooLongError) as error:  # author code may have written to the socket
            message = f"the process said something that cannot be understood: {error}"
            self.told = self.told or Failed(error=TaskError("GarbageFromProcess", message))
            if self.link is not None:
                self.link.signal(self.number, signal.SIGKILL)
            self.cut_off()
            return False
        return True

    def _take(self, message: framing.FromChild) -> None:
        match message:
            case framing.Said(record):
                echo(self.order.key, record)
                self.output.add(record)
            case framing.Told() as told:
                self.told = self.told or told.ending(self._clock.now())
                if self.told is not None:
                    self._hush()

    def _hush(self) -> None:
        """Listen no more: a process that has told how it ended ends, and what is left is read when it has."""
        for descriptor in self._pipes.values():
            self._ears.remove(descriptor)
        if self._control is not None:
            self._ears.remove(self._control.fileno())

    def _read(self, stream: str) -> bool:
        """Take what it printed; whether there may be more."""
        try:
            data = os.read(self._pipes[stream], CHUNK)
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
            self._ears.remove(descriptor)
            os.close(descriptor)


class Subprocess(Executor):
    """Runs attempts in processes of their own, at most `concurrency` at a time."""

    name = "subprocess"
    is_immediate = False

    def __init__(
        self, lookup: Lookup, reports: Reports, clock: Clock, *, concurrency: int = 8, grace: float = GRACE
    ) -> None:
        self._reports = reports
        self._clock = clock
        self._concurrency = concurrency
        self._grace = grace
        self._pool = ForkPool(lookup)
        self._runners: MadeReady[Runner] = MadeReady(lookup, Runner)
        self._tasks = Tasks()
        self._attempts: dict[AttemptKey, _Attempt] = {}
        self._past = Past()
        self._emptied = asyncio.Event()
        self._opened = ExitStack()

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ears = self._opened.enter_context(closing(Ears(self._loop)))
        await self._tasks.open()
        self._pool.open(self._tasks)

    async def close(self, patience: float) -> None:
        for attempt in self._attempts.values():
            attempt.is_wanted = False
            self._signal(attempt, signal.SIGTERM)
        if self._attempts:
            self._emptied.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._emptied.wait()
        self.abandon()
        await self._pool.close()
        await self._tasks.close()
        self._opened.close()

    def abandon(self) -> None:
        """Kill everything that runs here, without a report."""
        for attempt in self._attempts.values():
            attempt.is_wanted = False
            self._signal(attempt, signal.SIGKILL)
            attempt.cut_off()
        self._attempts.clear()

    def capacity(self) -> int:
        return max(0, self._concurrency - len(self._attempts))

    def living(self) -> set[AttemptKey]:
        return set(self._attempts)

    async def submit(self, order: Order) -> None:
        if order.key in self._attempts or order.key in self._past:
            return
        order = self._runners.get(order.tenant, order.workflow, order.version).lighten(order)
        output = Output(self._clock, self._logger(order.key))
        attempt = _Attempt(order, self._loop, self._ears, output, self._clock)
        self._attempts[order.key] = attempt
        try:
            attempt.link = await self._pool.link_for(order.tenant, order.workflow, order.version)
            if self._attempts.get(order.key) is not attempt:
                return  # abandoned meanwhile
            attempt.connect()
        except BaseException as error:
            self._attempts.pop(order.key, None)
            attempt.disconnect()
            if isinstance(error, OSError):
                raise OperationError(f"no process could be started: {error}") from error
            raise
        self._tasks.start(str(order.key), self._begin(attempt, attempt.link))

    def _logger(self, key: AttemptKey) -> Callable[[list[LogRecord]], None]:
        def log(records: list[LogRecord]) -> None:
            attempt = self._attempts.get(key)
            if attempt is not None and attempt.is_wanted:
                self._reports.logged(key, records)

        return log

    # -- one attempt, from its first word to its end

    async def _begin(self, attempt: _Attempt, link: ForkLink) -> None:
        """Let it run if it may. It ends when the link says so, at once if it has gone."""
        try:
            if not await self._may_begin(attempt):
                self._end(attempt, NEVER)
                return
            self._watch_time(attempt)
            order, ended = attempt.order, partial(self._end, attempt)
            attempt.number = link.spawn(order.workflow, order.key.task, attempt.begin(), ended)
        except OperationError as error:
            self._end(attempt, str(error))
        except BaseException:
            self._end(attempt, NEVER)
            raise

    async def _may_begin(self, attempt: _Attempt) -> bool:
        if not attempt.order.has_begun and attempt.stop is None:
            try:
                attempt.is_wanted = await self._reports.begins(attempt.order.key) and attempt.is_wanted
            except TidemillError as error:
                attempt.stop = Returned(f"it could not be recorded that it begins: {error}")
        return attempt.is_wanted and attempt.stop is None

    def _end(self, attempt: _Attempt, status: int | str) -> None:
        """Take note of the end of its process, or of why there is none."""
        if attempt.watch is not None:
            attempt.watch.cancel()
        attempt.disconnect()
        key = attempt.order.key
        if self._attempts.get(key) is not attempt:
            return
        del self._attempts[key]
        self._past.add(key)
        if not self._attempts:
            self._emptied.set()
        if attempt.is_wanted:
            self._reports.ended(key, _ending(attempt, status))

    # -- stopping

    async def cancel(self, key: AttemptKey, reason: str) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None:
            self._stop(attempt, Stopped(reason))

    def _watch_time(self, attempt: _Attempt) -> None:
        if attempt.order.timeout is not None and attempt.watch is None:
            attempt.watch = self._tasks.start(f"watch: {attempt.order.key}", self._time_out(attempt))

    async def _time_out(self, attempt: _Attempt) -> None:
        await self._clock.sleep(attempt.order.timeout or 0.0)
        attempt.watch = None
        self._stop(attempt, ran_out_of_time(attempt.order))

    def _stop(self, attempt: _Attempt, ending: Ending) -> None:
        """Ask it to end, and make it end after the grace; what it said before counts."""
        if attempt.stop is not None:
            return
        if attempt.told is None:
            attempt.stop = ending
        if attempt.watch is not None:
            attempt.watch.cancel()
        attempt.watch = self._tasks.start(f"end: {attempt.order.key}", self._make_end(attempt))

    async def _make_end(self, attempt: _Attempt) -> None:
        self._signal(attempt, signal.SIGTERM)
        await asyncio.sleep(self._grace)  # real time: a process takes it to clean up, whatever the clock says
        self._signal(attempt, signal.SIGKILL)

    def _signal(self, attempt: _Attempt, sent: signal.Signals) -> None:
        if attempt.link is not None and attempt.number:
            attempt.link.signal(attempt.number, sent)


def _ending(attempt: _Attempt, status: int | str) -> Ending:
    """Return how an attempt ended, from all that is known."""
    exit_code = status if isinstance(status, int) else None
    if attempt.stop is not None:
        return replace(attempt.stop, exit=exit_code) if isinstance(attempt.stop, Failed) else attempt.stop
    if attempt.told is not None:
        return attempt.told
    if isinstance(status, str):
        return Lost(status)
    message = f"the process {_description(status)} before it returned"
    return Failed(error=TaskError("ProcessExit", message), exit=status)


def _description(status: int) -> str:
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = ", perhaps out of memory," if -status == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"
