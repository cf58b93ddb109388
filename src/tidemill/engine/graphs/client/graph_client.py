"""The graph client: everything that the server, the CLI or a program does with graphs, reactors and accumulators.

A reactor of another tenant that its owner has shared is named `tenant/name`: it can be read, and not commanded.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from tidemill.access.principal import Caller
from tidemill.engine.graphs.client.describe_graph import describe_graph
from tidemill.engine.graphs.client.routing import OperationRouter
from tidemill.engine.graphs.client.values import FiringPage, HealthReport, KnownFiring, report_silence
from tidemill.engine.graphs.dead_letters import check_editable, find_by_end
from tidemill.engine.graphs.durability.journal import MAX_SHARED_COMMIT
from tidemill.engine.graphs.loaded_graphs import check_whole, partition_named_error
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.history import Courses
from tidemill.engine.registry import Registry
from tidemill.graphs.graph import Graph
from tidemill.graphs.keys import PartitionId
from tidemill.graphs.outcomes import DeadLetter, Receipt
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
    ReplayResult,
)
from tidemill.kernel.errors import NotFoundError, OperationError, RequestError, after_change
from tidemill.kernel.limits import is_storable
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.graph_ports import PartKey, PartKind

EDIT_PATIENCE = 5.0
"""Seconds that an edited event waits for queue space before it is rejected."""
REPORT_TIMEOUT = 2.0
"""Seconds within which the owner of a reactor must report its health; afterwards the health is unknown."""

_SOME_TIME = datetime.max.replace(tzinfo=UTC)
_T = TypeVar("_T")


class GraphClient:
    """Works with the graphs, reactors and accumulators of a caller's tenant."""

    def __init__(self, router: OperationRouter, scheduler: GraphScheduler, registry: Registry) -> None:
        self._router = router
        self._at = router.at
        self._loaded = scheduler.loaded
        self._registry = registry

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
        names = await self._reactor_names(caller)
        parts = [PartKey(caller.tenant, "reactor", name) for name in names]
        return await _gather_loaded(self._at(one).listed_state(one.tenant, one.name) for one in parts)

    async def health_reports(self, caller: Caller) -> dict[str, HealthReport]:
        """Return what is wrong with each reactor and its accumulators, by reactor."""
        names = await self._reactor_names(caller)
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

    async def _reactor_names(self, caller: Caller) -> list[str]:
        here = {name for tenant, name in self._loaded.running_keys()[0] if tenant == caller.tenant}
        return sorted(here | whole_parts(await self._router.owned_names(caller.tenant, "reactor")))

    async def check_reactor(self, caller: Caller, name: str) -> None:
        """Raise NotFoundError if a reactor is not loaded."""
        part = self._readable_reactor(caller, name)
        await self._at(part).check_reactor(part.tenant, part.name)

    async def reactor_state(self, caller: Caller, name: str, key: Any = None) -> ReactorState:
        """Return the state of a reactor; with a key, that of one key."""
        part = self._readable_reactor(caller, name)
        return await self._at(part).reactor_state(part.tenant, part.name, key)

    async def watch_reactor(
        self, caller: Caller, name: str, every: float
    ) -> AsyncGenerator[tuple[ReactorState, FiringView | None], None]:
        """Yield the state of a reactor and its newest firing, now and whenever the state has changed."""
        shown: ReactorState | None = None
        firing: FiringView | None = None
        while True:
            part = self._readable_reactor(caller, name)
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
        part = self._readable_reactor(caller, name)
        return await self._at(part).firings(part.tenant, part.name, limit, after, key)

    async def timeseries(self, caller: Caller, name: str) -> list[int]:
        """Return the firing counts of the last 60 minutes, oldest first."""
        part = self._readable_reactor(caller, name)
        return await self._at(part).timeseries(part.tenant, part.name)

    async def courses(self, caller: Caller, name: str, seconds: int) -> Courses:
        """Return the figures of a reactor over time."""
        part = self._readable_reactor(caller, name)
        await self._at(part).check_reactor(part.tenant, part.name)
        return await self._at(part).courses(part.tenant, part.name, seconds)

    async def all_courses(self, caller: Caller, seconds: int) -> dict[str, Courses]:
        """Return the figures of every reactor over time, by reactor; without one whose node does not answer."""
        names = await self._reactor_names(caller)
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
        part = self._own_part(caller, "reactor", name)
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
        part = self._own_part(caller, "reactor", name)
        return await self._at(part).command(part.tenant, part.name, command, inputs, key)

    # -- accumulators

    async def list_accumulators(self, caller: Caller) -> list[AccumulatorState]:
        """Return the state of every accumulator by name."""
        here = {name for tenant, name in self._loaded.running_keys()[1] if tenant == caller.tenant}
        names = here | whole_parts(await self._router.owned_names(caller.tenant, "accumulator"))
        parts = [PartKey(caller.tenant, "accumulator", name) for name in sorted(names)]
        return await _gather_loaded(self._at(one).accumulator_state(one.tenant, one.name) for one in parts)

    async def accumulator(self, caller: Caller, name: str) -> AccumulatorDetails:
        """Return the state of an accumulator, and what it takes."""
        part = self._own_part(caller, "accumulator", name)
        return await self._at(part).accumulator(part.tenant, part.name)

    async def check_accumulator(self, caller: Caller, name: str) -> None:
        """Raise NotFoundError if an accumulator is not loaded."""
        part = self._own_part(caller, "accumulator", name)
        await self._at(part).check_accumulator(part.tenant, part.name)

    async def restart_accumulator(self, caller: Caller, name: str) -> AccumulatorDetails:
        """Restart an accumulator that the supervisor gave up, or one that hangs."""
        part = self._own_part(caller, "accumulator", name)
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
        part = self._own_part(caller, "accumulator", name)
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
        part = self._own_part(caller, "accumulator", name)
        was_here = self._loaded.runs(part)
        summary = await self._at(part).push_many(part.tenant, part.name, events, encoding, position, patience)
        if summary.is_rejected and was_here and not self._loaded.runs(part):  # to its new owner
            summary = await self._at(part).push_many(part.tenant, part.name, events, encoding, position, patience)
        return summary

    async def batch_space(self, caller: Caller, name: str) -> int:
        """Return how many events are worth pushing together: those that share a commit, and need not wait for space."""
        part = self._own_part(caller, "accumulator", name)
        if not self._loaded.runs(part):
            return MAX_SHARED_COMMIT  # they share a request to another node, too
        return await self._at(part).batch_space(part.tenant, part.name)

    async def last_position(self, caller: Caller, name: str, client: str) -> int | None:
        """Return the number of the newest push of a producer that was taken; None if there is none."""
        part = self._own_part(caller, "accumulator", name)
        return await self._at(part).last_position(part.tenant, part.name, client)

    # -- dead letters

    async def dead_letters(self, caller: Caller, kind: PartKind, name: str) -> list[DeadLetter]:
        """Return the dead letters of an accumulator, or of a reactor with its accumulators, newest first.

        Large values are left out: `dead_letter` returns them.
        """
        part = self._own_part(caller, kind, name)
        return await self._at(part).dead_letters(kind, part.tenant, part.name)

    async def dead_letter(self, caller: Caller, kind: PartKind, name: str, dead_letter: str) -> DeadLetter:
        """Return one dead letter, with all its values."""
        part = self._own_part(caller, kind, name)
        return await self._at(part).dead_letter(kind, part.tenant, part.name, dead_letter)

    async def replay(
        self, caller: Caller, kind: PartKind, name: str, dead_letter: str, event: Any = None
    ) -> ReplayResult:
        """Process a dead letter again; or push another event instead, and drop it if that is accepted."""
        part = self._own_part(caller, kind, name)
        if event is None:
            return await self._at(part).replay(kind, part.tenant, part.name, dead_letter)
        letter = await self.dead_letter(caller, kind, name, dead_letter)
        is_event = letter.kind == "event"
        check_editable(letter, (await self.accumulator(caller, letter.source)).kind if is_event else "")
        receipt = await self.push(caller, letter.source, msgspec.json.encode(event), "json", EDIT_PATIENCE)
        if receipt.accepted:
            with after_change(f"the event was pushed in place of dead letter {dead_letter}"):
                await self.drop(caller, kind, name, dead_letter)
        return ReplayResult(receipt=receipt)

    async def all_dead_letters(self, caller: Caller) -> list[DeadLetter]:
        """Return the dead letters of all reactors and accumulators, newest first, without large values."""
        return [letter for _, letter in await self._all_dead_letters(caller)]

    async def _all_dead_letters(self, caller: Caller) -> list[tuple[str, DeadLetter]]:
        """Return all dead letters, each with a reactor that has it: an accumulator may have several reactors."""
        names = await self._reactor_names(caller)
        found = await asyncio.gather(*(self._loaded_dead_letters(caller, name) for name in names))
        letters = {one.id: (name, one) for name, some in zip(names, found, strict=True) for one in some}
        return [letters[one] for one in sorted(letters, reverse=True)]

    async def _loaded_dead_letters(self, caller: Caller, reactor: str) -> list[DeadLetter]:
        try:
            return await self.dead_letters(caller, "reactor", reactor)
        except NotFoundError:  # it was unloaded after it was listed
            return []

    async def whole_dead_letter(self, caller: Caller, end: str) -> DeadLetter:
        """Return the dead letter whose id ends so, with all its values."""
        return await self.dead_letter(caller, "reactor", *await self._find_by_end(caller, end))

    async def replay_any(self, caller: Caller, end: str, event: Any = None) -> ReplayResult:
        """Process the dead letter whose id ends so again; `event` as for `replay`."""
        return await self.replay(caller, "reactor", *await self._find_by_end(caller, end), event)

    async def drop_any(self, caller: Caller, end: str) -> None:
        """Delete the dead letter whose id ends so."""
        await self.drop(caller, "reactor", *await self._find_by_end(caller, end))

    async def _find_by_end(self, caller: Caller, end: str) -> tuple[str, str]:
        """Return a reactor, and the id of its dead letter that ends so."""
        reactors = {letter.id: (reactor, letter) for reactor, letter in await self._all_dead_letters(caller)}
        found = find_by_end((letter for _, letter in reactors.values()), end)
        return reactors[found.id][0], found.id

    async def drop(self, caller: Caller, kind: PartKind, name: str, dead_letter: str) -> None:
        """Delete a dead letter."""
        part = self._own_part(caller, kind, name)
        await self._at(part).drop(kind, part.tenant, part.name, dead_letter)

    # -- names

    def is_here(self, caller: Caller, kind: PartKind, name: str) -> bool:
        """Return whether this node runs a reactor or an accumulator, so that no other node has to be asked."""
        owner, local = _split(name, caller)
        return self._loaded.runs(PartKey(owner, kind, local))

    def _own_part(self, caller: Caller, kind: PartKind, name: str) -> PartKey:
        """Return a reactor or an accumulator of the caller's tenant."""
        owner, local = _split(name, caller)
        if owner == caller.tenant:
            return self._whole(PartKey(owner, kind, local))
        if kind == "reactor" and self._registry.is_shared(owner, local):
            message = f"reactor '{name}' is shared: you may read it and bind graphs to it, and only '{owner}' may more"
            raise RequestError(message, code="not_allowed", status=403, reactor=name)
        raise _not_found(kind, name)

    def _readable_reactor(self, caller: Caller, name: str) -> PartKey:
        """Return a reactor of the caller's tenant, or one that another tenant shares."""
        owner, local = _split(name, caller)
        if owner == caller.tenant or self._registry.is_shared(owner, local):
            return self._whole(PartKey(owner, "reactor", local))
        raise _not_found("reactor", name)

    def _whole(self, part: PartKey) -> PartKey:
        """Return a part that callers may name: a partition is not such a part, because keys belong to partitions."""
        if not is_storable(part.name):
            raise _not_found(part.kind, part.name)
        if part.kind == "reactor" and self._loaded.is_partition(part):
            raise partition_named_error(part)
        return check_whole(part)


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


def whole_parts(names: Iterable[str]) -> set[str]:
    """Return the names of reactors or accumulators, without those of partitions and of their hosts."""
    found = set(names)
    partitions = {name for name in found if (one := PartitionId.parse(name)) is not None and one.name in found}
    return {name for name in found - partitions if "/" not in name}


class _Name(NamedTuple):
    owner: str
    local: str


def _split(name: str, caller: Caller) -> _Name:
    """Return the tenant and the local name of `tenant/name` or `name`."""
    owner, _, local = name.rpartition("/")
    return _Name(owner or caller.tenant, local)


def _not_found(kind: PartKind, name: str) -> NotFoundError:
    """Return the error for a part of another tenant: it does not reveal whether there is one."""
    message = f"unknown {kind} '{name}'"
    return NotFoundError("reactor", name, message) if kind == "reactor" else NotFoundError("accumulator", name, message)
