"""The reconciler: makes the loaded packages match the desired ones, after any events in any order.

It works on keys, not on events. The source says what is desired, the host what is loaded, and one controller for each
package makes the two match. A notification only means that it is time to check: too many of them do no harm, and a lost
one is made up for by the next. The order between packages is found by trying: a package that waits for another one, or
that another one keeps from being removed, is checked again whenever a package was loaded or removed.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tidemill.engine.tasks import FOREVER, TaskScope, Wakeup, cancel_and_wait
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import TidemillError
from tidemill.kernel.settings import Settings
from tidemill.packages.loading.preparer import ConcurrencyLimit
from tidemill.packages.loading.reader import PackageOrigin
from tidemill.packages.reconcile.controller import (
    ControllerContext,
    ControllerObserver,
    PackageController,
)
from tidemill.packages.reconcile.decision import DesiredPackage, PackageSource, RetryPace
from tidemill.packages.reconcile.handover import PackagePlan
from tidemill.packages.reconcile.host import PackageHost
from tidemill.packages.sanitizing import sanitize_error
from tidemill.packages.status import PackageKey, PackageStatus, StatusListener
from tidemill.telemetry import events
from tidemill.telemetry.logs import FailureStreaks
from tidemill.telemetry.metrics import Sample

logger = logging.getLogger(__name__)

_MIN_RETRY_DELAY = 0.1  # seconds before a failed action is retried, even if the settings say less
_SLOW_BACKOFF = Backoff(30.0, 600.0)  # for packages that are wrong in themselves, as far as is known


class Reconciler(ControllerObserver):
    """Loads, reloads and removes the packages of one source on one node.

    Packages that it has not loaded itself are left alone. `on_status` receives every change of a package's status.
    """

    def __init__(
        self,
        source: PackageSource,
        host: PackageHost,
        origin: PackageOrigin,
        prepare_limit: ConcurrencyLimit,
        *,
        clock: Clock,
        tasks: TaskScope,
        settings: Settings,
        on_status: StatusListener | None = None,
    ) -> None:
        self.source = source
        self.origin = origin.name
        self._clock = clock
        self._tasks = tasks
        self._on_status = on_status
        self._backoff = Backoff(
            max(settings.backoff_base, _MIN_RETRY_DELAY), max(settings.backoff_max, _MIN_RETRY_DELAY)
        )
        self._context = ControllerContext(
            host=host,
            origin=origin,
            clock=clock,
            backoffs=_backoffs(self._backoff),
            prepare_limit=prepare_limit,
            observer=self,
        )
        self._wakeup = Wakeup(clock)
        self._failure_streaks = FailureStreaks()
        self._controllers: dict[PackageKey, PackageController] = {}
        self._controller_tasks: dict[PackageKey, asyncio.Task[None]] = {}
        self._failures = 0
        self._is_stopped = False
        self._first_pass_done = asyncio.Event()
        self.source_error = ""
        """Why the source cannot be read at present; "" if it can."""

    # -- for the package service

    def status(self) -> list[PackageStatus]:
        """Return the status of every package that is desired or was loaded from the source."""
        return [one.status for _, one in sorted(self._controllers.items()) if one.status is not None]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in progress and nothing is due now; later retries and waiting packages do not count."""
        return self._is_stopped or (self._wakeup.is_waiting and all(one.is_idle for one in self._controllers.values()))

    @property
    def is_settled(self) -> bool:
        """Whether every package that was desired at the start has been tried: it is loaded, failed or waits."""
        return self._first_pass_done.is_set()

    @property
    def busy_count(self) -> int:
        """The number of packages that are being worked on."""
        return sum(one.is_busy for one in self._controllers.values())

    async def wait_until_settled(self) -> None:
        """Return when every package that was desired at the start has been tried."""
        await self._first_pass_done.wait()

    def on_source_changed(self) -> None:
        """Read the source now: this process has changed it, and does not wait for a notification."""
        self._wakeup.notify()

    def on_packages_changed(self) -> None:
        """Check every package, because one was loaded or unloaded."""
        for controller in self._controllers.values():
            controller.on_others_changed()
            controller.wake()

    def is_desired(self, key: PackageKey) -> bool:
        """Return whether a package is desired, in any version."""
        return key in self._controllers and self._controllers[key].is_desired

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics; see PACKAGE_METRICS."""
        states = Counter(one.state for one in self.status())
        yield Sample("packages_waiting", states["waiting"])
        yield Sample("packages_failed", states["failed"])
        for name, count in self._context.counts.items():
            yield Sample(name, count)

    # -- the source

    async def run(self) -> None:
        """Make the loaded packages match the desired ones until cancelled; loaded packages then stay loaded."""
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
                await self.source.wait_for_change()
                if failures:
                    failures = 0
                    self._failure_streaks.reset("changes")
            except Exception as error:  # any error: the source is still read, only less often
                failures += 1
                self._log_source_error("changes", error)
            self._wakeup.notify()
            await self._clock.sleep(self._backoff.delay(failures) if failures else 0)

    async def _read_desired(self) -> float:
        """Read what is desired; return the seconds until the next read, unless a change comes before."""
        try:
            desired = await self.source.desired_packages()
        except Exception as error:  # any error of the source: loaded packages stay loaded
            self._failures += 1
            self.source_error, _ = sanitize_error(error)
            self._log_source_error("wanted", error)
            return self._backoff.delay(self._failures)
        if self._failures:
            self._failures = 0
            self.source_error = ""
            logger.warning(events.PACKAGE_SOURCE_RECOVERED, extra={"failures": self._failure_streaks.reset("wanted")})
        self._apply_desired(desired)
        return FOREVER

    def _log_source_error(self, operation: str, error: Exception) -> None:
        self._context.counts["package_source_errors_total"] += 1
        if (failures := self._failure_streaks.record_failure(operation, type(error).__name__)) is not None:
            is_bug = not isinstance(error, TidemillError | OSError)
            fields = {"reason": sanitize_error(error)[0], "failures": failures}
            logger.warning(events.PACKAGE_SOURCE_FAILED, exc_info=error if is_bug else None, extra=fields)

    def _apply_desired(self, desired: Mapping[PackageKey, DesiredPackage]) -> None:
        for key in sorted(desired.keys() | self._controllers.keys()):
            controller = self._controllers.get(key) or self._add_controller(key)
            controller.set_desired(desired.get(key))
        self.on_idle()

    # -- the controllers

    def _add_controller(self, key: PackageKey) -> PackageController:
        controller = self._controllers[key] = PackageController(key, self._context)
        self._controller_tasks[key] = self._tasks.start(
            f"package: {key.tenant}/{key.name}", self._run_controller(controller)
        )
        return controller

    async def _run_controller(self, controller: PackageController) -> None:
        try:
            await controller.run()
        finally:
            del self._controllers[controller.key], self._controller_tasks[controller.key]
            self.on_idle()

    def on_loaded_changed(self) -> None:
        """Let the other controllers check whether a loaded or removed package matters to them."""
        for controller in self._controllers.values():
            controller.on_others_changed()

    def on_plan_changed(self) -> None:
        """Let the other controllers check whether they may take over or give up names now."""
        self.on_loaded_changed()

    def on_failure(self) -> None:
        """Let the controllers that wait check whether it is for a package that failed."""
        for controller in self._controllers.values():
            controller.on_others_failed()

    def plans_of_others(self, key: PackageKey) -> Sequence[PackagePlan]:
        """Return the plans of the tenant's other packages."""
        return [one.plan for other, one in self._controllers.items() if other != key and other.tenant == key.tenant]

    def on_status(self, status: PackageStatus) -> None:
        """Pass a changed status on to the listener."""
        if self._on_status is not None:
            try:
                self._on_status(status)
            except Exception:  # a listener that fails must not keep a package from being loaded
                logger.exception("a listener failed")

    def on_idle(self) -> None:
        """Check whether the first pass is done."""
        if not any(one.is_busy for one in self._controllers.values()):
            self._first_pass_done.set()


def _backoffs(steady: Backoff) -> dict[RetryPace, Backoff]:
    slowing = Backoff(steady.initial_delay, max(steady.max_delay, _SLOW_BACKOFF.max_delay))
    return {RetryPace.STEADY: steady, RetryPace.SLOWING: slowing, RetryPace.SLOW: _SLOW_BACKOFF}
