"""Claiming without planning: a node that is not in office takes what the leader has scheduled and it can run.

It asks when it hears that something changed, when a place becomes free, and every tick. It also looks whether what it
runs is still wanted, and now and then which versions of workflows no run needs any more.
"""

import logging
from collections.abc import Callable, Collection, Sequence

from tidemill.engine.service import never_ending
from tidemill.engine.wakeups import Alarm
from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.orders import make_order, unmakeable, unreadable
from tidemill.engine.workflows.places import Places
from tidemill.engine.workflows.tidying import Tidying
from tidemill.kernel.errors import StoreError
from tidemill.storage.run_ports import Claim, Claimed
from tidemill.telemetry import events
from tidemill.workflows.draft import Place
from tidemill.workflows.records import AttemptKey, RunRow, TaskRow, key_of
from tidemill.workflows.spec import WorkflowSpec

logger = logging.getLogger(__name__)

TIDY_EVERY = 60.0  # seconds between looks at which versions are still needed


class Claimer:
    """Claims for this node while another one plans."""

    def __init__(
        self, environment: Environment, library: Library, crew: Crew, alarm: Alarm, is_leader: Callable[[], bool]
    ) -> None:
        self._store = environment.store
        self._library = library
        self._crew = crew
        self._alarm = alarm
        self._clock = environment.clock
        self._settings = environment.settings
        self._figures = environment.figures
        self._pools = environment.pools
        self._is_leader = is_leader
        self._places = Places(crew)
        self._tidying = Tidying(environment, library, crew)
        self._tidied_at = self._clock.monotonic()
        self.is_busy = False

    async def run(self) -> None:
        """Claim until cancelled, whenever this node is not in office."""
        await never_ending(self._claim_later, self._failed)

    async def _claim_later(self) -> None:
        await self._alarm.sleep(self._settings.tick_interval)
        if self._is_leader():
            return
        self.is_busy = True
        try:
            await self._stop_unwanted()
            await self._claim()
            await self._tidy()
        finally:
            self.is_busy = False

    def _failed(self, error: Exception) -> None:
        trace = None if isinstance(error, StoreError) else error
        self._figures.count("scheduler_phase_errors_total", phase="claim")
        logger.warning(events.PHASE_FAILED, exc_info=trace, extra={"phase": "claim", "error": str(error)})

    async def _stop_unwanted(self) -> None:
        if not self._crew.held:
            return
        held = set(self._crew.held)
        claimed = await self._store.runs.claimed([self._crew.owner.id])
        ours = {AttemptKey(*key, row.attempt) for key, row in claimed}
        await self._crew.stop(sorted(held - ours), "no longer wanted")

    async def _claim(self) -> None:
        executors, loaded = self._places.all_free(), self._library.loaded()
        if not executors or not loaded:
            return
        specs = {version: await self._library.spec(version) for version in loaded}
        claim = Claim(
            owner=self._crew.owner.id,
            executors=executors,
            loaded=loaded,
            pools=self._pools,
            lease=self._settings.heartbeat_timeout,
            at=self._clock.now(),
        )
        given = await self._store.runs.claim(claim)
        for run, row in given:  # all of them first: from now on each is ours to run, or to hand back
            self._crew.hold(run, row, specs[run.version_key])
        batches: dict[str, list[Claimed]] = {}
        for claimed in given:
            batches.setdefault(claimed.run.id, []).append(claimed)
        for batch in batches.values():
            run = batch[0].run
            await self._take_on(run, [claimed.task for claimed in batch], specs[run.version_key])

    async def _take_on(self, run: RunRow, rows: Sequence[TaskRow], spec: WorkflowSpec) -> None:
        """Let claimed task runs of one run be run here; what they take is read once for all of them."""
        try:
            known, outputs = await self._read(run.id, {source for row in rows for source in spec.givers[row.task]})
        except Exception as error:  # whatever it is, what is held and neither run nor reported would be kept for ever
            for row in rows:
                self._crew.ended(key_of(run.id, row), unreadable(error))
            return
        for row in rows:
            try:
                order = make_order(run, row, spec, known, outputs)
            except Exception as error:  # what cannot be put together cannot be run; the others go on
                self._crew.ended(key_of(run.id, row), unmakeable(error))
            else:
                self._crew.take_on(order)

    async def _read(self, run: str, sources: Collection[str]) -> tuple[dict[Place, TaskRow], dict[Place, bytes]]:
        """Return the task runs of a run, and what some of its tasks returned."""
        [record] = await self._store.runs.load([run])
        stored = await self._store.runs.outputs(run, sorted(sources)) if sources else []
        known = {(one.task, one.index): one for one in record.tasks}
        return known, {(one.key.task, one.key.element): one.value for one in stored}

    async def _tidy(self) -> None:
        now = self._clock.monotonic()
        if now - self._tidied_at < TIDY_EVERY:
            return
        self._tidied_at = now
        await self._tidying.tidy()
