"""The reconciler: what is loaded becomes what is wanted, whatever has happened and in whatever order.

It works on keys, not on events. The source says what is wanted, the site what is loaded, and a caretaker for each
package makes the one the other. News only say that it is time to look: too many of them do no harm, and one that is
lost is made up for by the next. Order between packages is found by trying: one that waits for another, or that another
keeps from going, is looked at again whenever something was loaded or removed.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping

from tidemill.engine.tasks import TaskScope, cancel_and_wait
from tidemill.engine.wakeup import FOREVER, Wakeup
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import TidemillError
from tidemill.kernel.settings import Settings
from tidemill.packages.loading.preparer import ConcurrencyLimit
from tidemill.packages.reconcile.controller import ControllerContext, PackageController, PackageHost
from tidemill.packages.reconcile.decision import DesiredPackage, PackageKey, PackageSource, RetryPace
from tidemill.packages.sanitizing import sanitize_error
from tidemill.packages.status import PackageStatus, StatusListener
from tidemill.telemetry import events
from tidemill.telemetry.failure_streaks import FailureStreaks
from tidemill.telemetry.metrics import Sample

logger = logging.getLogger(__name__)

CONCURRENT_PREPARE_LIMIT = 4  # packages that are prepared at once: each takes a process
_MIN_RETRY_DELAY = 0.1  # seconds before a failed step is taken again, however short the settings say
_SLOW_BACKOFF = Backoff(30.0, 600.0)  # between tries of what is wrong in itself, as far as can be told


class Reconciler:
    """Loads, reloads and removes the packages of one source on one node.

    What it has not loaded itself it leaves alone. `told` hears of every change of a package's status.
    """

    def __init__(
        self,
        source: PackageSource,
        host: PackageHost,
        clock: Clock,
        tasks: TaskScope,
        settings: Settings,
        *,
        on_status: StatusListener | None = None,
    ) -> None:
        self._source = source
        self._clock = clock
        self._tasks = tasks
        self._on_status = on_status
        self._backoff = Backoff(
            max(settings.backoff_base, _MIN_RETRY_DELAY), max(settings.backoff_max, _MIN_RETRY_DELAY)
        )
        self._context = ControllerContext(
            host=host,
            clock=clock,
            backoffs=_backoffs(self._backoff),
            prepare_limit=ConcurrencyLimit(CONCURRENT_PREPARE_LIMIT, clock),
            on_status=self._report_status,
            on_loaded_changed=self._notify_controllers,
            on_idle=self._check_settled,
        )
        self._wakeup = Wakeup(clock)
        self._failure_streaks = FailureStreaks()
        self._controllers: dict[PackageKey, PackageController] = {}
        self._controller_tasks: dict[PackageKey, asyncio.Task[None]] = {}
        self._failures = 0
        self._is_stopped = False
        self._first_pass_done = asyncio.Event()
        self.source_error = ""
        """Why it cannot be told at present what is wanted; "" if it can."""

    # -- what others ask

    def status(self) -> list[PackageStatus]:
        """Return how things stand with every package that is wanted or was loaded from the source."""
        return [one.status for _, one in sorted(self._controllers.items()) if one.status is not None]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is worked on, and nothing is due now. What is due later, or hangs on others, is left out."""
        return self._is_stopped or (self._wakeup.is_waiting and all(one.is_idle for one in self._controllers.values()))

    async def wait_until_settled(self) -> None:
        """Return when everything that was wanted at the start has been tried, and what follows from that."""
        await self._first_pass_done.wait()

    def on_packages_changed(self) -> None:
        """Look at every package, because somebody has loaded or unloaded one."""
        for one in self._controllers.values():
            one.on_others_changed()
            one.wake()

    def is_desired(self, key: PackageKey) -> bool:
        """Return whether a package is to be there, in whatever version."""
        return key in self._controllers and self._controllers[key].is_desired

    def samples(self) -> Iterator[Sample]:
        """Yield what is counted; see PACKAGE_METRICS."""
        states = Counter(one.state for one in self.status())
        yield Sample("packages_waiting", states["waiting"])
        yield Sample("packages_failed", states["failed"])
        for name, count in self._context.counts.items():
            yield Sample(name, count)

    # -- the source

    async def run(self) -> None:
        """Make what is wanted and what is loaded the same, until cancelled; then everything stays as it is."""
        watching = self._tasks.start("packages: changes", self._watch_source())
        try:
            while True:
                await self._wakeup.wait(await self._read_desired())
        finally:
            self._is_stopped = True
            for task in (watching, *self._controller_tasks.values()):
                await cancel_and_wait(task)

    async def _watch_source(self) -> None:
        failures = 0
        while True:
            try:
                await self._source.wait_for_change()
                failures = 0
                self._failure_streaks.reset("changes")
            except Exception as error:  # whatever it is, what is wanted is asked for all the same, only less often
                failures += 1
                self._log_source_error("changes", error)
            self._wakeup.notify()
            await self._clock.sleep(self._backoff.delay(failures) if failures else 0)

    async def _read_desired(self) -> float:
        """Ask what is wanted; return when to ask again if nobody rings."""
        try:
            wanted = await self._source.desired_packages()
        except Exception as error:  # whatever is wrong with the source, what is loaded stays
            self._failures += 1
            self.source_error, _ = sanitize_error(error)
            self._log_source_error("wanted", error)
            return self._backoff.delay(self._failures)
        self._failures = 0
        self.source_error = ""
        if failures := self._failure_streaks.reset("wanted"):
            logger.warning(events.PACKAGE_SOURCE_RECOVERED, extra={"failures": failures})
        self._apply_desired(wanted)
        return FOREVER

    def _log_source_error(self, what: str, error: Exception) -> None:
        self._context.counts["package_source_errors_total"] += 1
        if (failures := self._failure_streaks.record_failure(what, type(error).__name__)) is not None:
            is_bug = not isinstance(error, TidemillError | OSError)
            facts = {"reason": sanitize_error(error)[0], "failures": failures}
            logger.warning(events.PACKAGE_SOURCE_FAILED, exc_info=error if is_bug else None, extra=facts)

    def _apply_desired(self, wanted: Mapping[PackageKey, DesiredPackage]) -> None:
        for key in sorted(wanted.keys() | self._controllers.keys()):
            caretaker = self._controllers.get(key) or self._add_controller(key)
            caretaker.set_desired(wanted.get(key))
        self._check_settled()

    # -- the caretakers

    def _add_controller(self, key: PackageKey) -> PackageController:
        caretaker = self._controllers[key] = PackageController(key, self._context)
        self._controller_tasks[key] = self._tasks.start(
            f"package: {key.tenant}/{key.name}", self._run_controller(caretaker)
        )
        return caretaker

    async def _run_controller(self, controller: PackageController) -> None:
        try:
            await controller.run()
        finally:
            del self._controllers[controller.key], self._controller_tasks[controller.key]
            self._check_settled()

    def _notify_controllers(self) -> None:
        for one in self._controllers.values():
            one.on_others_changed()

    def _report_status(self, status: PackageStatus) -> None:
        if self._on_status is not None:
            try:
                self._on_status(status)
            except Exception:  # whoever listens cannot keep a package from its place
                logger.exception("a listener failed")

    def _check_settled(self) -> None:
        if not any(one.is_busy for one in self._controllers.values()):
            self._first_pass_done.set()


def _backoffs(steady: Backoff) -> dict[RetryPace, Backoff]:
    slowing = Backoff(steady.initial_delay, max(steady.max_delay, _SLOW_BACKOFF.max_delay))
    return {RetryPace.STEADY: steady, RetryPace.SLOWING: slowing, RetryPace.SLOW: _SLOW_BACKOFF}
