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
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidemill.engine.wakeups import FOR_GOOD, Alarm
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import TidemillError
from tidemill.packages.bench import Bench
from tidemill.packages.decision import Decision, Pace, Trouble, View, decide, hope_after
from tidemill.packages.ports import Installed, Site
from tidemill.packages.preparing import Prepared
from tidemill.packages.status import PackageStatus, State, StatusListener
from tidemill.packages.wanted import PackageKey, Wanted
from tidemill.packages.words import gist, harmless_error, visible
from tidemill.telemetry import events
from tidemill.telemetry.streaks import Streaks

logger = logging.getLogger(__name__)

_HEEDING = frozenset([Decision.BACK_OFF, Decision.WAIT, Decision.YIELD])


class Surroundings(msgspec.Struct, kw_only=True):
    """What all caretakers share."""

    site: Site
    clock: Clock
    paces: Mapping[Pace, Backoff]
    """How long to wait before the next try."""

    bench: Bench
    """Where packages are prepared."""

    told: StatusListener
    """Called when the status of a package has changed."""

    changed: Callable[[], None]
    """Called when a package was installed or removed."""

    rested: Callable[[], None]
    """Called when a caretaker has nothing to do any more, for now or for good."""

    counts: Counter[str] = msgspec.field(default_factory=Counter)
    streaks: Streaks = msgspec.field(default_factory=Streaks)


class _Own(NamedTuple):
    """What this source has loaded: as the site shows it, and the digest of the wish that it fulfils."""

    installed: Installed
    digest: str


class _Ready(NamedTuple):
    """What was prepared, and the digest of the wish that it is for."""

    prepared: Prepared
    digest: str


class Caretaker:
    """Looks after one package."""

    def __init__(self, key: PackageKey, around: Surroundings) -> None:
        self.key = key
        self.status: PackageStatus | None = None
        self.is_busy = True
        """Whether it works, or has heard of something that it has not looked at."""
        self._around = around
        self._alarm = Alarm(around.clock)
        self._wish: Wanted | None = None
        self._own: _Own | None = None
        self._ready: _Ready | None = None
        self._trouble: Trouble | None = None
        self._again_at: datetime | None = None
        self._tried: str | None = None
        """The digest that is being worked on."""
        self._preparing: asyncio.Timeout | None = None
        self._last = Decision.REST
        self._waits = 0
        self._have_others_changed = False
        self._told: str | None = None
        """The digest that the status is about."""

    @property
    def is_wanted(self) -> bool:
        """Whether the package is to be there."""
        return self._wish is not None

    @property
    def is_resting(self) -> bool:
        """Whether it sleeps, and neither the time nor anybody is waking it."""
        return self._alarm.is_asleep

    # -- what it is told

    def want(self, wish: Wanted | None) -> None:
        """Take the newest wish; if it is for something else, look again, and give up what is being prepared."""
        before, self._wish = self._wish, wish
        if _digest(before) != _digest(wish):
            if self._preparing is not None:
                self._preparing.reschedule(0.0)  # its time is over, and has been for long
                self._preparing = None
            self.ring()
        elif _title(before) != _title(wish):
            self.ring()  # it lies somewhere else now, and says so

    def ring(self) -> None:
        """Look again now; a try that failed keeps its time."""
        self.is_busy = True
        self._alarm.ring()

    def hear_of_others(self) -> None:
        """Look again if what others do may matter, also to what is being done."""
        self._have_others_changed = True
        if self.is_busy or self._last in _HEEDING:
            self.ring()

    # -- what it does

    async def run(self) -> None:
        """Look after the package until it is neither wanted nor loaded."""
        try:
            while (pause := await self._look()) is not None:
                if pause > 0:
                    self.is_busy = False
                    self._around.rested()
                    await self._alarm.sleep(min(pause, FOR_GOOD))
                    self.is_busy = True
        finally:
            self._discard()

    async def _look(self) -> float | None:
        """Do what is next; return for how long to rest after it, None if there is nothing left to look after."""
        self._tried = _digest(self._wish)
        self._last = Decision.REST
        try:
            view = self._view()
            self._last = decide(view, self._around.clock.monotonic())
            return await self._carry_out(self._last, view)
        except Exception as error:  # whatever is wrong with one package concerns this one alone
            return self._fail(error)

    def _view(self) -> View:
        self._hear()
        wanted = _digest(self._wish)
        installed = self._around.site.installed().get(self.key)
        if self._own is not None and self._own.installed != installed:
            self._own = None  # somebody else has unloaded it, or loaded something in its place
        if self._ready is not None and self._ready.digest != wanted:
            self._discard()
        return View(
            wanted=wanted,
            loaded=self._own and self._own.digest,
            is_held=installed is not None and self._own is None,
            ready=self._ready and self._ready.digest,
            missing=self._missing(),
            trouble=self._trouble,
        )

    def _hear(self) -> None:
        """Let a try come at once that failed because of others, if these have changed."""
        if self._have_others_changed and self._trouble is not None and self._trouble.heeds_others:
            self._trouble = replace(self._trouble, again_at=self._around.clock.monotonic())
        self._have_others_changed = False

    def _missing(self) -> tuple[str, ...]:
        if self._ready is None:
            return ()
        return tuple(map(visible, self._around.site.missing(self.key.tenant, self._ready.prepared.metadata)))

    async def _carry_out(self, decision: Decision, view: View) -> float | None:
        match decision:
            case Decision.PREPARE:
                await self._prepare()
            case Decision.INSTALL:
                await self._install()
            case Decision.REMOVE:
                await self._remove()
            case Decision.WAIT:
                return self._wait(view.missing)
            case Decision.BACK_OFF:
                return self._back_off()
            case Decision.YIELD:
                return self._yield()
            case Decision.REST:
                return self._rest()
            case Decision.FORGET:
                self._forget()
                return None
        return 0.0

    async def _prepare(self) -> None:
        self._tell("preparing")
        async with self._around.bench.place():
            wish = self._wish
            if wish is None or decide(self._view(), self._around.clock.monotonic()) is not Decision.PREPARE:
                return  # things have changed while others had the place
            self._tried = wish.digest
            try:
                async with asyncio.timeout(None) as limit:
                    self._preparing = limit
                    contents = await wish.read()
                    self._ready = _Ready(await self._around.site.prepare(self.key, contents), wish.digest)
            except TimeoutError:
                if not limit.expired():
                    raise  # it is the work's own: else another version is wanted by now
            finally:
                self._preparing = None

    async def _install(self) -> None:
        ready = self._ready
        assert ready is not None, "what is installed was prepared"
        before = self._own
        self._tell("preparing")
        try:
            await self._around.site.install(self.key, ready.prepared)
        finally:
            is_ours = self._take_stock(ready)
        self._recover()
        if is_ours:  # else somebody has unloaded it at once
            self._note("package_loads_total", events.PACKAGE_LOADED if before is None else events.PACKAGE_RELOADED)

    def _take_stock(self, ready: _Ready) -> bool:
        """Recognise as our own what is loaded, also if that was said to fail; what is not is kept for the next try."""
        installed = self._around.site.installed().get(self.key)
        if installed is None or installed.digest != ready.prepared.digest:
            return False
        self._own = _Own(installed, ready.digest)
        self._discard()
        return True

    async def _remove(self) -> None:
        self._tell("unloading")
        await self._around.site.remove(self.key)
        self._note("package_removals_total", events.PACKAGE_REMOVED)
        self._own = None

    def _note(self, count: str, event: str) -> None:
        """Take note that what is loaded has changed."""
        self._around.counts[count] += 1
        logger.info(event, extra=self._facts(self._loaded))
        self._around.changed()

    # -- how it comes to rest

    def _rest(self) -> float:
        self._recover()
        self._tell("loaded")
        return FOR_GOOD

    def _wait(self, missing: tuple[str, ...]) -> float:
        self._recover()
        if self._tell("waiting", waiting_for=missing):
            logger.info(events.PACKAGE_WAITS, extra=self._facts(self._wanted) | {"reason": ", ".join(missing)})
        self._waits += 1
        # Whoever brings it says so: this is for news that got lost.
        return self._around.paces[Pace.STEADY].delay(self._waits)

    def _back_off(self) -> float:
        self._tell("failed")
        assert self._trouble is not None, "there is no back-off without a failure"
        return self._trouble.again_at - self._around.clock.monotonic()

    def _yield(self) -> float:
        self._discard()
        self._recover()
        reason = f"a package '{self.key.name}' is loaded already, from elsewhere; unload that, or rename one of them"
        if self._tell("failed", reason=reason):
            logger.warning(events.PACKAGE_FAILED, extra=self._facts(self._wanted) | {"reason": reason})
        return FOR_GOOD

    def _forget(self) -> None:
        self._around.streaks.end(self.key)
        self._tell("unloaded")

    def _recover(self) -> None:
        """Forget what went wrong before; a version that only waits has not shown yet that it is over."""
        self._trouble = None
        if self._last is not Decision.WAIT:
            self._waits = 0
            self._around.streaks.end(self.key)

    def _fail(self, error: Exception) -> float:
        """Take note of a try that failed, unless something else is wanted by now."""
        if self._tried != _digest(self._wish):
            return 0.0
        before = self._trouble if self._is_about_the_wish(self._trouble) else None
        failures = 1 if before is None else before.failures + 1
        hope = hope_after(error, self._last)
        delay = self._around.paces[hope.pace].delay(failures)
        reason, problems = harmless_error(error)
        self._trouble = Trouble(
            digest=self._tried,
            reason=reason,
            problems=problems,
            failures=failures,
            again_at=self._around.clock.monotonic() + delay,
            heeds_others=hope.others,
        )
        self._again_at = self._around.clock.now() + timedelta(seconds=delay)
        self._last = Decision.BACK_OFF
        self._tell_of_failure(error, reason)
        return delay

    def _tell_of_failure(self, error: Exception, reason: str) -> None:
        self._around.counts["package_failures_total"] += 1
        if (failures := self._around.streaks.fail(self.key, f"{self._tried}: {gist(reason)}")) is not None:
            is_bug = not isinstance(error, TidemillError | OSError)
            facts = self._facts(self._wanted or self._loaded) | {"reason": reason, "failures": failures}
            logger.warning(events.PACKAGE_FAILED, exc_info=error if is_bug else None, extra=facts)
        self._tell("failed")

    def _discard(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.prepared.discard()

    # -- what it says

    def _is_about_the_wish(self, trouble: Trouble | None) -> bool:
        return trouble is not None and trouble.digest == _digest(self._wish)

    @property
    def _loaded(self) -> str:
        return self._own.installed.version if self._own is not None else ""

    @property
    def _running(self) -> str:
        """What is loaded under the name, whoever loaded it."""
        installed = self._around.site.installed().get(self.key)
        return installed.version if installed is not None else ""

    @property
    def _wanted(self) -> str | None:
        return self._wish.version if self._wish is not None else None

    def _facts(self, version: str | None) -> dict[str, str | int | None]:
        return {"tenant": self.key.tenant, "package": self.key.name, "version": version}

    def _tell(self, state: State, *, reason: str = "", waiting_for: tuple[str, ...] = ()) -> bool:
        """Say how things stand now; return whether that is new."""
        trouble = self._trouble if self._is_about_the_wish(self._trouble) else None
        before = self.status
        is_same = before is not None and before.state == state and self._told == _digest(self._wish)
        self._told = _digest(self._wish)
        status = PackageStatus(
            tenant=self.key.tenant,
            name=self.key.name,
            title=_title(self._wish),
            version=self._running,
            wanted=self._wanted,
            state=state,
            reason=trouble.reason if trouble is not None else reason,
            problems=trouble.problems if trouble is not None else (),
            waiting_for=waiting_for,
            failures=trouble.failures if trouble is not None else 0,
            since=before.since if before is not None and is_same else self._around.clock.now(),
            again_at=self._again_at if trouble is not None and state == "failed" else None,
        )
        self.status = status
        if status != before:
            self._around.told(status)
        return status != before


def _digest(wish: Wanted | None) -> str | None:
    return None if wish is None else wish.digest


def _title(wish: Wanted | None) -> str:
    return "" if wish is None else wish.title
