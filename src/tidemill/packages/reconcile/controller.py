"""Brings one package to its desired state and keeps it there.

A controller compares the desired state with the actual one, performs one action, and compares again, until nothing is
left to do now. Then it sleeps until it is woken or a retry is due. Since every package has a controller with its own
task, no package waits for another one, and no two actions on one package overlap.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from tidemill.engine.tasks import FOREVER, Wakeup
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import TidemillError
from tidemill.packages.loading.preparer import ConcurrencyLimit, PreparedPackage
from tidemill.packages.loading.reader import PackageOrigin
from tidemill.packages.reconcile.decision import (
    Action,
    DesiredPackage,
    LastFailure,
    ObservedState,
    RetryPace,
    decide,
    retry_advice,
)
from tidemill.packages.reconcile.handover import Names, PackagePlan, awaited_owners, awaited_takers
from tidemill.packages.reconcile.host import PackageHost
from tidemill.packages.sanitizing import fingerprint, printable, sanitize_error
from tidemill.packages.states import State
from tidemill.packages.status import InstalledPackage, PackageKey, PackageStatus
from tidemill.telemetry import events
from tidemill.telemetry.logs import FailureStreaks

logger = logging.getLogger(__name__)

_AFFECTED_BY_OTHERS = frozenset([Action.BACK_OFF, Action.WAIT, Action.LEAVE_TO_OWNER])


HANDOVER_PATIENCE = 1.0
"""Seconds for which a package keeps names that it gives up, while others are prepared that may take them over."""


class ControllerObserver(Protocol):
    """Receives what the controllers of a source do."""

    def on_status(self, status: PackageStatus) -> None:
        """The status of a package has changed."""

    def on_loaded_changed(self) -> None:
        """A package was installed or removed."""

    def on_plan_changed(self) -> None:
        """It is known what a package will be: its version is prepared, or it is to be removed."""

    def on_failure(self) -> None:
        """An attempt failed: packages that wait for this one need not wait any longer."""

    def plans_of_others(self, key: PackageKey) -> Sequence[PackagePlan]:
        """Return the plans of the tenant's other packages of the source."""

    def on_idle(self) -> None:
        """A controller has nothing left to do, for now or at all."""


class ControllerContext(msgspec.Struct, kw_only=True):
    """What all controllers of a source share."""

    host: PackageHost
    origin: PackageOrigin
    clock: Clock
    backoffs: Mapping[RetryPace, Backoff]
    prepare_limit: ConcurrencyLimit
    observer: ControllerObserver
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    failure_streaks: FailureStreaks = msgspec.field(default_factory=FailureStreaks)


class _LoadedByUs(NamedTuple):
    """A version that this source loaded: as the host reports it, and its digest as the source reports it."""

    installed: InstalledPackage
    digest: str


class _PreparedVersion(NamedTuple):
    """A prepared package, and its digest as the source reports it."""

    prepared: PreparedPackage
    digest: str


class PackageController:
    """Keeps one package in its desired state."""

    def __init__(self, key: PackageKey, context: ControllerContext) -> None:
        self.key = key
        self.status: PackageStatus | None = None
        self.is_busy = True
        """Whether it works, or was woken and has not checked yet."""
        self._context = context
        self._wakeup = Wakeup(context.clock)
        self._desired: DesiredPackage | None = None
        self._loaded_by_us: _LoadedByUs | None = None
        self._prepared: _PreparedVersion | None = None
        self._last_failure: LastFailure | None = None
        self._has_failure_streak = False
        self._retry_at: datetime | None = None
        self._attempted_digest: str | None = None
        """The digest of the current attempt."""
        self._prepare_timeout: asyncio.Timeout | None = None
        self._last_action = Action.NONE
        self._wait_count = 0
        self._have_others_changed = False
        self._patience_ends: float | None = None
        """Until when it waits for packages that may take over names from it, on the monotonic clock."""
        self._reported_digest: str | None = None
        """The digest that the status is about."""

    @property
    def is_desired(self) -> bool:
        """Whether the package is desired, in any version."""
        return self._desired is not None

    @property
    def is_idle(self) -> bool:
        """Whether it sleeps, and no wakeup is due."""
        return self._wakeup.is_waiting

    # -- notifications

    def set_desired(self, desired: DesiredPackage | None) -> None:
        """Set the desired version; if it is another one, check again and cancel a preparation in progress."""
        before, self._desired = self._desired, desired
        if _digest_of(before) != _digest_of(desired):
            if self._prepare_timeout is not None:
                self._prepare_timeout.reschedule(0.0)  # long past: it expires immediately
                self._prepare_timeout = None
            self.wake()
            if desired is None:
                self._context.observer.on_plan_changed()
        elif _title_of(before) != _title_of(desired):
            self.wake()  # it has moved, and its status says where it is

    def wake(self) -> None:
        """Check again now; a failed attempt is still not retried before it is due."""
        self.is_busy = True
        self._wakeup.notify()

    def on_others_changed(self) -> None:
        """Check again if other packages may matter to the current state or action."""
        self._have_others_changed = True
        if self.is_busy or self._last_action in _AFFECTED_BY_OTHERS:
            self.wake()

    def on_others_failed(self) -> None:
        """Check again if this package waits: it may be for the one that failed."""
        if self._last_action is Action.WAIT:
            self.wake()

    @property
    def plan(self) -> PackagePlan:
        """The names that the package has and will have."""
        loaded = self._context.host.loaded_names(self.key) if self._loaded_by_us is not None else frozenset()
        return PackagePlan(key=self.key, loaded=loaded, arriving=self._arriving(loaded), is_ready=self._is_ready)

    def _arriving(self, loaded: Names) -> Names | None:
        if self._desired is None:
            return frozenset()
        if self._is_prepared and self._prepared is not None:
            return self._context.host.declared_names(self.key.tenant, self._prepared.prepared.metadata)
        is_loaded = self._loaded_by_us is not None and self._loaded_by_us.digest == self._desired.digest
        return loaded if is_loaded or self._concerns_desired(self._last_failure) else None

    @property
    def _is_prepared(self) -> bool:
        return self._prepared is not None and self._prepared.digest == _digest_of(self._desired)

    @property
    def _is_ready(self) -> bool:
        """Whether the next attempt to install is due, and nothing is missing."""
        failure = self._last_failure if self._concerns_desired(self._last_failure) else None
        is_due = failure is None or (failure.retries_on_others and self._have_others_changed)
        return self._is_prepared and is_due and not self._missing_dependencies()

    # -- the control loop

    async def run(self) -> None:
        """Reconcile the package until it is neither desired nor loaded."""
        try:
            while (pause := await self._reconcile()) is not None:
                if pause > 0:
                    self.is_busy = False
                    self._context.observer.on_idle()
                    await self._wakeup.wait(min(pause, FOREVER))
                    self.is_busy = True
        finally:
            self._discard_prepared()

    async def _reconcile(self) -> float | None:
        """Perform the next action; return the seconds to sleep after it, None if the package is gone."""
        self._attempted_digest = _digest_of(self._desired)
        self._last_action = Action.NONE
        try:
            observed = self._observe()
            self._last_action = decide(observed, self._context.clock.monotonic())
            return await self._execute(self._last_action, observed)
        except Exception as error:  # any error of one package concerns this package alone
            return self._record_failure(error)

    def _observe(self) -> ObservedState:
        self._retry_if_others_changed()
        desired = _digest_of(self._desired)
        installed = self._context.host.installed(self.key)
        if self._loaded_by_us is not None and self._loaded_by_us.installed != installed:
            self._loaded_by_us = None  # it was unloaded, or replaced from elsewhere
        if self._prepared is not None and self._prepared.digest != desired:
            self._discard_prepared()
        return ObservedState(
            desired=desired,
            loaded=self._loaded_by_us and self._loaded_by_us.digest,
            is_loaded_elsewhere=installed is not None and self._loaded_by_us is None,
            prepared=self._prepared and self._prepared.digest,
            missing=(*self._missing_dependencies(), *self._awaited_packages()),
            last_failure=self._last_failure,
        )

    def _retry_if_others_changed(self) -> None:
        """Make a retry due now if the failure was caused by other packages, and these have changed."""
        if self._have_others_changed and self._last_failure is not None and self._last_failure.retries_on_others:
            self._last_failure = replace(self._last_failure, retry_at=self._context.clock.monotonic())
        self._have_others_changed = False

    def _missing_dependencies(self) -> tuple[str, ...]:
        if self._prepared is None:
            return ()
        metadata = self._prepared.prepared.metadata
        return tuple(map(printable, self._context.host.missing_dependencies(self.key, metadata)))

    def _awaited_packages(self) -> Iterator[str]:
        """Yield the packages that have to give up or to take over names before this one changes."""
        if self._desired is not None and not self._is_prepared:
            return
        others = self._context.observer.plans_of_others(self.key)
        if not others:
            return
        own = self.plan
        yield from awaited_owners(own, others)
        takers = list(awaited_takers(own, others))
        now = self._context.clock.monotonic()
        if not takers:
            self._patience_ends = None
        elif self._patience_ends is None:
            self._patience_ends = now + HANDOVER_PATIENCE
        if self._patience_ends is not None and now < self._patience_ends:
            yield from takers

    async def _execute(self, action: Action, observed: ObservedState) -> float | None:
        match action:
            case Action.PREPARE:
                await self._prepare()
            case Action.INSTALL:
                await self._install()
            case Action.REMOVE:
                await self._remove()
            case Action.WAIT:
                return self._report_waiting(observed.missing)
            case Action.BACK_OFF:
                return self._report_backoff()
            case Action.LEAVE_TO_OWNER:
                return self._report_conflict()
            case Action.NONE:
                return self._report_loaded()
            case Action.FORGET:
                self._report_unloaded()
                return None
        return 0.0

    async def _prepare(self) -> None:
        self._set_status("preparing")
        async with self._context.prepare_limit.slot():
            desired = self._desired
            if desired is None or decide(self._observe(), self._context.clock.monotonic()) is not Action.PREPARE:
                return  # the state has changed while this waited for a slot
            self._attempted_digest = desired.digest
            try:
                async with asyncio.timeout(None) as limit:
                    self._prepare_timeout = limit
                    self._prepared = await self._prepare_version(desired)
                self._context.observer.on_plan_changed()
            except TimeoutError:
                if not limit.expired():
                    raise  # the preparation's own error; else another version is desired by now
            finally:
                self._prepare_timeout = None

    async def _prepare_version(self, desired: DesiredPackage) -> _PreparedVersion:
        contents = await desired.read()
        prepared = await self._context.host.prepare(contents, self.key.tenant, self._context.origin)
        return _PreparedVersion(prepared, desired.digest)

    async def _install(self) -> None:
        ready = self._prepared
        assert ready is not None, "an installed version was prepared"
        before = self._loaded_by_us
        self._set_status("preparing")
        try:
            others = self._context.observer.plans_of_others(self.key)
            leaving = {one.key: one.leaving for one in others if one.leaving}
            await self._context.host.install(ready.prepared, self.key.tenant, self._context.origin, leaving)
        finally:
            is_ours = self._record_if_loaded(ready)
        self._clear_failure()
        if is_ours:  # else it was unloaded again immediately
            event = events.PACKAGE_LOADED if before is None else events.PACKAGE_RELOADED
            self._report_change("package_loads_total", event)

    def _record_if_loaded(self, ready: _PreparedVersion) -> bool:
        """Record the version if it is loaded, even if the install raised; else keep it for the next attempt."""
        installed = self._context.host.installed(self.key)
        if installed is None or installed.digest != ready.prepared.digest:
            return False
        self._loaded_by_us = _LoadedByUs(installed, ready.digest)
        self._discard_prepared()
        return True

    async def _remove(self) -> None:
        self._set_status("unloading")
        await self._context.host.unload(self.key.name, self.key.tenant)
        self._report_change("package_removals_total", events.PACKAGE_REMOVED)
        self._loaded_by_us = None

    def _report_change(self, metric: str, event: str) -> None:
        """Count, log and announce that the package was loaded or removed."""
        self._context.counts[metric] += 1
        logger.info(event, extra=self._log_fields(self._loaded_version))
        self._context.observer.on_loaded_changed()

    # -- results that end in sleep

    def _report_loaded(self) -> float:
        self._clear_failure()
        self._set_status("loaded")
        return FOREVER

    def _report_waiting(self, missing: tuple[str, ...]) -> float:
        self._clear_failure()
        if self._set_status("waiting", waiting_for=missing):
            logger.info(
                events.PACKAGE_WAITING_FOR_DEPENDENCIES,
                extra=self._log_fields(self._desired_version) | {"reason": ", ".join(missing)},
            )
        self._wait_count += 1
        # The package that provides it wakes this one: the delay covers a lost notification.
        delay = self._context.backoffs[RetryPace.STEADY].delay(self._wait_count)
        patience = inf if self._patience_ends is None else self._patience_ends - self._context.clock.monotonic()
        return min(delay, patience) if patience > 0 else delay

    def _report_backoff(self) -> float:
        self._set_status("failed")
        assert self._last_failure is not None, "a back-off follows a failure"
        return self._last_failure.retry_at - self._context.clock.monotonic()

    def _report_conflict(self) -> float:
        self._discard_prepared()
        self._clear_failure()
        reason = f"a package '{self.key.name}' is loaded already, from elsewhere; unload that, or rename one of them"
        if self._set_status("failed", reason=reason):
            logger.warning(events.PACKAGE_FAILED, extra=self._log_fields(self._desired_version) | {"reason": reason})
        return FOREVER

    def _report_unloaded(self) -> None:
        self._end_failure_streak()
        self._set_status("unloaded")

    def _clear_failure(self) -> None:
        """Clear the last failure; the streak continues while a version only waits, since it may still fail."""
        self._last_failure = None
        if self._last_action is not Action.WAIT:
            self._wait_count = 0
            self._end_failure_streak()

    def _end_failure_streak(self) -> None:
        if self._has_failure_streak:
            self._has_failure_streak = False
            self._context.failure_streaks.reset(self.key)

    def _record_failure(self, error: Exception) -> float:
        """Record a failed attempt, unless another version is desired by now."""
        if self._attempted_digest != _digest_of(self._desired):
            return 0.0
        before = self._last_failure if self._concerns_desired(self._last_failure) else None
        failures = 1 if before is None else before.failures + 1
        advice = retry_advice(error, self._last_action)
        delay = self._context.backoffs[advice.pace].delay(failures)
        reason, problems = sanitize_error(error)
        self._last_failure = LastFailure(
            digest=self._attempted_digest,
            reason=reason,
            problems=problems,
            failures=failures,
            retry_at=self._context.clock.monotonic() + delay,
            retries_on_others=advice.retries_on_others,
        )
        self._retry_at = self._context.clock.now() + timedelta(seconds=delay)
        self._last_action = Action.BACK_OFF
        self._log_failure(error, reason)
        self._context.observer.on_failure()
        return delay

    def _log_failure(self, error: Exception, reason: str) -> None:
        self._context.counts["package_failures_total"] += 1
        self._has_failure_streak = True
        cause = f"{self._attempted_digest}: {fingerprint(reason)}"
        if (failures := self._context.failure_streaks.record_failure(self.key, cause)) is not None:
            is_bug = not isinstance(error, TidemillError | OSError)
            fields = self._log_fields(self._desired_version or self._loaded_version)
            fields |= {"reason": reason, "failures": failures}
            logger.warning(events.PACKAGE_FAILED, exc_info=error if is_bug else None, extra=fields)
        self._set_status("failed")

    def _discard_prepared(self) -> None:
        ready, self._prepared = self._prepared, None
        if ready is not None:
            ready.prepared.discard()

    # -- status

    def _concerns_desired(self, failure: LastFailure | None) -> bool:
        return failure is not None and failure.digest == _digest_of(self._desired)

    @property
    def _loaded_version(self) -> str:
        return self._loaded_by_us.installed.version if self._loaded_by_us is not None else ""

    @property
    def _installed_version(self) -> str:
        """The loaded version, from any origin."""
        installed = self._context.host.installed(self.key)
        return installed.version if installed is not None else ""

    @property
    def _desired_version(self) -> str | None:
        return self._desired.version if self._desired is not None else None

    def _log_fields(self, version: str | None) -> dict[str, str | int | None]:
        return {"tenant": self.key.tenant, "package": self.key.name, "version": version}

    def _set_status(self, state: State, *, reason: str = "", waiting_for: tuple[str, ...] = ()) -> bool:
        """Set and announce the status; return whether it has changed."""
        failure = self._last_failure if self._concerns_desired(self._last_failure) else None
        before = self.status
        is_same = before is not None and before.state == state and self._reported_digest == _digest_of(self._desired)
        self._reported_digest = _digest_of(self._desired)
        status = PackageStatus(
            tenant=self.key.tenant,
            name=self.key.name,
            title=_title_of(self._desired),
            version=self._installed_version,
            wanted=self._desired_version,
            state=state,
            reason=failure.reason if failure is not None else reason,
            problems=failure.problems if failure is not None else (),
            waiting_for=waiting_for,
            failures=failure.failures if failure is not None else 0,
            since=before.since if before is not None and is_same else self._context.clock.now(),
            again_at=self._retry_at if failure is not None and state == "failed" else None,
        )
        self.status = status
        if status != before:
            self._context.observer.on_status(status)
        return status != before


def _digest_of(desired: DesiredPackage | None) -> str | None:
    return None if desired is None else desired.digest


def _title_of(desired: DesiredPackage | None) -> str:
    return "" if desired is None else desired.title
