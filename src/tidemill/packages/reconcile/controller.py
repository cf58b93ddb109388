"""Brings one package to where it is wanted and keeps it there.

A caretaker looks at what is wanted and at what there is, does one thing, and looks again, until nothing is left to do
now; then it rests until it is rung or its time has come. Since it has its own task, a package never waits for another,
and since it has only one, no package is worked on twice at once.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from tidemill.engine.wakeup import FOREVER, Wakeup
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import TidemillError
from tidemill.packages.format.archive import PackageContents
from tidemill.packages.loading.metadata import PackageMetadata
from tidemill.packages.loading.preparer import ConcurrencyLimit, PreparedPackage
from tidemill.packages.reconcile.decision import (
    Action,
    DesiredPackage,
    LastFailure,
    ObservedState,
    PackageKey,
    RetryPace,
    decide,
    retry_advice,
)
from tidemill.packages.sanitizing import fingerprint, printable, sanitize_error
from tidemill.packages.status import PackageStatus, State, StatusListener
from tidemill.telemetry import events
from tidemill.telemetry.failure_streaks import FailureStreaks


class InstalledPackage(msgspec.Struct, frozen=True):
    """A package that is loaded, whoever loaded it."""

    version: str
    digest: str


class PackageHost(Protocol):
    """A node, as far as its packages are concerned."""

    async def prepare(self, key: PackageKey, contents: PackageContents) -> PreparedPackage:
        """Make a package ready beside what runs, or raise and leave nothing behind. Several may be made at once."""

    def missing_dependencies(self, tenant: str, metadata: PackageMetadata) -> list[str]:
        """Return what other packages must bring before this can be installed, in words."""

    async def install(self, key: PackageKey, prepared: PreparedPackage) -> None:
        """Load a package, or swap it for the one that is loaded; if that fails, nothing has changed.

        What was prepared is only borrowed: whoever had it made discards it, also when it is loaded.
        """

    async def remove(self, key: PackageKey) -> None:
        """Unload a package; refused, with nothing changed, while others need it."""

    def installed(self) -> Mapping[PackageKey, InstalledPackage]:
        """Return everything that is loaded."""


logger = logging.getLogger(__name__)

_AFFECTED_BY_OTHERS = frozenset([Action.BACK_OFF, Action.WAIT, Action.LEAVE_TO_OWNER])


class ControllerContext(msgspec.Struct, kw_only=True):
    """What all caretakers share."""

    host: PackageHost
    clock: Clock
    backoffs: Mapping[RetryPace, Backoff]
    """How long to wait before the next try."""

    prepare_limit: ConcurrencyLimit
    """Where packages are prepared."""

    on_status: StatusListener
    """Called when the status of a package has changed."""

    on_loaded_changed: Callable[[], None]
    """Called when a package was installed or removed."""

    on_idle: Callable[[], None]
    """Called when a caretaker has nothing to do any more, for now or for good."""

    counts: Counter[str] = msgspec.field(default_factory=Counter)
    failure_streaks: FailureStreaks = msgspec.field(default_factory=FailureStreaks)


class _LoadedByUs(NamedTuple):
    """What this source has loaded: as the site shows it, and the digest of the wish that it fulfils."""

    installed: InstalledPackage
    digest: str


class _PreparedVersion(NamedTuple):
    """What was prepared, and the digest of the wish that it is for."""

    prepared: PreparedPackage
    digest: str


class PackageController:
    """Looks after one package."""

    def __init__(self, key: PackageKey, context: ControllerContext) -> None:
        self.key = key
        self.status: PackageStatus | None = None
        self.is_busy = True
        """Whether it works, or has heard of something that it has not looked at."""
        self._context = context
        self._wakeup = Wakeup(context.clock)
        self._desired: DesiredPackage | None = None
        self._loaded_by_us: _LoadedByUs | None = None
        self._prepared: _PreparedVersion | None = None
        self._last_failure: LastFailure | None = None
        self._retry_at: datetime | None = None
        self._attempted_digest: str | None = None
        """The digest that is being worked on."""
        self._prepare_timeout: asyncio.Timeout | None = None
        self._last_action = Action.NONE
        self._wait_count = 0
        self._have_others_changed = False
        self._reported_digest: str | None = None
        """The digest that the status is about."""

    @property
    def is_desired(self) -> bool:
        """Whether the package is to be there."""
        return self._desired is not None

    @property
    def is_idle(self) -> bool:
        """Whether it sleeps, and neither the time nor anybody is waking it."""
        return self._wakeup.is_waiting

    # -- what it is told

    def set_desired(self, desired: DesiredPackage | None) -> None:
        """Take the newest wish; if it is for something else, look again, and give up what is being prepared."""
        before, self._desired = self._desired, desired
        if _digest_of(before) != _digest_of(desired):
            if self._prepare_timeout is not None:
                self._prepare_timeout.reschedule(0.0)  # its time is over, and has been for long
                self._prepare_timeout = None
            self.wake()
        elif _title_of(before) != _title_of(desired):
            self.wake()  # it lies somewhere else now, and says so

    def wake(self) -> None:
        """Look again now; a try that failed keeps its time."""
        self.is_busy = True
        self._wakeup.notify()

    def on_others_changed(self) -> None:
        """Look again if what others do may matter, also to what is being done."""
        self._have_others_changed = True
        if self.is_busy or self._last_action in _AFFECTED_BY_OTHERS:
            self.wake()

    # -- what it does

    async def run(self) -> None:
        """Look after the package until it is neither wanted nor loaded."""
        try:
            while (pause := await self._reconcile()) is not None:
                if pause > 0:
                    self.is_busy = False
                    self._context.on_idle()
                    await self._wakeup.wait(min(pause, FOREVER))
                    self.is_busy = True
        finally:
            self._discard_prepared()

    async def _reconcile(self) -> float | None:
        """Do what is next; return for how long to rest after it, None if there is nothing left to look after."""
        self._attempted_digest = _digest_of(self._desired)
        self._last_action = Action.NONE
        try:
            view = self._observe()
            self._last_action = decide(view, self._context.clock.monotonic())
            return await self._execute(self._last_action, view)
        except Exception as error:  # whatever is wrong with one package concerns this one alone
            return self._record_failure(error)

    def _observe(self) -> ObservedState:
        self._retry_if_others_changed()
        wanted = _digest_of(self._desired)
        installed = self._context.host.installed().get(self.key)
        if self._loaded_by_us is not None and self._loaded_by_us.installed != installed:
            self._loaded_by_us = None  # somebody else has unloaded it, or loaded something in its place
        if self._prepared is not None and self._prepared.digest != wanted:
            self._discard_prepared()
        return ObservedState(
            desired=wanted,
            loaded=self._loaded_by_us and self._loaded_by_us.digest,
            is_loaded_elsewhere=installed is not None and self._loaded_by_us is None,
            prepared=self._prepared and self._prepared.digest,
            missing=self._missing_dependencies(),
            last_failure=self._last_failure,
        )

    def _retry_if_others_changed(self) -> None:
        """Let a try come at once that failed because of others, if these have changed."""
        if self._have_others_changed and self._last_failure is not None and self._last_failure.retries_on_others:
            self._last_failure = replace(self._last_failure, retry_at=self._context.clock.monotonic())
        self._have_others_changed = False

    def _missing_dependencies(self) -> tuple[str, ...]:
        if self._prepared is None:
            return ()
        return tuple(
            map(printable, self._context.host.missing_dependencies(self.key.tenant, self._prepared.prepared.metadata))
        )

    async def _execute(self, action: Action, view: ObservedState) -> float | None:
        match action:
            case Action.PREPARE:
                await self._prepare()
            case Action.INSTALL:
                await self._install()
            case Action.REMOVE:
                await self._remove()
            case Action.WAIT:
                return self._report_waiting(view.missing)
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
            wish = self._desired
            if wish is None or decide(self._observe(), self._context.clock.monotonic()) is not Action.PREPARE:
                return  # things have changed while others had the place
            self._attempted_digest = wish.digest
            try:
                async with asyncio.timeout(None) as limit:
                    self._prepare_timeout = limit
                    contents = await wish.read()
                    self._prepared = _PreparedVersion(await self._context.host.prepare(self.key, contents), wish.digest)
            except TimeoutError:
                if not limit.expired():
                    raise  # it is the work's own: else another version is wanted by now
            finally:
                self._prepare_timeout = None

    async def _install(self) -> None:
        ready = self._prepared
        assert ready is not None, "what is installed was prepared"
        before = self._loaded_by_us
        self._set_status("preparing")
        try:
            await self._context.host.install(self.key, ready.prepared)
        finally:
            is_ours = self._record_if_loaded(ready)
        self._clear_failure()
        if is_ours:  # else somebody has unloaded it at once
            self._report_change(
                "package_loads_total", events.PACKAGE_LOADED if before is None else events.PACKAGE_RELOADED
            )

    def _record_if_loaded(self, ready: _PreparedVersion) -> bool:
        """Recognise as our own what is loaded, also if that was said to fail; what is not is kept for the next try."""
        installed = self._context.host.installed().get(self.key)
        if installed is None or installed.digest != ready.prepared.digest:
            return False
        self._loaded_by_us = _LoadedByUs(installed, ready.digest)
        self._discard_prepared()
        return True

    async def _remove(self) -> None:
        self._set_status("unloading")
        await self._context.host.remove(self.key)
        self._report_change("package_removals_total", events.PACKAGE_REMOVED)
        self._loaded_by_us = None

    def _report_change(self, metric: str, event: str) -> None:
        """Take note that what is loaded has changed."""
        self._context.counts[metric] += 1
        logger.info(event, extra=self._log_fields(self._loaded_version))
        self._context.on_loaded_changed()

    # -- how it comes to rest

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
        # Whoever brings it says so: this is for news that got lost.
        return self._context.backoffs[RetryPace.STEADY].delay(self._wait_count)

    def _report_backoff(self) -> float:
        self._set_status("failed")
        assert self._last_failure is not None, "there is no back-off without a failure"
        return self._last_failure.retry_at - self._context.clock.monotonic()

    def _report_conflict(self) -> float:
        self._discard_prepared()
        self._clear_failure()
        reason = f"a package '{self.key.name}' is loaded already, from elsewhere; unload that, or rename one of them"
        if self._set_status("failed", reason=reason):
            logger.warning(events.PACKAGE_FAILED, extra=self._log_fields(self._desired_version) | {"reason": reason})
        return FOREVER

    def _report_unloaded(self) -> None:
        self._context.failure_streaks.reset(self.key)
        self._set_status("unloaded")

    def _clear_failure(self) -> None:
        """Forget what went wrong before; a version that only waits has not shown yet that it is over."""
        self._last_failure = None
        if self._last_action is not Action.WAIT:
            self._wait_count = 0
            self._context.failure_streaks.reset(self.key)

    def _record_failure(self, error: Exception) -> float:
        """Take note of a try that failed, unless something else is wanted by now."""
        if self._attempted_digest != _digest_of(self._desired):
            return 0.0
        before = self._last_failure if self._concerns_desired(self._last_failure) else None
        failures = 1 if before is None else before.failures + 1
        hope = retry_advice(error, self._last_action)
        delay = self._context.backoffs[hope.pace].delay(failures)
        reason, problems = sanitize_error(error)
        self._last_failure = LastFailure(
            digest=self._attempted_digest,
            reason=reason,
            problems=problems,
            failures=failures,
            retry_at=self._context.clock.monotonic() + delay,
            retries_on_others=hope.retries_on_others,
        )
        self._retry_at = self._context.clock.now() + timedelta(seconds=delay)
        self._last_action = Action.BACK_OFF
        self._log_failure(error, reason)
        return delay

    def _log_failure(self, error: Exception, reason: str) -> None:
        self._context.counts["package_failures_total"] += 1
        if (
            failures := self._context.failure_streaks.record_failure(
                self.key, f"{self._attempted_digest}: {fingerprint(reason)}"
            )
        ) is not None:
            is_bug = not isinstance(error, TidemillError | OSError)
            facts = self._log_fields(self._desired_version or self._loaded_version) | {
                "reason": reason,
                "failures": failures,
            }
            logger.warning(events.PACKAGE_FAILED, exc_info=error if is_bug else None, extra=facts)
        self._set_status("failed")

    def _discard_prepared(self) -> None:
        ready, self._prepared = self._prepared, None
        if ready is not None:
            ready.prepared.discard()

    # -- what it says

    def _concerns_desired(self, failure: LastFailure | None) -> bool:
        return failure is not None and failure.digest == _digest_of(self._desired)

    @property
    def _loaded_version(self) -> str:
        return self._loaded_by_us.installed.version if self._loaded_by_us is not None else ""

    @property
    def _installed_version(self) -> str:
        """What is loaded under the name, whoever loaded it."""
        installed = self._context.host.installed().get(self.key)
        return installed.version if installed is not None else ""

    @property
    def _desired_version(self) -> str | None:
        return self._desired.version if self._desired is not None else None

    def _log_fields(self, version: str | None) -> dict[str, str | int | None]:
        return {"tenant": self.key.tenant, "package": self.key.name, "version": version}

    def _set_status(self, state: State, *, reason: str = "", waiting_for: tuple[str, ...] = ()) -> bool:
        """Say how things stand now; return whether that is new."""
        trouble = self._last_failure if self._concerns_desired(self._last_failure) else None
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
            reason=trouble.reason if trouble is not None else reason,
            problems=trouble.problems if trouble is not None else (),
            waiting_for=waiting_for,
            failures=trouble.failures if trouble is not None else 0,
            since=before.since if before is not None and is_same else self._context.clock.now(),
            again_at=self._retry_at if trouble is not None and state == "failed" else None,
        )
        self.status = status
        if status != before:
            self._context.on_status(status)
        return status != before


def _digest_of(desired: DesiredPackage | None) -> str | None:
    return None if desired is None else desired.digest


def _title_of(desired: DesiredPackage | None) -> str:
    return "" if desired is None else desired.title
