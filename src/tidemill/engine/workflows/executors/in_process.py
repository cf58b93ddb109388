"""Tasks inside the node: `async def` on its loop, `def` on threads of its own.

A coroutine can be cancelled. A thread cannot be killed: when its time is over, or it is no longer wanted, that is
reported at once, what it returns later is dropped, but it holds its place until it ends. Code that must be stoppable
although it blocks belongs into a process of its own.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Any

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.executors.attempt_output import OutputBuffer
from tidemill.engine.workflows.executors.code import VersionCache, WorkflowLookup
from tidemill.engine.workflows.executors.interface import (
    STOP_GRACE_PERIOD,
    AttemptListener,
    AttemptRequest,
    Executor,
    LogRecord,
    RecentAttempts,
    build_timeout_failure,
)
from tidemill.engine.workflows.executors.runner import CallEnvironment, TaskCall, TaskRunner, build_fallback_failure
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_new_thread
from tidemill.kernel.errors import TidemillError
from tidemill.workflows.attempt_results import AttemptResult, Cancelled, HandedBack
from tidemill.workflows.context import PushFunction
from tidemill.workflows.records import AttemptKey


class DaemonThreadPool:
    """Threads that are started when there is work for them. As daemons: code that hangs does not hold up the exit."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy_count = 0

    def submit(self, job: Callable[[], None]) -> None:
        """Let a thread do a job that never raises; tell `done` when it has."""
        self._busy_count += 1
        self._jobs.put(job)
        if self._busy_count > len(self._threads) < self._size:
            name = f"{self._name} {len(self._threads) + 1}"
            self._threads.append(threading.Thread(target=_run_jobs, args=(self._jobs,), name=name, daemon=True))
            self._threads[-1].start()

    def mark_job_done(self) -> None:
        """Take note that a job is done, on the thread that started it."""
        self._busy_count -= 1

    def shut_down(self) -> None:
        """Let every thread end when its job has."""
        for _ in self._threads:
            self._jobs.put(None)

    def join(self, timeout: float) -> bool:
        """Wait for the end of all threads, and return whether it came within so many seconds."""
        deadline = monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)


def _run_jobs(jobs: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (job := jobs.get()) is not None:
        Context().run(job)  # what a task sets in its context variables ends with it
        del job  # while it waits, a thread holds no value of the last task


class _LocalAttempt:
    """An attempt that is here: from when it is taken until its code has ended."""

    __slots__ = ("call", "is_on_thread", "is_reported", "output", "request", "stop_ending", "task", "watchdog")

    def __init__(self, request: AttemptRequest, call: TaskCall) -> None:
        self.request = request
        self.call = call
        self.task: asyncio.Task[Any] | None = None
        self.watchdog: asyncio.Task[Any] | None = None
        self.stop_ending: AttemptResult | None = None
        """How it ends because somebody wants it to."""
        self.output: OutputBuffer | None = None
        """What it said so far; None while that is nothing."""
        self.is_reported = False
        self.is_on_thread = False


class InProcess(Executor):
    """Runs attempts in this process, at most `concurrency` at a time; what comes on top waits its turn."""

    name = "in_process"
    is_immediate = True

    def __init__(
        self,
        lookup: WorkflowLookup,
        listener: AttemptListener,
        clock: Clock,
        *,
        concurrency: int = 8,
        push: PushFunction | None = None,
        grace: float = STOP_GRACE_PERIOD,
    ) -> None:
        self._runners: VersionCache[TaskRunner] = VersionCache(lookup, TaskRunner)
        self._listener = listener
        self._clock = clock
        self._concurrency = concurrency
        self._push = push
        self._grace = grace
        self._attempts: dict[AttemptKey, _LocalAttempt] = {}
        self._waiting: deque[_LocalAttempt] = deque()
        self._free_slots = concurrency
        self._recent = RecentAttempts()
        self._tasks = TaskScope()
        self._threads = DaemonThreadPool(concurrency, "task")
        self._thread_messages: deque[tuple[_LocalAttempt, LogRecord | AttemptResult]] = deque()
        self._is_drain_scheduled = False

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread_id = threading.get_ident()
        self._pid = os.getpid()
        await self._tasks.open()
        self._loop_sentinel = self._tasks.start("in_process: presence", asyncio.Event().wait())

    async def close(self, timeout: float) -> None:
        """End what can be ended. A thread that does not end in time is still `living`: its code goes on."""
        self._mute_and_cancel_all()
        self._threads.shut_down()
        deadline = monotonic() + timeout  # real time: code takes it
        await self._tasks.close(timeout)
        await call_in_new_thread("task: end of all", self._threads.join, max(0.0, deadline - monotonic()))
        self._drain_thread_messages()
        self._attempts = {key: one for key, one in self._attempts.items() if one.is_on_thread}

    def abandon(self) -> None:
        """Let everything that runs here vanish without a report, as if its process had died."""
        self._mute_and_cancel_all()
        self._attempts = {}
        self._free_slots = self._concurrency
        self._threads.shut_down()
        self._threads = DaemonThreadPool(self._concurrency, "task")

    def _mute_and_cancel_all(self) -> None:
        """Let nothing that is here report any more, and end what can be."""
        self._waiting.clear()
        for attempt in self._attempts.values():
            attempt.is_reported = True
            for task in (attempt.task, attempt.watchdog):
                if task is not None:
                    task.cancel()

    def free_slots(self) -> int:
        return max(0, self._free_slots - len(self._waiting))

    def running(self) -> set[AttemptKey]:
        return set(self._attempts)

    async def submit(self, request: AttemptRequest) -> None:
        self.submit_now(request)

    def submit_now(self, request: AttemptRequest) -> None:
        if request.key in self._attempts or request.key in self._recent:
            return
        runner = self._runners.get(request.tenant, request.workflow, request.version)
        attempt = _LocalAttempt(request, runner.get_call(request.key.task))
        self._attempts[request.key] = attempt
        if self._free_slots:
            self._start(attempt)
        else:
            self._waiting.append(attempt)

    async def cancel(self, key: AttemptKey, reason: str) -> None:
        attempt = self._attempts.get(key)
        if attempt is None or attempt.stop_ending is not None:
            return
        attempt.stop_ending = Cancelled(reason)
        if attempt in self._waiting:
            self._waiting.remove(attempt)
            self._free_slots -= 1  # it gives back what it never had
            self._finish(attempt)
        elif attempt.is_on_thread:
            self._report(attempt, attempt.stop_ending)
        else:
            self._start_watchdog(attempt, self._cancel_until_done(attempt))

    # -- beginning

    def _start(self, attempt: _LocalAttempt) -> None:
        self._free_slots -= 1
        if attempt.request.has_begun and not attempt.call.is_async:
            self._run_on_thread(attempt)
        else:
            attempt.task = self._tasks.start(str(attempt.request.key), self._run_async(attempt))

    async def _run_async(self, attempt: _LocalAttempt) -> None:
        """Ask whether it may begin, and run it: here, or by handing it over to a thread."""
        ending: AttemptResult | None = None
        try:
            ending = await self._request_start(attempt)
            if ending is None and not attempt.is_reported:
                if not attempt.call.is_async:
                    self._run_on_thread(attempt)
                    return
                self._start_timeout(attempt)
                ending = await attempt.call.run_async(attempt.request, self._build_environment(attempt))
        except asyncio.CancelledError as error:
            ending = self._ending_of_cancelled(attempt, error)
        except Exception as error:  # whatever it is: an attempt without an end would hang, and keep its place for good
            ending = build_fallback_failure(error)
        self._finish(attempt, ending)

    def _ending_of_cancelled(self, attempt: _LocalAttempt, error: asyncio.CancelledError) -> AttemptResult | None:
        """Return how an attempt ends that was cancelled: as somebody here wants it, or as a failure of its own code.

        None if everything on the loop is cancelled, as when a program ends without closing its node: no code failed.
        """
        if attempt.stop_ending is not None or self._loop_sentinel.cancelling():
            return attempt.stop_ending
        return attempt.call.ending_of_error(error, self._build_environment(attempt))

    async def _request_start(self, attempt: _LocalAttempt) -> AttemptResult | None:
        """Return None if it may begin; if it is unwanted, it has nothing to report either."""
        if attempt.request.has_begun:
            return None
        try:
            if not await self._listener.record_start(attempt.request.key):
                attempt.is_reported = True
        except TidemillError as error:
            return HandedBack(f"it could not be recorded that it begins: {error}")
        return None

    def _run_on_thread(self, attempt: _LocalAttempt) -> None:
        if attempt.stop_ending is not None:
            self._finish(attempt)
            return
        attempt.is_on_thread = True
        self._start_timeout(attempt)
        self._threads.submit(partial(self._thread_main, attempt))

    def _thread_main(self, attempt: _LocalAttempt) -> None:
        """Run it; on a thread."""
        try:
            ending = attempt.call.run(attempt.request, self._build_environment(attempt))
        except BaseException as error:  # as above; and the thread is needed for what comes next
            ending = build_fallback_failure(error)
        self._post_to_loop(attempt, ending)

    def _build_environment(self, attempt: _LocalAttempt) -> CallEnvironment:
        push = self._push_on_loop if self._push is not None else None
        return CallEnvironment(self._clock, partial(self._on_log, attempt), self._pid, push=push)

    async def _push_on_loop(self, accumulator: str, event: Any) -> Any:
        """Push on the node's own loop, wherever the task is that asks."""
        assert self._push is not None
        if threading.get_ident() == self._loop_thread_id:
            return await self._push(accumulator, event)
        pushed = asyncio.run_coroutine_threadsafe(_await(self._push(accumulator, event)), self._loop)
        return await asyncio.wrap_future(pushed)

    # -- what comes back from threads: one wake-up of the loop for all of it

    def _post_to_loop(self, attempt: _LocalAttempt, message: LogRecord | AttemptResult) -> None:
        self._thread_messages.append((attempt, message))
        if not self._is_drain_scheduled:
            self._is_drain_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._drain_thread_messages)
            except RuntimeError:  # the loop is closed: this code outlived its node, and nobody listens
                self._thread_messages.clear()

    def _drain_thread_messages(self) -> None:
        self._is_drain_scheduled = False  # first, so that what comes from now on is announced again
        try:
            while self._thread_messages:
                attempt, message = self._thread_messages.popleft()
                if not isinstance(message, LogRecord):
                    self._finish(attempt, message)
                else:
                    self._buffer_log(attempt, message)
            self._listener.resume_work()
        finally:
            if self._thread_messages:  # whoever was told of one raised: the others are told all the same
                self._loop.call_soon(self._drain_thread_messages)

    def _on_log(self, attempt: _LocalAttempt, record: LogRecord) -> None:
        if threading.get_ident() != self._loop_thread_id:
            self._post_to_loop(attempt, record)
        else:
            self._buffer_log(attempt, record)

    def _buffer_log(self, attempt: _LocalAttempt, record: LogRecord) -> None:
        """Pass on what an attempt said, within bounds."""
        if attempt.is_reported:
            return
        if attempt.output is None:
            attempt.output = OutputBuffer(self._clock, partial(self._listener.on_log, attempt.request.key))
        attempt.output.add(record)

    # -- ending

    def _finish(self, attempt: _LocalAttempt, ending: AttemptResult | None = None) -> None:
        """Take note that an attempt's code has ended, or never began."""
        if self._attempts.get(attempt.request.key) is not attempt:
            return
        if attempt.is_on_thread:
            self._threads.mark_job_done()
        if attempt.watchdog is not None:
            attempt.watchdog.cancel()
        del self._attempts[attempt.request.key]
        self._recent.add(attempt.request.key)
        self._free_slots += 1
        while self._waiting and self._free_slots:
            self._start(self._waiting.popleft())
        self._report(attempt, attempt.stop_ending or ending)

    def _report(self, attempt: _LocalAttempt, ending: AttemptResult | None) -> None:
        if not attempt.is_reported and ending is not None:
            attempt.is_reported = True
            if attempt.output is not None:
                attempt.output.finish()
            self._listener.on_ended(attempt.request.key, ending)

    # -- stopping

    def _start_timeout(self, attempt: _LocalAttempt) -> None:
        if attempt.request.timeout is not None and attempt.stop_ending is None:
            self._start_watchdog(attempt, self._enforce_timeout(attempt))

    def _start_watchdog(self, attempt: _LocalAttempt, work: Any) -> None:
        if attempt.watchdog is not None:
            attempt.watchdog.cancel()
        attempt.watchdog = self._tasks.start(f"watch: {attempt.request.key}", work)

    async def _enforce_timeout(self, attempt: _LocalAttempt) -> None:
        await self._clock.sleep(attempt.request.timeout or 0.0)
        if attempt.stop_ending is None:
            attempt.stop_ending = build_timeout_failure(attempt.request)
        if attempt.is_on_thread:
            self._report(attempt, attempt.stop_ending)
        else:
            await self._cancel_until_done(attempt)

    async def _cancel_until_done(self, attempt: _LocalAttempt) -> None:
        """Cancel code again and again until it ends; what is known is reported after the first grace."""
        assert attempt.task is not None
        attempt.task.add_done_callback(
            lambda _: self._finish(attempt)
        )  # for one that was cancelled before its first step
        while True:
            attempt.task.cancel()
            await self._clock.sleep(self._grace)
            self._report(attempt, attempt.stop_ending)


async def _await(work: Awaitable[Any]) -> Any:
    return await work
