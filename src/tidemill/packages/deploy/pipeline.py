"""The pipeline: six steps that load a package, and the same six backwards.

    1 schedules   2 triggers   3 reactors   4 graphs without a reactor   5 graphs of reactors   6 workflows

Each step may rely on those before it: a graph finds its reactor, a workflow its triggers and the graphs that it calls.
Nothing starts by itself before the end: schedules are armed as the last act of step 6, and reactors hold still until
everything is in place.

    load      put 1..6; if one fails, take_back from there to 1, and everything is as it was
    reload    the same, beside the older version, where that can be; then retire 6..1 what the newer one has no more
    unload    retire 6..1 with nothing to come

A step may fail on the way back too, when the store is away, say. What is left to do is then owed: it is tried again, in
the same order, with growing delays, until it is done. Until then its names are its own: whoever wants to change one of
them, or relies on one, settles that first.

Loads have turns. An unload needs one only to begin: from then on it is owed, so that nobody else touches its names, and
what takes its time to end keeps nobody waiting.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from tidemill.engine.tasks import TaskScope
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.packages.deploy.change import NO_DEFINITIONS, NameClaim, PackageChange, claimed_names, referenced_names
from tidemill.packages.deploy.install_records import InstallRecords
from tidemill.packages.deploy.steps import DeployStep
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

StepVerb = Literal["apply", "roll_back", "remove"]
StepMethod = Callable[[PackageChange], Awaitable[None]]
Key = tuple[str, str]


class StepRunner:
    """Calls steps, and knows whether something is on its way to the store meanwhile, or from it."""

    def __init__(self) -> None:
        self._store_writes = 0
        self._steps_running = 0

    @property
    def is_using_store(self) -> bool:
        """Whether something is on its way to the store, or from it."""
        return self._store_writes > 0

    @property
    def is_busy(self) -> bool:
        """Whether a step is being taken, whatever it waits for."""
        return self._steps_running > 0

    async def run_step(self, verb: StepVerb, step: DeployStep, change: PackageChange) -> None:
        """Take a step, this way."""
        verbs: dict[StepVerb, StepMethod] = {"apply": step.apply, "roll_back": step.roll_back, "remove": step.remove}
        work = verbs[verb](change)
        self._steps_running += 1
        try:
            await (work if step.awaits_author_code else self.run_store_write(work))
        finally:
            self._steps_running -= 1

    async def run_store_write(self, work: Awaitable[None]) -> None:
        """Do what takes no time but the store's."""
        self._store_writes += 1
        try:
            await work
        finally:
            self._store_writes -= 1


class PendingCleanup:
    """What is left to do on the way back: the steps, next one first, and what follows when they are done."""

    def __init__(
        self, change: PackageChange, verb: StepVerb, steps: Sequence[DeployStep], on_done: Callable[[], Awaitable[None]]
    ) -> None:
        self.change = change
        self.key = change.tenant, change.name
        self.steps = list(steps)
        self.verb = verb
        self.claims = claimed_names(change)
        """The names that nobody else touches until it is paid."""
        self.is_unload = verb == "remove" and change.after is NO_DEFINITIONS
        """Whether the package is to be gone."""
        self._on_done = on_done
        self._is_done = False
        self._lock = asyncio.Lock()
        self.failures = 0
        self.error: Exception | None = None
        self.retry_task: asyncio.Task[None] | None = None
        """What tries again, later and later."""

    async def run(self, runner: StepRunner) -> bool:
        """Go on where it stopped, one at a time; return whether everything is done."""
        async with self._lock:
            try:
                while self.steps:
                    await runner.run_step(self.verb, self.steps[0], self.change)
                    del self.steps[0]
                if not self._is_done:
                    await runner.run_store_write(self._on_done())
                    self._is_done = True
            except Exception as error:  # whatever a step meets, the others are still owed
                self.failures += 1
                self.error = error
                logger.exception(events.PACKAGE_CLEANUP_PENDING, extra=self.log_fields)
                return False
            return True

    async def wait_until_idle(self) -> None:
        """Return when nobody is paying it."""
        async with self._lock:
            pass

    @property
    def log_fields(self) -> dict[str, str | int]:
        """What is said about it."""
        title = self.steps[0].title if self.steps else "ledger"
        return {"package": self.change.name, "tenant": self.change.tenant, "step": title, "failures": self.failures}


class Pipeline:
    """Takes packages through the steps, one at a time."""

    def __init__(
        self,
        steps: Sequence[DeployStep],
        records: InstallRecords,
        tasks: TaskScope,
        clock: Clock,
        backoff: Backoff,
        on_cleanup_done: Callable[[], Awaitable[None]],
    ) -> None:
        """`paid` is called when something is done at last that was owed, and nobody asked for it."""
        self.steps = tuple(steps)
        self._records = records
        self._tasks = tasks
        self._clock = clock
        self._backoff = backoff
        self._on_cleanup_done = on_cleanup_done
        self._cleanups: dict[Key, PendingCleanup] = {}
        self._runner = StepRunner()
        self._is_abandoned = False
        self._is_closed = False
        self.change_lock = asyncio.Lock()
        """Whoever changes packages holds it: what was checked still holds when it is done."""

    @property
    def is_using_store(self) -> bool:
        """Whether something is on its way to the store, or from it."""
        return self._runner.is_using_store

    @property
    def is_busy(self) -> bool:
        """Whether a step is being taken."""
        return self._runner.is_busy

    def check_open(self) -> None:
        """Refuse to change anything on a node that is about to end; whoever waits for a turn asks when it has come."""
        if self._is_closed:
            raise RequestError("the node is not running any more", code="not_running", status=409)

    # -- there and back

    async def load(self, change: PackageChange) -> None:
        """Put a package in place, or leave everything as it was; nothing is owed about it."""
        begun: list[DeployStep] = []
        await self._runner.run_store_write(self._records.record_loading(change))
        try:
            for step in self.steps:
                begun.insert(0, step)
                await self._runner.run_step("apply", step, change)
            await self._runner.run_store_write(self._records.record_loaded(change))
        except BaseException as error:
            await self._roll_back(change, begun, error)
            raise
        await self._run_cleanup(
            PendingCleanup(change, "remove", self.steps[::-1], lambda: self._records.record_settled(change))
        )

    async def _roll_back(self, change: PackageChange, begun: Sequence[DeployStep], error: BaseException) -> None:
        if self._is_abandoned:
            return
        debt = PendingCleanup(change, "roll_back", begun, lambda: self._records.record_rolled_back(change))
        if not await self._run_cleanup(debt):
            error.add_note(f"and it could not be put back as it was yet: {debt.error}; that is tried again")

    async def begin_unload(self, change: PackageChange, on_done: Callable[[], None]) -> PendingCleanup:
        """Begin to take a package away; `end` is called when nothing is left of it. From now on that is owed."""
        await self._runner.run_store_write(self._records.record_unloading(change))

        async def done() -> None:
            await self._records.record_unloaded(change)
            on_done()

        debt = PendingCleanup(change, "remove", self.steps[::-1], done)
        self._cleanups[debt.key] = debt
        return debt

    async def finish_unload(self, cleanup: PendingCleanup) -> None:
        """Take a package away that is to be gone, without a turn; what fails is tried again."""
        if not await self._run_cleanup(cleanup):
            raise OperationError(
                f"package '{cleanup.change.name}' is not unloaded yet: {cleanup.error}; it is tried again"
            )

    def abandon(self) -> None:
        """Put nothing back from now on: leave everything as the death of the process would."""
        self._is_abandoned = True

    def close(self) -> None:
        """Let nobody begin anything any more: who has a turn ends it."""
        self._is_closed = True

    async def wait_for_cleanups(self) -> None:
        """Return when nothing is being taken away; whoever calls has the turn."""
        for debt in tuple(self._cleanups.values()):
            await debt.wait_until_idle()

    # -- what is owed

    def pending_cleanup(self, tenant: str, name: str) -> PendingCleanup | None:
        """Return what is owed about a package."""
        return self._cleanups.get((tenant, name))

    def names_leaving(self) -> frozenset[NameClaim]:
        """Return the names of packages that are to be gone, but are not yet."""
        return frozenset(claim for debt in self._cleanups.values() if debt.is_unload for claim in debt.claims)

    def conflicting_cleanup(self, change: PackageChange) -> PendingCleanup | None:
        """Return what is owed about names that this is about, or that it relies on; see Guards about what leaves."""
        held, named = claimed_names(change), referenced_names(change)
        found = (one for one in self._cleanups.values() if one.claims & (held if one.is_unload else held | named))
        return next(found, None)

    async def finish_cleanup(self, cleanup: PendingCleanup) -> None:
        """See to it that something is no longer owed; whoever calls has no turn, and asks again when it has one."""
        if not await self._try_finish(cleanup):
            what = "put back as it was" if cleanup.verb == "roll_back" else "taken away"
            name = cleanup.change.name
            raise OperationError(f"package '{name}' is still being {what}: {cleanup.error}; that is tried again")

    async def _try_finish(self, cleanup: PendingCleanup) -> bool:
        if cleanup.is_unload:
            return not self._is_closed and await self._run_cleanup(cleanup)
        async with self.change_lock:  # what is put back comes up, and must not let go of what others hold still
            return not self._is_closed and await self._run_cleanup(cleanup)

    async def _run_cleanup(self, cleanup: PendingCleanup) -> bool:
        is_paid = False
        try:
            is_paid = await cleanup.run(self._runner)
        finally:
            if not is_paid:  # also if this was cut off
                self._schedule_retry(cleanup)
        if is_paid and self._cleanups.get(cleanup.key) is cleanup:
            del self._cleanups[cleanup.key]
        if is_paid and cleanup.retry_task is not None and cleanup.retry_task is not asyncio.current_task():
            cleanup.retry_task.cancel()
        return is_paid

    def _schedule_retry(self, cleanup: PendingCleanup) -> None:
        self._cleanups[cleanup.key] = cleanup
        if cleanup.retry_task is None and not self._tasks.is_closed:
            cleanup.retry_task = self._tasks.start(
                f"package {cleanup.change.name}: owed", self._retry_until_done(cleanup)
            )

    async def _retry_until_done(self, cleanup: PendingCleanup) -> None:
        """Try again until it is done; whoever wants to change the package before that does it instead."""
        while self._cleanups.get(cleanup.key) is cleanup:
            await self._clock.sleep(self._backoff.delay(cleanup.failures))
            await self._try_finish(cleanup)
        await self._on_cleanup_done()
