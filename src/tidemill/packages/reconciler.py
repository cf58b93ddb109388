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

from tidemill.engine.service import Tasks, stop
from tidemill.engine.wakeups import FOR_GOOD, Alarm
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import TidemillError
from tidemill.kernel.settings import Settings
from tidemill.packages.bench import Bench
from tidemill.packages.caretaker import Caretaker, Surroundings
from tidemill.packages.decision import Pace
from tidemill.packages.ports import Site
from tidemill.packages.status import PackageStatus, StatusListener
from tidemill.packages.wanted import PackageKey, Source, Wanted
from tidemill.packages.words import harmless_error
from tidemill.telemetry import events
from tidemill.telemetry.metrics import Sample
from tidemill.telemetry.streaks import Streaks

logger = logging.getLogger(__name__)

PLACES = 4  # packages that are prepared at once: each takes a process
_LEAST = 0.1  # seconds before a failed step is taken again, however short the settings say
_SLOW = Backoff(30.0, 600.0)  # between tries of what is wrong in itself, as far as can be told


class Reconciler:
    """Loads, reloads and removes the packages of one source on one node.

    What it has not loaded itself it leaves alone. `told` hears of every change of a package's status.
    """

    def __init__(
        self,
        source: Source,
        site: Site,
        clock: Clock,
        tasks: Tasks,
        settings: Settings,
        *,
        told: StatusListener | None = None,
    ) -> None:
        self._source = source
        self._clock = clock
        self._tasks = tasks
        self._told = told
        self._backoff = Backoff(max(settings.backoff_base, _LEAST), max(settings.backoff_max, _LEAST))
        self._around = Surroundings(
            site=site,
            clock=clock,
            paces={
                Pace.STEADY: self._backoff,
                Pace.FADING: Backoff(self._backoff.first, max(self._backoff.ceiling, _SLOW.ceiling)),
                Pace.SLOW: _SLOW,
            },
            bench=Bench(PLACES, clock),
            told=self._tell,
            changed=self._spread_the_news,
            rested=self._see_whether_settled,
        )
        self._alarm = Alarm(clock)
        self._streaks = Streaks()
        self._caretakers: dict[PackageKey, Caretaker] = {}
        self._at_work: dict[PackageKey, asyncio.Task[None]] = {}
        self._failures = 0
        self._is_over = False
        self._settled = asyncio.Event()
        self.trouble = ""
        """Why it cannot be told at present what is wanted; "" if it can."""

    # -- what others ask

    def status(self) -> list[PackageStatus]:
        """Return how things stand with every package that is wanted or was loaded from the source."""
        return [one.status for _, one in sorted(self._caretakers.items()) if one.status is not None]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is worked on, and nothing is due now. What is due later, or hangs on others, is left out."""
        return self._is_over or (self._alarm.is_asleep and all(one.is_resting for one in self._caretakers.values()))

    async def settled(self) -> None:
        """Return when everything that was wanted at the start has been tried, and what follows from that."""
        await self._settled.wait()

    def changed(self) -> None:
        """Look at every package, because somebody has loaded or unloaded one."""
        for one in self._caretakers.values():
            one.hear_of_others()
            one.ring()

    def wants(self, key: PackageKey) -> bool:
        """Return whether a package is to be there, in whatever version."""
        return key in self._caretakers and self._caretakers[key].is_wanted

    def samples(self) -> Iterator[Sample]:
        """Yield what is counted; see PACKAGE_METRICS."""
        states = Counter(one.state for one in self.status())
        yield Sample("packages_waiting", states["waiting"])
        yield Sample("packages_failed", states["failed"])
        for name, count in self._around.counts.items():
            yield Sample(name, count)

    # -- the source

    async def run(self) -> None:
        """Make what is wanted and what is loaded the same, until cancelled; then everything stays as it is."""
        watching = self._tasks.start("packages: changes", self._watch())
        try:
            while True:
                await self._alarm.sleep(await self._read())
        finally:
            self._is_over = True
            for task in (watching, *self._at_work.values()):
                await stop(task)

    async def _watch(self) -> None:
        failures = 0
        while True:
            try:
                await self._source.changed()
                failures = 0
                self._streaks.end("changes")
            except Exception as error:  # whatever it is, what is wanted is asked for all the same, only less often
                failures += 1
                self._log_trouble("changes", error)
            self._alarm.ring()
            await self._clock.sleep(self._backoff.delay(failures) if failures else 0)

    async def _read(self) -> float:
        """Ask what is wanted; return when to ask again if nobody rings."""
        try:
            wanted = await self._source.wanted()
        except Exception as error:  # whatever is wrong with the source, what is loaded stays
            self._failures += 1
            self.trouble, _ = harmless_error(error)
            self._log_trouble("wanted", error)
            return self._backoff.delay(self._failures)
        self._failures = 0
        self.trouble = ""
        if failures := self._streaks.end("wanted"):
            logger.warning(events.PACKAGE_SOURCE_RECOVERED, extra={"failures": failures})
        self._accept(wanted)
        return FOR_GOOD

    def _log_trouble(self, what: str, error: Exception) -> None:
        self._around.counts["package_source_errors_total"] += 1
        if (failures := self._streaks.fail(what, type(error).__name__)) is not None:
            is_bug = not isinstance(error, TidemillError | OSError)
            facts = {"reason": harmless_error(error)[0], "failures": failures}
            logger.warning(events.PACKAGE_SOURCE_FAILED, exc_info=error if is_bug else None, extra=facts)

    def _accept(self, wanted: Mapping[PackageKey, Wanted]) -> None:
        for key in sorted(wanted.keys() | self._caretakers.keys()):
            caretaker = self._caretakers.get(key) or self._employ(key)
            caretaker.want(wanted.get(key))
        self._see_whether_settled()

    # -- the caretakers

    def _employ(self, key: PackageKey) -> Caretaker:
        caretaker = self._caretakers[key] = Caretaker(key, self._around)
        self._at_work[key] = self._tasks.start(f"package: {key.tenant}/{key.name}", self._care(caretaker))
        return caretaker

    async def _care(self, caretaker: Caretaker) -> None:
        try:
            await caretaker.run()
        finally:
            del self._caretakers[caretaker.key], self._at_work[caretaker.key]
            self._see_whether_settled()

    def _spread_the_news(self) -> None:
        for one in self._caretakers.values():
            one.hear_of_others()

    def _tell(self, status: PackageStatus) -> None:
        if self._told is not None:
            try:
                self._told(status)
            except Exception:  # whoever listens cannot keep a package from its place
                logger.exception("a listener failed")

    def _see_whether_settled(self) -> None:
        if not any(one.is_busy for one in self._caretakers.values()):
            self._settled.set()
