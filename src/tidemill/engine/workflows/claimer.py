"""Claiming without planning: a node that is not in office takes what the leader has scheduled and it can run.

It asks when it hears that something changed, when a place becomes free, and every tick. It also looks whether what it
runs is still wanted.
"""

import logging
from collections.abc import Callable

from tidemill.engine.wakeups import Alarm
from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.orders import make_order, sources_of
from tidemill.engine.workflows.places import Places
from tidemill.kernel.errors import StoreError
from tidemill.storage.run_ports import Claim, Claimed, Loaded
from tidemill.telemetry import events
from tidemill.workflows.draft import key_of
from tidemill.workflows.endings import Failed, Returned
from tidemill.workflows.records import AttemptKey, RunRow, TaskError
from tidemill.workflows.spec import WorkflowSpec

logger = logging.getLogger(__name__)


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
        self._pools = environment.pools
        self._is_leader = is_leader
        self._places = Places(crew)
        self.is_busy = False

    async def run(self) -> None:
        """Claim until cancelled, whenever this node is not in office."""
        while True:
            await self._alarm.sleep(self._settings.tick_interval)
            if self._is_leader():
                continue
            self.is_busy = True
            try:
                await self._stop_unwanted()
                await self._claim()
            except StoreError as error:
                logger.warning(events.PHASE_FAILED, extra={"phase": "claim", "error": str(error)})
            finally:
                self.is_busy = False

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
            self._crew.hold(run, row, await self._spec(run))
        for claimed in given:
            await self._take_on(claimed)

    async def _spec(self, run: RunRow) -> WorkflowSpec:
        return await self._library.spec(Loaded(run.tenant, run.workflow, run.version))

    async def _take_on(self, claimed: Claimed) -> None:
        run, row = claimed
        try:
            spec = await self._spec(run)
            [record] = await self._store.runs.load([run.id])
            rows = {(one.task, one.index): one for one in record.tasks}
            stored = await self._store.runs.outputs(run.id, sources_of(spec, row.task))
            outputs = {(one.key.task, one.key.element): one.value for one in stored}
            order = make_order(run, row, spec, rows, outputs)
        except StoreError as error:
            self._crew.ended(key_of(run.id, row), Returned(f"its inputs could not be read: {error}"))
            return
        except Exception as error:  # what cannot be put together cannot be run; the others go on
            said = TaskError(type(error).__name__, f"its order could not be made: {error}")
            self._crew.ended(key_of(run.id, row), Failed(error=said, may_retry=False))
            return
        await self._crew.take_on(order)
