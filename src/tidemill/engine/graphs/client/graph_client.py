"""The graph client: everything that the server, the CLI or a program does with graphs, reactors and accumulators.

A reactor of another tenant that its owner has shared is named `tenant/name`: it can be read, and not commanded.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from tidemill.access.principal import Caller
from tidemill.engine.graphs.client.dead_letter_client import DeadLetterClient
from tidemill.engine.graphs.client.describe_graph import describe_graph
from tidemill.engine.graphs.client.part_names import PartNames
from tidemill.engine.graphs.client.routing import OperationRouter
from tidemill.engine.graphs.client.values import FiringPage, HealthReport, KnownFiring, report_silence
from tidemill.engine.graphs.durability.journal import MAX_SHARED_COMMIT
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.history import Courses
from tidemill.engine.registry import Registry
from tidemill.graphs.graph import Graph
from tidemill.graphs.outcomes import Receipt
from tidemill.graphs.pushes import ProducerPosition, PushSummary
from tidemill.graphs.result import GraphResult
from tidemill.graphs.state import AccumulatorState, ReactorState, Recovery
from tidemill.graphs.views import (
    AccumulatorDetails,
    CommandResult,
    FiringView,
    GraphDetails,
    GraphResultView,
    GraphSummary,
    ReactorCommand,
)
from tidemill.kernel.errors import NotFoundError, OperationError, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.graph_ports import PartKey, PartKind

REPORT_TIMEOUT = 2.0
"""Seconds within which the owner of a reactor must report its health; afterwards the health is unknown."""

_SOME_TIME = datetime.max.replace(tzinfo=UTC)
_T = TypeVar("_T")


class GraphClient:
    """Works with the graphs, reactors and accumulators of a caller's tenant."""

    def __init__(self, router: OperationRouter, scheduler: GraphScheduler, registry: Registry) -> None:
        self._at = router.at
        self._loaded = scheduler.loaded
        self._registry = registry
        self._names = PartNames(router, self._loaded, registry)
        self.dead_letters = DeadLetterClient(router, self._names, self.push)

    # -- graphs

    async def list_graphs(self, caller: Caller) -> list[GraphSummary]:
        """Return the loaded graphs by name."""
        graphs = (self._graph(caller, name) for name in self._registry.graphs(caller.tenant))
        return [
            GraphSummary(name=one.name, reactor=one.reactor_name, nodes=[node.name for node in one.nodes])
            for one in graphs
        ]

    async def graph(self, caller: Caller, name: str) -> GraphDetails:
        """Return a loaded graph with its nodes, its edges and its generated source."""
        graph = self._graph(caller, name)
        if not isinstance(graph.reactor, str):
            return describe_graph(graph, graph.compiled())
        owner, _, local = graph.reactor.rpartition("/")
        return describe_graph(graph, graph.compile_for(self._registry.reactors.find(owner or caller.tenant, local)))

    async def call_graph(self, caller: Caller, name: str, inputs: Mapping[str, Any]) -> GraphResultView:
        """Call a graph without a reactor once; the error of a node is part of the result."""
        graph = self._graph(caller, name)
        if graph.reactor is not None:
            message = f"graph '{name}' is bound to reactor '{graph.reactor_name}', which calls it: push events instead"
            raise RequestError(message, code="graph_bound", status=409, graph=name)
        result: GraphResult | Awaitable[GraphResult] = graph(**inputs)
        return GraphResultView.of(result if isinstance(result, GraphResult) else await result)

    def _graph(self, caller: Caller, name: str) -> Graph:
        if (graph := self._registry.graphs.find(caller.tenant, name)) is not None:
            return graph
        known = self._registry.graphs(caller.tenant)
        raise NotFoundError("graph", name, f"graph '{name}' is not loaded{did_you_mean(name, known)}", known)

    # -- reactors

    async def list_reactors(self, caller: Caller) -> list[ReactorState]:
        """Return the state of every reactor by name, without large values of their caches."""
        names = await self._names.reactors(caller)
        parts = [PartKey(caller.tenant, "reactor", name) for name in names]
        return await _gather_loaded(self._at(one).listed_state(one.tenant, one.name) for one in parts)

    async def health_reports(self, caller: Caller) -> dict[str, HealthReport]:
        """Return what is wrong with each reactor and its accumulators, by reactor."""
        names = await self._names.reactors(caller)
        return dict(await _gather_loaded(self._health_report(caller, one) for one in names))

    async def _health_report(self, caller: Caller, name: str) -> tuple[str, HealthReport]:
        """Return the report of a reactor. That its node does not answer is worth a line, and no reason to fail."""
        operations = self._at(PartKey(caller.tenant, "reactor", name))
        try:
            async with asyncio.timeout(REPORT_TIMEOUT):  # real time: a page waits for it
                return name, await operations.health_report(caller.tenant, name)
        except TimeoutError:
            return name, report_silence(name, f"its node has not answered for {REPORT_TIMEOUT:.0f} s")
        except NotFoundError:
            raise
        except (OperationError, RequestError) as error:
            return name, report_silence(name, str(error))

    async def check_reactor(self, caller: Caller, name: str) -> None:
        """Raise NotFoundError if a reactor is not loaded."""
        part = self._names.readable_reactor(caller, name)
        await self._at(part).check_reactor(part.tenant, part.name)

    async def reactor_state(self, caller: Caller, name: str, key: Any = None) -> ReactorState:
        """Return the state of a reactor; with a key, that of one key."""
        part = self._names.readable_reactor(caller, name)
        return await self._at(part).reactor_state(part.tenant, part.name, key)

    async def watch_reactor(
        self, caller: Caller, name: str, every: float
    ) -> AsyncGenerator[tuple[ReactorState, FiringView | None], None]:
        """Yield the state of a reactor and its newest firing, now and whenever the state has changed."""
        shown: ReactorState | None = None
        firing: FiringView | None = None
        while True:
            part = self._names.readable_reactor(caller, name)
            known = None if firing is None else KnownFiring(firing.id, firing.attempt)
            observed = await self._at(part).observe(part.tenant, part.name, known)
            firing = firing if observed.is_known else observed.last_firing
            if (now := _without_clock(observed.state)) != shown:
                yield observed.state, firing
                shown = now
            await asyncio.sleep(every)  # real time: people watch in real time

    async def firings(
        self, caller: Caller, name: str, limit: int = 50, after: str | None = None, key: Any = None
    ) -> FiringPage:
        """Return firings of a reactor that are kept, newest first.

        `after` leaves those that are older than this firing, `key` those of one key.
        """
        part = self._names.readable_reactor(caller, name)
        return await self._at(part).firings(part.tenant, part.name, limit, after, key)

    async def timeseries(self, caller: Caller, name: str) -> list[int]:
        """Return the firing counts of the last 60 minutes, oldest first."""
        part = self._names.readable_reactor(caller, name)
        return await self._at(part).timeseries(part.tenant, part.name)

    async def courses(self, caller: Caller, name: str, seconds: int) -> Courses:
        """Return the figures of a reactor over time."""
        part = self._names.readable_reactor(caller, name)
        await self._at(part).check_reactor(part.tenant, part.name)
        return await self._at(part).courses(part.tenant, part.name, seconds)

    async def all_courses(self, caller: Caller, seconds: int) -> dict[str, Courses]:
        """Return the figures of every reactor over time, by reactor; without one whose node does not answer."""
        names = await self._names.reactors(caller)
        return dict(await _gather_loaded(self._known_courses(caller, name, seconds) for name in names))

    async def _known_courses(self, caller: Caller, name: str, seconds: int) -> tuple[str, Courses]:
        operations = self._at(PartKey(caller.tenant, "reactor", name))
        try:
            async with asyncio.timeout(REPORT_TIMEOUT):  # real time: a page waits for it
                return name, await operations.courses(caller.tenant, name, seconds)
        except NotFoundError:
            raise
        except (OperationError, RequestError, TimeoutError) as error:
            raise NotFoundError("reactor", name, str(error)) from error

    async def recoveries(self, caller: Caller, name: str) -> list[Recovery]:
        """Return the recoveries of a reactor and its accumulators, newest first."""
        part = self._names.own(caller, "reactor", name)
        return await self._at(part).recoveries(part.tenant, part.name)

    async def command(
        self,
        caller: Caller,
        name: str,
        command: ReactorCommand,
        inputs: Mapping[str, Any] | None = None,
        key: Any = None,
    ) -> CommandResult:
        """Give a reactor a command; `fire_with` takes inputs, and both ways to fire a keyed reactor take its key."""
        part = self._names.own(caller, "reactor", name)
        return await self._at(part).command(part.tenant, part.name, command, inputs, key)

    # -- accumulators

    async def list_accumulators(self, caller: Caller) -> list[AccumulatorState]:
        """Return the state of every accumulator by name."""
        names = await self._names.accumulators(caller)
        parts = [PartKey(caller.tenant, "accumulator", name) for name in names]
        return await _gather_loaded(self._at(one).accumulator_state(one.tenant, one.name) for one in parts)

    async def accumulator(self, caller: Caller, name: str) -> AccumulatorDetails:
        """Return the state of an accumulator, and what it takes."""
        part = self._names.own(caller, "accumulator", name)
        return await self._at(part).accumulator(part.tenant, part.name)

    async def check_accumulator(self, caller: Caller, name: str) -> None:
        """Raise NotFoundError if an accumulator is not loaded."""
        part = self._names.own(caller, "accumulator", name)
        await self._at(part).check_accumulator(part.tenant, part.name)

    async def restart_accumulator(self, caller: Caller, name: str) -> AccumulatorDetails:
        """Restart an accumulator that the supervisor gave up, or one that hangs."""
        part = self._names.own(caller, "accumulator", name)
        return await self._at(part).restart_accumulator(part.tenant, part.name)

    async def push(
        self,
        caller: Caller,
        name: str,
        event: Any,
        encoding: str = "json",
        patience: float | None = None,
        position: ProducerPosition | None = None,
    ) -> Receipt:
        """Push an event, a Python value or bytes, and return its receipt.

        With `patience` it waits for queue space no longer than this many seconds, and is rejected then. `position`
        numbers the push, so that a repetition is not applied again.
        """
        part = self._names.own(caller, "accumulator", name)
        was_here = self._loaded.runs(part)
        receipt = await self._at(part).push(part.tenant, part.name, event, encoding, patience, position)
        if receipt.outcome == "rejected" and was_here and not self._loaded.runs(part):  # to its new owner
            receipt = await self._at(part).push(part.tenant, part.name, event, encoding, patience, position)
        return receipt

    async def push_many(
        self,
        caller: Caller,
        name: str,
        events: Sequence[Any],
        encoding: str = "json",
        position: ProducerPosition | None = None,
        patience: float | None = None,
    ) -> PushSummary:
        """Push events in order, and return their receipts.

        `position` numbers the push, so that a repetition is not applied again.
        """
        part = self._names.own(caller, "accumulator", name)
        was_here = self._loaded.runs(part)
        summary = await self._at(part).push_many(part.tenant, part.name, events, encoding, position, patience)
        if summary.is_rejected and was_here and not self._loaded.runs(part):  # to its new owner
            summary = await self._at(part).push_many(part.tenant, part.name, events, encoding, position, patience)
        return summary

    async def batch_space(self, caller: Caller, name: str) -> int:
        """Return how many events are worth pushing together: those that share a commit, and need not wait for space."""
        part = self._names.own(caller, "accumulator", name)
        if not self._loaded.runs(part):
            return MAX_SHARED_COMMIT  # they share a request to another node, too
        return await self._at(part).batch_space(part.tenant, part.name)

    async def last_position(self, caller: Caller, name: str, client: str) -> int | None:
        """Return the number of the newest push of a producer that was taken; None if there is none."""
        part = self._names.own(caller, "accumulator", name)
        return await self._at(part).last_position(part.tenant, part.name, client)

    def is_here(self, caller: Caller, kind: PartKind, name: str) -> bool:
        """Return whether this node runs a reactor or an accumulator, so that no other node has to be asked."""
        return self._loaded.runs(self._names.local(caller, kind, name))


def _without_clock(state: ReactorState) -> ReactorState:
    """Return a state without the times that are computed with each reading: the counters tell the changes."""
    accumulators = {
        name: msgspec.structs.replace(one, last_event_at=None, stuck_since=one.stuck_since and _SOME_TIME)
        for name, one in state.accumulators.items()
    }
    return msgspec.structs.replace(state, accumulators=accumulators)


async def _gather_loaded(reads: Iterable[Awaitable[_T]]) -> list[_T]:
    """Return what reads of parts return, without the parts that were unloaded after they were listed."""

    async def find(read: Awaitable[_T]) -> list[_T]:
        try:
            return [await read]
        except NotFoundError:
            return []

    return [one for found in await asyncio.gather(*(find(read) for read in reads)) for one in found]
