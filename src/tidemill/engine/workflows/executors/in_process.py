"""Tasks inside the node: `async def` on its loop, `def` on threads of its own.

A coroutine can be cancelled. A thread cannot be killed: when its time is over, or it is no longer wanted, that is
reported at once, what it returns later is dropped, but it holds its place until it ends. Code that must be stoppable
although it blocks belongs into a process of its own.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Awaitable
from functools import partial
from time import monotonic
from typing import Any

from tidemill.engine.service import Tasks
from tidemill.engine.workflows.executors.interface import Executor, LogRecord, Order, Reports
from tidemill.engine.workflows.executors.made_ready import MadeReady
from tidemill.engine.workflows.executors.output import Output
from tidemill.engine.workflows.executors.runner import Call, Runner, Surroundings, undone
from tidemill.engine.workflows.executors.source import Lookup
from tidemill.engine.workflows.executors.stopping import GRACE, Past, ran_out_of_time
from tidemill.engine.workflows.executors.threads import Threads
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import in_own_thread
from tidemill.kernel.errors import TidemillError
from tidemill.workflows.context import Push
from tidemill.workflows.endings import Ending, Returned, Stopped
from tidemill.workflows.records import AttemptKey


class _Attempt:
    """An attempt that is here: from when it is taken until its code has ended."""

    __slots__ = ("call", "is_reported", "on_thread", "order", "output", "stop", "task", "watch")

    def __init__(self, order: Order, call: Call) -> None:
        self.order = order
        self.call = call
        self.task: asyncio.Task[Any] | None = None
        self.watch: asyncio.Task[Any] | None = None
        self.stop: Ending | None = None
        """How it ends because somebody wants it to."""
        self.output: Output | None = None
        """What it said so far; None while that is nothing."""
        self.is_reported = False
        self.on_thread = False


class InProcess(Executor):
    """Runs attempts in this process, at most `concurrency` at a time; what comes on top waits its turn."""

    name = "in_process"
    is_immediate = True

    def __init__(
        self,
        lookup: Lookup,
        reports: Reports,
        clock: Clock,
        *,
        concurrency: int = 8,
        push: Push | None = None,
        grace: float = GRACE,
    ) -> None:
        self._runners: MadeReady[Runner] = MadeReady(lookup, Runner)
        self._reports = reports
        self._clock = clock
        self._concurrency = concurrency
        self._push = push
        self._grace = grace
        self._attempts: dict[AttemptKey, _Attempt] = {}
        self._waiting: deque[_Attempt] = deque()
        self._free = concurrency
        self._past = Past()
        self._tasks = Tasks()
        self._threads = Threads(concurrency, "task")
        self._mail: deque[tuple[_Attempt, LogRecord | Ending]] = deque()
        self._is_mail_announced = False

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._process = os.getpid()
        await self._tasks.open()
        self._presence = self._tasks.start("in_process: presence", asyncio.Event().wait())

    async def close(self, patience: float) -> None:
        """End what can be ended. A thread that does not end in time is still `living`: its code goes on."""
        self._silence()
        self._threads.dismiss()
        deadline = monotonic() + patience  # real time: code takes it
        await self._tasks.close(patience)
        await in_own_thread("task: end of all", self._threads.join, max(0.0, deadline - monotonic()))
        self._read_mail()
        self._attempts = {key: one for key, one in self._attempts.items() if one.on_thread}

    def abandon(self) -> None:
        """Let everything that runs here vanish without a report, as if its process had died."""
        self._silence()
        self._attempts = {}
        self._free = self._concurrency
        self._threads.dismiss()
        self._threads = Threads(self._concurrency, "task")

    def _silence(self) -> None:
        """Let nothing that is here report any more, and end what can be."""
        self._waiting.clear()
        for attempt in self._attempts.values():
            attempt.is_reported = True
            for task in (attempt.task, attempt.watch):
                if task is not None:
                    task.cancel()

    def capacity(self) -> int:
        return max(0, self._free - len(self._waiting))

    def living(self) -> set[AttemptKey]:
        return set(self._attempts)

    async def submit(self, order: Order) -> None:
        self.take(order)

    def take(self, order: Order) -> None:
        if order.key in self._attempts or order.key in self._past:
            return
        runner = self._runners.get(order.tenant, order.workflow, order.version)
        attempt = _Attempt(order, runner.call(order.key.task))
        self._attempts[order.key] = attempt
        if self._free:
            self._begin(attempt)
        else:
            self._waiting.append(attempt)

    async def cancel(self, key: AttemptKey, reason: str) -> None:
        attempt = self._attempts.get(key)
        if attempt is None or attempt.stop is not None:
            return
        attempt.stop = Stopped(reason)
        if attempt in self._waiting:
            self._waiting.remove(attempt)
            self._free -= 1  # it gives back what it never had
            self._end(attempt)
        elif attempt.on_thread:
            self._report(attempt, attempt.stop)
        else:
            self._start_watch(attempt, self._insist(attempt))

    # -- beginning

    def _begin(self, attempt: _Attempt) -> None:
        self._free -= 1
        if attempt.order.has_begun and not attempt.call.is_async:
            self._hand_over(attempt)
        else:
            attempt.task = self._tasks.start(str(attempt.order.key), self._run_async(attempt))

    async def _run_async(self, attempt: _Attempt) -> None:
        """Ask whether it may begin, and run it: here, or by handing it over to a thread."""
        ending: Ending | None = None
        try:
            ending = await self._may_not_begin(attempt)
            if ending is None and not attempt.is_reported:
                if not attempt.call.is_async:
                    self._hand_over(attempt)
                    return
                self._watch_time(attempt)
                ending = await attempt.call.run_async(attempt.order, self._around(attempt))
        except asyncio.CancelledError as error:
            ending = self._cut_off(attempt, error)
        except Exception as error:  # whatever it is: an attempt without an end would hang, and keep its place for good
            ending = undone(error)
        self._end(attempt, ending)

    def _cut_off(self, attempt: _Attempt, error: asyncio.CancelledError) -> Ending | None:
        """Return how an attempt ends that was cancelled: as somebody here wants it, or as a failure of its own code.

        None if everything on the loop is cancelled, as when a program ends without closing its node: no code failed.
        """
        if attempt.stop is not None or self._presence.cancelling():
            return attempt.stop
        return attempt.call.raised(error, self._around(attempt))

    async def _may_not_begin(self, attempt: _Attempt) -> Ending | None:
        """Return None if it may begin; if it is unwanted, it has nothing to report either."""
        if attempt.order.has_begun:
            return None
        try:
            if not await self._reports.begins(attempt.order.key):
                attempt.is_reported = True
        except TidemillError as error:
            return Returned(f"it could not be recorded that it begins: {error}")
        return None

    def _hand_over(self, attempt: _Attempt) -> None:
        if attempt.stop is not None:
            self._end(attempt)
            return
        attempt.on_thread = True
        self._watch_time(attempt)
        self._threads.start(partial(self._run, attempt))

    def _run(self, attempt: _Attempt) -> None:
        """Run it; on a thread."""
        try:
            ending = attempt.call.run(attempt.order, self._around(attempt))
        except BaseException as error:  # as above; and the thread is needed for what comes next
            ending = undone(error)
        self._post(attempt, ending)

    def _around(self, attempt: _Attempt) -> Surroundings:
        push = self._push_home if self._push is not None else None
        return Surroundings(self._clock, partial(self._log, attempt), self._process, push=push)

    async def _push_home(self, accumulator: str, event: Any) -> Any:
        """Push on the node's own loop, wherever the task is that asks."""
        assert self._push is not None
        if threading.get_ident() == self._thread:
            return await self._push(accumulator, event)
        pushed = asyncio.run_coroutine_threadsafe(_await(self._push(accumulator, event)), self._loop)
        return await asyncio.wrap_future(pushed)

    # -- what comes back from threads: one wake-up of the loop for all of it

    def _post(self, attempt: _Attempt, message: LogRecord | Ending) -> None:
        self._mail.append((attempt, message))
        if not self._is_mail_announced:
            self._is_mail_announced = True
            try:
                self._loop.call_soon_threadsafe(self._read_mail)
            except RuntimeError:  # the loop is closed: this code outlived its node, and nobody listens
                self._mail.clear()

    def _read_mail(self) -> None:
        self._is_mail_announced = False  # first, so that what comes from now on is announced again
        try:
            while self._mail:
                attempt, message = self._mail.popleft()
                if not isinstance(message, LogRecord):
                    self._end(attempt, message)
                else:
                    self._say(attempt, message)
            self._reports.go_on()
        finally:
            if self._mail:  # whoever was told of one raised: the others are told all the same
                self._loop.call_soon(self._read_mail)

    def _log(self, attempt: _Attempt, record: LogRecord) -> None:
        if threading.get_ident() != self._thread:
            self._post(attempt, record)
        else:
            self._say(attempt, record)

    def _say(self, attempt: _Attempt, record: LogRecord) -> None:
        """Pass on what an attempt said, within bounds."""
        if attempt.is_reported:
            return
        if attempt.output is None:
            attempt.output = Output(self._clock, partial(self._reports.logged, attempt.order.key))
        attempt.output.add(record)

    # -- ending

    def _end(self, attempt: _Attempt, ending: Ending | None = None) -> None:
        """Take note that an attempt's code has ended, or never began."""
        if self._attempts.get(attempt.order.key) is not attempt:
            return
        if attempt.on_thread:
            self._threads.done()
        if attempt.watch is not None:
            attempt.watch.cancel()
        del self._attempts[attempt.order.key]
        self._past.add(attempt.order.key)
        self._free += 1
        while self._waiting and self._free:
            self._begin(self._waiting.popleft())
        self._report(attempt, attempt.stop or ending)

    def _report(self, attempt: _Attempt, ending: Ending | None) -> None:
        if not attempt.is_reported and ending is not None:
            attempt.is_reported = True
            if attempt.output is not None:
                attempt.output.end()
            self._reports.ended(attempt.order.key, ending)

    # -- stopping

    def _watch_time(self, attempt: _Attempt) -> None:
        if attempt.order.timeout is not None and attempt.stop is None:
            self._start_watch(attempt, self._time_out(attempt))

    def _start_watch(self, attempt: _Attempt, work: Any) -> None:
        if attempt.watch is not None:
            attempt.watch.cancel()
        attempt.watch = self._tasks.start(f"watch: {attempt.order.key}", work)

    async def _time_out(self, attempt: _Attempt) -> None:
        await self._clock.sleep(attempt.order.timeout or 0.0)
        if attempt.stop is None:
            attempt.stop = ran_out_of_time(attempt.order)
        if attempt.on_thread:
            self._report(attempt, attempt.stop)
        else:
            await self._insist(attempt)

    async def _insist(self, attempt: _Attempt) -> None:
        """Cancel code again and again until it ends; what is known is reported after the first grace."""
        assert attempt.task is not None
        attempt.task.add_done_callback(lambda _: self._end(attempt))  # for one that was cancelled before its first step
        while True:
            attempt.task.cancel()
            await self._clock.sleep(self._grace)
            self._report(attempt, attempt.stop)


async def _await(work: Awaitable[Any]) -> Any:
    return await work
