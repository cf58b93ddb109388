"""The deploy pipeline: six steps that load a package, and the same six in reverse.

    1 schedules   2 triggers   3 reactors   4 graphs without a reactor   5 graphs of reactors   6 workflows

Each step may rely on those before it: a graph finds its reactor, a workflow finds its triggers and the graphs that it
calls. Nothing starts by itself before the end: schedules are armed as the last act of step 6, and reactors do not fire
until everything is in place.

    load      apply 1..6; if a step fails, roll_back from there to 1, and everything is as it was
    reload    the same, next to the older version where possible; then remove 6..1 what the newer version lacks
    unload    remove 6..1

A rollback or a removal may fail too, for example while the store is down. The remaining steps then become a pending
cleanup, which is retried in the same order, with growing delays, until it succeeds. Until then the cleanup owns the
names of its package: a change that touches one of them, or relies on one, finishes the cleanup first.

Loads run one at a time, under `change_lock`. An unload holds the lock only while it begins. From then on it is a
pending cleanup, so that no one else touches its names, and a slow unload delays no other package.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from tidemill.engine.tasks import TaskScope
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.packages.deploy.change import NameClaim, PackageChange
from tidemill.packages.deploy.install_records import InstallRecords
from tidemill.packages.deploy.steps import DeployStep
from tidemill.packages.status import PackageKey, StepTimes
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class PipelineObserver(Protocol):
    """Receives what the pipeline finishes on its own."""

    def on_unloaded(self, change: PackageChange) -> None:
        """Nothing of a package is left."""

    async def on_cleanup_done(self) -> None:
        """A retried cleanup has finished."""


class StepCall(NamedTuple):
    """One verb of one step."""

    step: DeployStep
    method: Callable[[PackageChange], Awaitable[None]]


class PendingCleanup:
    """The remaining steps of a rollback or a removal, and how the change is recorded when they are done."""

    def __init__(
        self,
        change: PackageChange,
        calls: Iterable[StepCall],
        record: Callable[[PackageChange], Awaitable[None]],
        *,
        is_rollback: bool = False,
        is_unload: bool = False,
    ) -> None:
        self.change = change
        self.remaining = list(calls)
        self.record = record
        self.is_rollback = is_rollback
        self.is_unload = is_unload
        """Whether the whole package goes."""
        self.is_done = False
        self.failures = 0
        self.error: Exception | None = None
        self.retry_task: asyncio.Task[None] | None = None
        self.lock = asyncio.Lock()
        """Held by the task that runs it."""

    @property
    def log_fields(self) -> dict[str, str | int]:
        """The fields that log records about it carry."""
        title = self.remaining[0].step.title if self.remaining else "records"
        return {"package": self.change.name, "tenant": self.change.tenant, "step": title, "failures": self.failures}


class Pipeline:
    """Takes packages through the deploy steps, one at a time."""

    def __init__(
        self,
        steps: Sequence[DeployStep],
        records: InstallRecords,
        observer: PipelineObserver,
        change_lock: asyncio.Lock,
        *,
        tasks: TaskScope,
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        self.steps = tuple(steps)
        self._records = records
        self._observer = observer
        self._tasks = tasks
        self._clock = clock
        self.step_times = StepTimes(tuple(one.title for one in self.steps), clock)
        self._backoff = backoff
        self._cleanups: dict[PackageKey, PendingCleanup] = {}
        self._store_writes = 0
        self._steps_running = 0
        self._is_closed = False
        self.change_lock = change_lock
        """Held while packages change, so that what was checked still holds when the change is applied."""

    @property
    def is_using_store(self) -> bool:
        """Whether a read or a write of the store is in progress."""
        return self._store_writes > 0

    @property
    def is_busy(self) -> bool:
        """Whether a step is running."""
        return self._steps_running > 0

    def check_open(self) -> None:
        """Reject changes on a node that is closing; call this with the change lock held."""
        if self._is_closed:
            raise RequestError("the node is no longer running", code="not_running", status=503)

    # -- loading and unloading

    async def load(self, change: PackageChange) -> None:
        """Load a package, or leave everything as it was. The package has no pending cleanup."""
        started: list[DeployStep] = []
        self.step_times.begin(change.key)
        with self._store_write():
            await self._records.record_loading(change)
        try:
            for step in self.steps:
                started.insert(0, step)
                with self.step_times.step(change.key, step.title):
                    await self._run_step(StepCall(step, step.apply), change)
            with self._store_write():
                await self._records.record_loaded(change)
        except BaseException as error:
            await self._roll_back(change, started, error)
            raise
        await self._run_cleanup(PendingCleanup(change, self._removal_calls(), self._records.record_settled))

    async def _roll_back(self, change: PackageChange, started: Sequence[DeployStep], error: BaseException) -> None:
        calls = [StepCall(step, step.roll_back) for step in started]
        cleanup = PendingCleanup(change, calls, self._records.record_rolled_back, is_rollback=True)
        if not await self._run_cleanup(cleanup):
            error.add_note(f"the rollback failed too: {cleanup.error}; it is retried")

    async def begin_unload(self, change: PackageChange) -> PendingCleanup:
        """Record that a package is being unloaded, and return the cleanup that unloads it."""
        with self._store_write():
            await self._records.record_unloading(change)
        cleanup = PendingCleanup(change, self._removal_calls(), self._record_unloaded, is_unload=True)
        self._cleanups[change.key] = cleanup
        return cleanup

    async def _record_unloaded(self, change: PackageChange) -> None:
        await self._records.record_unloaded(change)
        self.step_times.forget(change.key)
        self._observer.on_unloaded(change)

    async def finish_unload(self, cleanup: PendingCleanup) -> None:
        """Unload a package without the change lock; a step that fails is retried."""
        if not await self._run_cleanup(cleanup):
            name = cleanup.change.name
            raise OperationError(f"package '{name}' is not unloaded yet: {cleanup.error}; it is retried")

    def _removal_calls(self) -> list[StepCall]:
        return [StepCall(step, step.remove) for step in reversed(self.steps)]

    def close(self) -> None:
        """Reject further changes; a change that holds the lock completes."""
        self._is_closed = True

    async def wait_for_cleanups(self) -> None:
        """Wait until no cleanup is running; call this with the change lock held."""
        for cleanup in tuple(self._cleanups.values()):
            async with cleanup.lock:
                pass

    # -- pending cleanups

    @property
    def pending_cleanups(self) -> list[PackageKey]:
        """The packages that have a pending cleanup."""
        return sorted(self._cleanups)

    def pending_cleanup(self, key: PackageKey) -> PendingCleanup | None:
        """Return the pending cleanup of a package."""
        return self._cleanups.get(key)

    def names_leaving(self) -> frozenset[NameClaim]:
        """Return the names of the packages that are being unloaded."""
        return frozenset(
            claim for cleanup in self._cleanups.values() if cleanup.is_unload for claim in cleanup.change.claims
        )

    def conflicting_cleanup(self, change: PackageChange) -> PendingCleanup | None:
        """Return a cleanup of names that a change touches or relies on.

        The check for names that are leaving covers a change that relies on a package that is being unloaded.
        """
        touched = change.claims | change.references
        for cleanup in self._cleanups.values():
            if cleanup.change.claims & (change.claims if cleanup.is_unload else touched):
                return cleanup
        return None

    async def finish_cleanup(self, cleanup: PendingCleanup) -> None:
        """Finish a pending cleanup; call this without the change lock, and check again once it is held."""
        if not await self._try_finish(cleanup):
            action = "unloaded" if cleanup.is_unload else "rolled back" if cleanup.is_rollback else "cleaned up"
            name = cleanup.change.name
            raise OperationError(f"package '{name}' is still being {action}: {cleanup.error}; it is retried")

    async def _try_finish(self, cleanup: PendingCleanup) -> bool:
        if cleanup.is_unload:
            return not self._is_closed and await self._run_cleanup(cleanup)
        async with self.change_lock:  # a rollback activates reactors, which must not activate those of another change
            return not self._is_closed and await self._run_cleanup(cleanup)

    async def _run_cleanup(self, cleanup: PendingCleanup) -> bool:
        """Run a cleanup from where it stopped; return whether it is done. If it is not, it is retried later."""
        is_done = False
        try:
            async with cleanup.lock:
                is_done = await self._run_remaining(cleanup)
        finally:
            if not is_done:  # also if this call was cancelled
                self._schedule_retry(cleanup)
        if is_done and self._cleanups.get(cleanup.change.key) is cleanup:
            del self._cleanups[cleanup.change.key]
        if is_done and cleanup.retry_task is not None and cleanup.retry_task is not asyncio.current_task():
            cleanup.retry_task.cancel()
        return is_done

    async def _run_remaining(self, cleanup: PendingCleanup) -> bool:
        try:
            while cleanup.remaining:
                await self._run_step(cleanup.remaining[0], cleanup.change)
                del cleanup.remaining[0]
            if not cleanup.is_done:
                with self._store_write():
                    await cleanup.record(cleanup.change)
                cleanup.is_done = True
        except Exception as error:  # any error of a step: the remaining steps stay pending
            cleanup.failures += 1
            cleanup.error = error
            logger.exception(events.PACKAGE_CLEANUP_PENDING, extra=cleanup.log_fields)
            return False
        return True

    def _schedule_retry(self, cleanup: PendingCleanup) -> None:
        self._cleanups[cleanup.change.key] = cleanup
        if cleanup.retry_task is None and not self._tasks.is_closed:
            cleanup.retry_task = self._tasks.start(
                f"package {cleanup.change.name}: cleanup", self._retry_until_done(cleanup)
            )

    async def _retry_until_done(self, cleanup: PendingCleanup) -> None:
        """Retry a cleanup with growing delays until it, or a change that needs it done, succeeds."""
        while self._cleanups.get(cleanup.change.key) is cleanup:
            await self._clock.sleep(self._backoff.delay(cleanup.failures))
            await self._try_finish(cleanup)
        await self._observer.on_cleanup_done()

    # -- steps

    async def _run_step(self, call: StepCall, change: PackageChange) -> None:
        self._steps_running += 1
        try:
            if call.step.awaits_author_code:
                await call.method(change)
            else:
                with self._store_write():
                    await call.method(change)
        finally:
            self._steps_running -= 1

    @contextmanager
    def _store_write(self) -> Iterator[None]:
        """Count work that waits for nothing but the store."""
        self._store_writes += 1
        try:
            yield
        finally:
            self._store_writes -= 1
