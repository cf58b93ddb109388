"""Operations on the partitions of a keyed reactor that this node runs: other nodes ask for all of them at once."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from tidemill.engine.graphs.client.local_firings import LocalFirings
from tidemill.engine.graphs.client.merged_states import merge_reports
from tidemill.engine.graphs.client.operations import GraphOperations
from tidemill.engine.graphs.client.relayed_sources import RelayedSources
from tidemill.engine.graphs.client.values import FiringPage, HealthReport, HostStates
from tidemill.engine.graphs.firing.firing_log import LOGGED_FIRINGS_LIMIT
from tidemill.engine.graphs.keys.keyed_reactor import KeyedReactor
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.history import Courses
from tidemill.graphs.keys import PartitionId
from tidemill.graphs.outcomes import DeadLetter
from tidemill.graphs.state import Recovery
from tidemill.graphs.views import AccumulatorDetails, FiringView, ReactorCommand, ReplayResult
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.storage.graph_ports import PartKey, PartKind

_T = TypeVar("_T")


class HostOperations:
    """What can be done with this node's partitions of a keyed reactor, by its tenant and name."""

    def __init__(self, scheduler: GraphScheduler, operations: GraphOperations) -> None:
        self._scheduler = scheduler
        self._loaded = scheduler.loaded
        self._operations = operations
        self._sources = RelayedSources(scheduler)

    def _reactors(self, tenant: str, name: str) -> list[str]:
        """Return the names of the partitions that run here."""
        keyed = self._loaded.keyed.get((tenant, name))
        return [] if keyed is None else [one.reactor.name for one in self._loaded.partitions_of(keyed)]

    def _accumulators(self, tenant: str, name: str) -> list[str]:
        """Return the names of the partitions of an accumulator that run here."""
        keyed = self._loaded.keyed_accumulators.get((tenant, name))
        running = () if keyed is None else self._loaded.partitions_of(keyed)
        partitions = (one.reactor.definition.partition for one in running)
        return [str(PartitionId(name, one.number)) for one in partitions if one is not None]

    async def states(self, tenant: str, name: str) -> HostStates:
        """Return the states of the partitions, and of the sources that this node reads for all of them."""
        states = [await self._operations.reactor_state(tenant, one) for one in self._reactors(tenant, name)]
        return HostStates(partitions=states, sources=self._sources.states(tenant, name))

    async def health_report(self, tenant: str, name: str) -> HealthReport:
        """Return what is wrong with the partitions, and with the sources that this node reads for all of them."""
        reports = [await self._operations.health_report(tenant, one) for one in self._reactors(tenant, name)]
        return merge_reports([*reports, self._sources.report(tenant, name)])

    async def firings(self, tenant: str, name: str, limit: int = LOGGED_FIRINGS_LIMIT) -> FiringPage:
        """Return the newest firings of the partitions, newest first."""
        if (keyed := self._loaded.keyed.get((tenant, name))) is None:
            return FiringPage(firings=[], kept=0, has_more=False)
        kept = LocalFirings(self._scheduler, lambda: keyed).newest(LOGGED_FIRINGS_LIMIT * keyed.definition.partitions)
        shown = [FiringView.of(one) for one in kept[:limit]]
        return FiringPage(firings=shown, kept=len(kept), has_more=limit < len(kept))

    async def timeseries(self, tenant: str, name: str) -> list[list[int]]:
        """Return the firing counts of the last 60 minutes of each partition."""
        return [await self._operations.timeseries(tenant, one) for one in self._reactors(tenant, name)]

    async def courses(self, tenant: str, name: str, seconds: int) -> Courses:
        """Return the figures of the partitions over time."""
        return await self._operations.courses(tenant, name, seconds)

    async def recoveries(self, tenant: str, name: str) -> list[Recovery]:
        """Return the recoveries of the partitions, and of the sources that this node reads for all of them."""
        names = self._reactors(tenant, name)
        found = [found for one in names for found in await self._operations.recoveries(tenant, one)]
        return found + self._sources.recoveries(tenant, name)[::-1]  # newest first, as those

    async def command(self, tenant: str, name: str, command: ReactorCommand) -> None:
        """Give each partition a command. One that leaves meanwhile gets it from the store, at its next owner.

        A restart is also for the sources that this node reads for all partitions, if they have failed.
        """
        if command == "restart":
            self._sources.restart_failed(tenant, name)
        for one in self._reactors(tenant, name):
            try:
                await self._operations.command(tenant, one, command)
            except RequestError:
                if self._loaded.has_running(PartKey(tenant, "reactor", one)):
                    raise

    # -- accumulators

    async def accumulators(self, tenant: str, name: str) -> list[AccumulatorDetails]:
        """Return the states of the partitions of an accumulator, and that of its source, if this node reads it."""
        found = [await self._operations.accumulator(tenant, one) for one in self._accumulators(tenant, name)]
        keyed = self._loaded.keyed_accumulators.get((tenant, name))
        return found if keyed is None else [*found, *self._sources.details(tenant, keyed.name, name)]

    async def restart_accumulator(self, tenant: str, name: str) -> None:
        """Restart the partitions of an accumulator, and the reader of its source, if this node has it."""
        if (keyed := self._loaded.keyed_accumulators.get((tenant, name))) is not None:
            self._sources.restart(tenant, keyed.name, name)
        for one in self._accumulators(tenant, name):
            await self._operations.restart_accumulator(tenant, one)

    async def mark_source(self, tenant: str, name: str, *, is_lost: bool) -> None:
        """Mark the firings of the partitions as degraded while the source of an accumulator is lost."""
        if (keyed := self._loaded.keyed_accumulators.get((tenant, name))) is None:
            return
        for one in self._loaded.partitions_of(keyed):
            assert isinstance(one.reactor, KeyedReactor), "a partition has keys"
            one.reactor.mark_source(name, is_lost=is_lost)

    async def last_positions(self, tenant: str, name: str, client: str) -> list[int | None]:
        """Return the numbers of the newest pushes of a producer that were taken, one for each partition."""
        names = self._accumulators(tenant, name)
        return [await self._operations.last_position(tenant, one, client) for one in names]

    # -- dead letters

    async def dead_letters(self, kind: PartKind, tenant: str, name: str) -> list[DeadLetter]:
        """Return the dead letters of the partitions."""
        names = self._names(kind, tenant, name)
        return [found for one in names for found in await self._operations.dead_letters(kind, tenant, one)]

    async def dead_letter(self, kind: PartKind, tenant: str, name: str, dead_letter: str) -> DeadLetter | None:
        """Return one dead letter; None if no partition here has it."""
        found = await self._with_dead_letter(self._operations.dead_letter, kind, tenant, name, dead_letter)
        return found[0] if found else None

    async def replay(self, kind: PartKind, tenant: str, name: str, dead_letter: str) -> ReplayResult | None:
        """Process a dead letter again; None if no partition here has it."""
        found = await self._with_dead_letter(self._operations.replay, kind, tenant, name, dead_letter)
        return found[0] if found else None

    async def drop(self, kind: PartKind, tenant: str, name: str, dead_letter: str) -> bool:
        """Delete a dead letter; return whether a partition here had it."""
        return bool(await self._with_dead_letter(self._operations.drop, kind, tenant, name, dead_letter))

    async def _with_dead_letter(
        self,
        operation: Callable[[PartKind, str, str, str], Awaitable[_T]],
        kind: PartKind,
        tenant: str,
        name: str,
        dead_letter: str,
    ) -> list[_T]:
        """Return what an operation on a dead letter returns; nothing if no partition here has it."""
        for one in self._names(kind, tenant, name):
            try:
                return [await operation(kind, tenant, one, dead_letter)]
            except NotFoundError:
                continue
        return []

    def _names(self, kind: PartKind, tenant: str, name: str) -> Iterable[str]:
        return self._reactors(tenant, name) if kind == "reactor" else self._accumulators(tenant, name)
