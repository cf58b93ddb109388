"""Runs attempts inside the node: `async def` tasks on its loop, `def` tasks on separate threads.

A coroutine can be cancelled. A thread cannot be killed: when it times out or is cancelled, that is reported, its return
value is dropped later, and it keeps its slot until it ends. Code that blocks and must be stoppable belongs into the
subprocess executor.
"""

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Any, NamedTuple

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.executors.attempt_output import OutputBuffer, echo_to_logging, mask_ending, mask_record
from tidemill.engine.workflows.executors.attempt_table import AttemptTable, RunningAttempt
from tidemill.engine.workflows.executors.code import LoadedWorkflows, VersionCache
from tidemill.engine.workflows.executors.interface import (
    COMMON_SLOTS,
    STOP_GRACE_PERIOD,
    AttemptListener,
    AttemptRequest,
    Executor,
    HandleCall,
    SlotClass,
)
from tidemill.engine.workflows.executors.runner import CallEnvironment, TaskCall, TaskRunner, build_fallback_failure
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_new_thread, has_running_loop
from tidemill.kernel.limits import COROUTINE_SLOTS, DEFAULT_CONCURRENCY, DefaultConcurrency
from tidemill.kernel.masked_output import MaskedOutput
from tidemill.kernel.masking import SecretMask
from tidemill.telemetry.author_output import AUTHOR_OUTPUT, captured_record
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.attempt_results import AttemptResult, Cancelled
from tidemill.workflows.node_calls import NodeCall, SecretCall
from tidemill.workflows.records import AttemptKey, VersionKey


class DaemonThreadPool:
    """Threads that are started on demand. They are daemons, so that code that hangs does not delay the exit."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy_count = 0

    def submit(self, job: Callable[[], None]) -> None:
        """Run a job on a thread. It must not raise; its caller calls `mark_job_done` after it has ended."""
        self._busy_count += 1
        self._jobs.put(job)
        if self._busy_count > len(self._threads) < self._size:
            name = f"{self._name} {len(self._threads) + 1}"
            self._threads.append(threading.Thread(target=_run_jobs, args=(self._jobs,), name=name, daemon=True))
            self._threads[-1].start()

    def mark_job_done(self) -> None:
        """Count a job as ended. Call it on the thread that submitted the job."""
        self._busy_count -= 1

    def shut_down(self) -> None:
        """Let every thread end after its current job."""
        for _ in self._threads:
            self._jobs.put(None)

    def join(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for all threads to end."""
        deadline = monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))


def _run_jobs(jobs: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (job := jobs.get()) is not None:
        Context().run(job)  # context variables that a task sets end with it
        del job  # an idle thread holds no value of its last task


THREADS: SlotClass = "threads"
COROUTINES: SlotClass = "coroutines"


class _Slots:
    """The slots of one class, and the attempts that wait for one in order of arrival."""

    def __init__(self, size: int) -> None:
        self.free = size
        self.waiting: deque[_LocalAttempt] = deque()


class _LocalAttempt(RunningAttempt):
    """An attempt in this process."""

    __slots__ = ("_executor", "call", "is_on_thread", "output", "slots", "task")

    def __init__(self, executor: "InProcess", request: AttemptRequest, call: TaskCall, slots: _Slots) -> None:
        super().__init__(request)
        self._executor = executor
        self.call = call
        self.slots = slots
        self.task: asyncio.Task[Any] | None = None
        self.output: OutputBuffer | None = None
        """Its log; None until it logs something."""
        self.is_on_thread = False

    def add_printed(self, stream: str, data: bytes) -> None:
        """Keep what its code has written to a standard stream."""
        self._executor.add_output(self, _Printed(stream, data))

    def add_logged(self, record: logging.LogRecord, *, is_shown: bool) -> None:
        """Keep a log record; show it as one of `ctx.log` if no handler does."""
        self._executor.add_logged(self, record, is_shown=is_shown)


class _Printed(NamedTuple):
    """What the code of an attempt has written to a standard stream."""

    stream: str
    data: bytes


class InProcess(Executor):
    """Runs attempts in this process, at most `concurrency` at a time; further ones wait in order of arrival.

    A coroutine costs next to nothing, a plain function a thread. So by default there are more slots for coroutines, and
    they are counted apart; with an explicit number, all attempts share the slots.
    """

    name = "in_process"
    is_immediate = True

    def __init__(
        self,
        workflows: LoadedWorkflows,
        listener: AttemptListener,
        clock: Clock,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        handle_call: HandleCall | None = None,
        mask: SecretMask | None = None,
        grace: float = STOP_GRACE_PERIOD,
    ) -> None:
        self._runners: VersionCache[TaskRunner] = VersionCache(workflows, TaskRunner)
        self._listener = listener
        self._clock = clock
        self._handle_call = handle_call
        self._mask = mask or SecretMask()
        self._masked_output = MaskedOutput(self._mask)
        self._grace = grace
        self._attempts: AttemptTable[_LocalAttempt] = AttemptTable()
        self._slots = {COMMON_SLOTS: _Slots(concurrency)}
        self._class_of = {False: COMMON_SLOTS, True: COMMON_SLOTS}
        """The class of the slots of plain functions, and of coroutines."""
        if isinstance(concurrency, DefaultConcurrency):
            self._slots = {THREADS: _Slots(concurrency), COROUTINES: _Slots(COROUTINE_SLOTS)}
            self._class_of = {False: THREADS, True: COROUTINES}
        self._tasks = TaskScope()
        self._threads = DaemonThreadPool(concurrency, "task")
        self._thread_messages: deque[tuple[_LocalAttempt, LogRecord | _Printed | AttemptResult]] = deque()
        self._is_drain_scheduled = False
        self._observes_output = False

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread_id = threading.get_ident()
        self._pid = os.getpid()
        await self._tasks.open()
        self._loop_sentinel = self._tasks.start("in_process: loop sentinel", asyncio.Event().wait())

    async def close(self, timeout: float) -> None:
        """Stop what can be stopped. An attempt whose thread does not end in time stays in `running`."""
        self._mute_and_cancel_all()
        if self._observes_output:  # nothing is kept of attempts that are muted
            self._observes_output = False
            AUTHOR_OUTPUT.close()
        self._threads.shut_down()
        deadline = monotonic() + timeout  # real time: threads do not follow the clock
        await self._tasks.close(timeout)
        await call_in_new_thread("task: join threads", self._threads.join, max(0.0, deadline - monotonic()))
        self._drain_thread_messages()
        for attempt in self._attempts:
            if not attempt.is_on_thread:
                self._attempts.forget(attempt)
        if not len(self._attempts):  # code that has not ended may still print
            self._masked_output.restore()

    def _mute_and_cancel_all(self) -> None:
        """Mute all attempts and cancel their tasks."""
        for slots in self._slots.values():
            slots.waiting.clear()
        for attempt in self._attempts:
            attempt.is_reported = True
            attempt.cancel_watchdog()
            if attempt.task is not None:
                attempt.task.cancel()

    def free_slots(self) -> int:
        return min(map(self.free_slots_of, self._slots))

    def free_slots_of(self, slot_class: SlotClass) -> int:
        slots = self._slots[slot_class]
        return max(0, slots.free - len(slots.waiting))

    def slot_class(self, version: VersionKey, task: str) -> SlotClass:
        runner = self._runners.find(version)
        return self._class_of[runner is not None and runner.get_call(task).is_async]

    def running(self) -> set[AttemptKey]:
        return self._attempts.keys()

    async def submit(self, request: AttemptRequest) -> None:
        self.submit_now(request)

    def submit_now(self, request: AttemptRequest) -> None:
        if self._attempts.is_known(request.key):
            return
        runner = self._runners.get(request.tenant, request.workflow, request.version)
        call = runner.get_call(request.key.task)
        attempt = _LocalAttempt(self, request, call, self._slots[self._class_of[call.is_async]])
        self._attempts.add(attempt)
        if attempt.slots.free:
            self._start(attempt)
        else:
            attempt.slots.waiting.append(attempt)

    def on_leases_renewed(self) -> None:
        """Do nothing: attempts that run here cannot outlive the node."""

    async def cancel(self, key: AttemptKey, reason: str) -> None:
        attempt = self._attempts.get(key)
        if attempt is None or attempt.stop_ending is not None:
            return
        attempt.stop_ending = Cancelled(reason)
        slots = attempt.slots
        if attempt in slots.waiting:
            slots.waiting.remove(attempt)
            slots.free -= 1  # `_finish` returns a slot, and this attempt has none
            self._finish(attempt)
        elif attempt.is_on_thread:
            self._report(attempt, attempt.stop_ending)
        else:
            self._start_watchdog(attempt, self._cancel_until_done(attempt))

    # -- starting

    def _start(self, attempt: _LocalAttempt) -> None:
        attempt.slots.free -= 1
        if attempt.request.has_begun and not attempt.call.is_async:
            self._run_on_thread(attempt)
        else:
            attempt.task = self._tasks.start(str(attempt.request.key), self._run_async(attempt))

    async def _run_async(self, attempt: _LocalAttempt) -> None:
        """Ask whether the attempt may start, and run it on the loop or hand it to a thread."""
        ending: AttemptResult | None = None
        try:
            if not attempt.request.has_begun:
                await attempt.request_start(self._listener)
            if attempt.may_start:
                if not attempt.call.is_async:
                    self._run_on_thread(attempt)
                    return
                if attempt.request.timeout is not None:
                    self._start_watchdog(attempt, self._enforce_timeout(attempt))
                ending = await attempt.call.run_async(attempt.request, self._build_environment(attempt))
        except asyncio.CancelledError as error:
            ending = self._ending_of_cancelled(attempt, error)
        except Exception as error:  # of any kind: an attempt without a result would hang and keep its slot
            ending = build_fallback_failure(error)
        self._finish(attempt, ending)

    def _ending_of_cancelled(self, attempt: _LocalAttempt, error: asyncio.CancelledError) -> AttemptResult | None:
        """Return the result of a cancelled attempt: the one it was stopped with, or a failure of its own code.

        None if everything on the loop is cancelled, as when a program ends without closing its node: no code failed.
        """
        if attempt.stop_ending is not None or self._loop_sentinel.cancelling():
            return attempt.stop_ending
        return attempt.call.ending_of_error(error, self._build_environment(attempt))

    def _run_on_thread(self, attempt: _LocalAttempt) -> None:
        attempt.is_on_thread = True
        if attempt.request.timeout is not None:
            self._start_watchdog(attempt, self._enforce_timeout(attempt))
        self._threads.submit(partial(self._thread_main, attempt))

    def _thread_main(self, attempt: _LocalAttempt) -> None:
        """Run the attempt; called on a thread."""
        try:
            ending = attempt.call.run(attempt.request, self._build_environment(attempt))
        except BaseException as error:  # as above; and the next attempt needs this thread
            ending = build_fallback_failure(error)
        self._post_to_loop(attempt, ending)

    def _build_environment(self, attempt: _LocalAttempt) -> CallEnvironment:
        call_node = None if self._handle_call is None else partial(self._call_node, attempt.request)
        on_log, sink = partial(self.add_output, attempt), None
        if attempt.request.captures_output:
            sink = attempt
            if not self._observes_output:
                self._observes_output = True
                AUTHOR_OUTPUT.open()
            else:  # the streams may have been replaced since the last attempt
                AUTHOR_OUTPUT.observe_streams()
        return CallEnvironment(self._clock, on_log, self._pid, call_node=call_node, mask=self._mask, output=sink)

    def _call_node(self, request: AttemptRequest, call: NodeCall) -> Any:
        """Make a call on the node's own loop, from any thread."""
        assert self._handle_call is not None
        if isinstance(call, SecretCall):
            self._masked_output.install()
        answer = self._handle_call(request, call)
        if threading.get_ident() == self._loop_thread_id:
            return answer
        future = asyncio.run_coroutine_threadsafe(answer, self._loop)
        return asyncio.wrap_future(future) if has_running_loop() else future.result()

    # -- messages from threads: one wake-up of the loop for all of them

    def _post_to_loop(self, attempt: _LocalAttempt, message: LogRecord | _Printed | AttemptResult) -> None:
        self._thread_messages.append((attempt, message))
        if not self._is_drain_scheduled:
            self._is_drain_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._drain_thread_messages)
            except RuntimeError:  # the loop is closed: this code outlived its node
                self._thread_messages.clear()

    def _drain_thread_messages(self) -> None:
        self._is_drain_scheduled = False  # first, so that a message that arrives from now on schedules another drain
        try:
            while self._thread_messages:
                attempt, message = self._thread_messages.popleft()
                if isinstance(message, LogRecord | _Printed):
                    self._buffer_output(attempt, message)
                else:
                    self._finish(attempt, message)
            self._listener.resume_work()
        finally:
            if self._thread_messages:  # the listener raised: deliver the other messages all the same
                self._loop.call_soon(self._drain_thread_messages)

    def add_output(self, attempt: _LocalAttempt, output: LogRecord | _Printed) -> None:
        """Put output of an attempt into its log; called on any thread."""
        if threading.get_ident() != self._loop_thread_id:
            self._post_to_loop(attempt, output)
        else:
            self._buffer_output(attempt, output)

    def add_logged(self, attempt: _LocalAttempt, logged: logging.LogRecord, *, is_shown: bool) -> None:
        """Put what a logger of author code has logged into the log of its attempt; called on any thread."""
        record = captured_record(self._clock.now(), logged)
        if not self._mask.is_empty:
            record = mask_record(self._mask, record)
        self.add_output(attempt, record)
        if not is_shown:
            echo_to_logging(attempt.request.key, record)

    def _buffer_output(self, attempt: _LocalAttempt, output: LogRecord | _Printed) -> None:
        """Pass output on, within the limits of the attempt's log."""
        if attempt.is_reported:
            return
        if attempt.output is None:
            on_log = partial(self._listener.on_log, attempt.request.key)
            attempt.output = OutputBuffer(self._clock, on_log, self._mask)
        if isinstance(output, LogRecord):
            attempt.output.add(output)
        else:
            attempt.output.write(*output)

    # -- ending

    def _finish(self, attempt: _LocalAttempt, ending: AttemptResult | None = None) -> None:
        """Remove an attempt whose code has ended, or never started, and report it."""
        if not self._attempts.remove(attempt):
            return
        if attempt.is_on_thread:
            self._threads.mark_job_done()
        if attempt.watchdog is not None:
            attempt.cancel_watchdog()
        slots = attempt.slots
        slots.free += 1
        while slots.waiting and slots.free:
            self._start(slots.waiting.popleft())
        self._report(attempt, attempt.stop_ending or ending)

    def _report(self, attempt: _LocalAttempt, ending: AttemptResult | None) -> None:
        if not attempt.is_reported and ending is not None:
            attempt.is_reported = True
            if attempt.output is not None:
                attempt.output.finish()
            if not self._mask.is_empty:
                ending = mask_ending(self._mask, ending)
            self._listener.on_ended(attempt.request.key, ending)

    # -- stopping

    def _start_watchdog(self, attempt: _LocalAttempt, work: Coroutine[Any, Any, None]) -> None:
        attempt.cancel_watchdog()
        attempt.watchdog = self._tasks.start(f"watchdog: {attempt.request.key}", work)

    async def _enforce_timeout(self, attempt: _LocalAttempt) -> None:
        await self._clock.sleep(attempt.request.timeout or 0.0)
        if attempt.stop_ending is None:
            attempt.stop_ending = attempt.build_timeout_failure()
        if attempt.is_on_thread:
            self._report(attempt, attempt.stop_ending)
        else:
            await self._cancel_until_done(attempt)

    async def _cancel_until_done(self, attempt: _LocalAttempt) -> None:
        """Cancel code repeatedly until it ends; the result is reported after the first grace period."""
        assert attempt.task is not None
        attempt.task.add_done_callback(lambda _: self._finish(attempt))  # if it is cancelled before its first step
        while True:
            attempt.task.cancel()
            await self._clock.sleep(self._grace)
            self._report(attempt, attempt.stop_ending)
