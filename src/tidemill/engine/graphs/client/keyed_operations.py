"""Operations on keyed reactors as wholes: events go to the partitions of their keys, the rest to all hosts.

Each operation has the signature that it has for other reactors, and returns the same values. Receipts number the events
of each partition.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec.structs import asdict, replace

from tidemill.engine.graphs.client.merged_states import (
    merge_accumulators,
    merge_firings,
    merge_reports,
    merge_states,
    state_in_whole,
)
from tidemill.engine.graphs.client.operations import check_command, schema_of
from tidemill.engine.graphs.client.part_operations import AnyHost, AnyPartition
from tidemill.engine.graphs.client.values import FiringPage, HealthReport, KnownFiring, ReactorObservation
from tidemill.engine.graphs.dead_letters import unknown_dead_letter_error
from tidemill.engine.graphs.durability.journal import MAX_SHARED_COMMIT
from tidemill.engine.graphs.firing.firing_log import LOGGED_FIRINGS_LIMIT
from tidemill.engine.graphs.keys.keyed_ingest import KeyedEvent
from tidemill.engine.graphs.partitions.membership import ClusterView
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.push_paths.by_partition import RoutedEvent
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.history import Courses, merge_courses
from tidemill.graphs.outcomes import DeadLetter, Receipt
from tidemill.graphs.pushes import ProducerPosition, PushSummary, RelayProgress
from tidemill.graphs.state import AccumulatorState, ReactorState, Recovery
from tidemill.graphs.views import FIRING_COMMANDS, AccumulatorDetails, CommandResult, ReactorCommand, ReplayResult
from tidemill.kernel.errors import NotFoundError, OperationError, RequestError
from tidemill.storage.graph_ports import PartKey, PartKind

HOST_TIMEOUT = 2.0
"""Seconds within which a host must answer what is read; its partitions are left out otherwise."""

_T = TypeVar("_T")


class PartitionRouter(Protocol):
    """Finds the nodes that run the partitions of keyed reactors."""

    def at_partition(self, part: PartKey) -> AnyPartition:
        """Return the operations of the node that runs a partition."""

    def at_host(self, host: PartKey) -> AnyHost:
        """Return the operations of the node that made an offer to host partitions."""


class KeyedOperations:
    """What can be done with keyed reactors and their accumulators, wherever their partitions run."""

    def __init__(self, scheduler: GraphScheduler, router: PartitionRouter) -> None:
        self._scheduler = scheduler
        self._loaded = scheduler.loaded
        self._router = router

    def _keyed(self, tenant: str, name: str) -> PartitionedReactor:
        return self._loaded.find_keyed(tenant, name)

    def _of_accumulator(self, tenant: str, name: str) -> PartitionedReactor:
        if (keyed := self._loaded.keyed_accumulators.get((tenant, name))) is None:
            raise NotFoundError("accumulator", name, f"accumulator '{name}' not loaded")
        return keyed

    async def _ask_hosts(self, keyed: PartitionedReactor, ask: Callable[[AnyHost], Awaitable[_T]]) -> list[_T]:
        """Ask each host of a reactor; return their answers. Raises if one does not answer."""
        view = await self._scheduler.sharing.view(keyed)
        return await asyncio.gather(*(ask(self._router.at_host(part)) for part in view.parts.values()))

    async def _read_hosts(
        self,
        keyed: PartitionedReactor,
        read: Callable[[AnyHost], Awaitable[_T]],
        view: ClusterView | None = None,
    ) -> list[_T]:
        """Ask each host of a reactor; return the answers of those that answer in time. A frozen one delays no page."""
        view = view or await self._scheduler.sharing.view(keyed)

        async def read_in_time(part: PartKey) -> list[_T]:
            try:
                async with asyncio.timeout(HOST_TIMEOUT):  # real time: a page waits for it
                    return [await read(self._router.at_host(part))]
            except (TimeoutError, OperationError, RequestError):
                return []

        found = await asyncio.gather(*(read_in_time(part) for part in view.parts.values()))
        return [one for some in found for one in some]

    # -- reactors

    async def check_reactor(self, tenant: str, name: str) -> None:
        """Raise NotFoundError if a reactor is not loaded."""
        self._keyed(tenant, name)

    async def reactor_state(self, tenant: str, name: str, key: Any = None) -> ReactorState:
        """Return the current state of a reactor, merged from those of its partitions; with a key, that of the key."""
        keyed = self._keyed(tenant, name)
        if key is not None:
            part = keyed.part_of_key(key)
            return state_in_whole(await self._router.at_partition(part).reactor_state(tenant, part.name, key), name)
        view = await self._scheduler.sharing.view(keyed)
        found = await self._read_hosts(keyed, lambda host: host.states(tenant, name), view)
        states = [state for host in found for state in host.partitions]
        return merge_states(keyed, states, view.owners, [source for host in found for source in host.sources])

    async def listed_state(self, tenant: str, name: str) -> ReactorState:
        """Return the current state of a reactor for a list: its cache is empty."""
        return await self.reactor_state(tenant, name)

    async def observe(self, tenant: str, name: str, known: KnownFiring | None) -> ReactorObservation:
        """Return the current state of a reactor, and its newest firing, unless that is the known one."""
        newest = next(iter((await self.firings(tenant, name, 1, None)).firings), None)
        is_known = newest is not None and known == KnownFiring(newest.id, newest.attempt)
        state = await self.reactor_state(tenant, name)
        return ReactorObservation(state=state, last_firing=None if is_known else newest, is_known=is_known)

    async def health_report(self, tenant: str, name: str) -> HealthReport:
        """Return what is wrong with the partitions of a reactor."""
        keyed = self._keyed(tenant, name)
        return merge_reports(await self._read_hosts(keyed, lambda host: host.health_report(tenant, name)))

    async def firings(self, tenant: str, name: str, limit: int, after: str | None, key: Any = None) -> FiringPage:
        """Return firings that are kept, newest first; `after` is the id of the last one of the page before."""
        asked = limit if after is None else LOGGED_FIRINGS_LIMIT
        keyed = self._keyed(tenant, name)
        if key is not None:
            part = keyed.part_of_key(key)
            return await self._router.at_partition(part).firings(tenant, part.name, limit, after, key)
        return merge_firings(
            await self._read_hosts(keyed, lambda host: host.firings(tenant, name, asked)), limit, after
        )

    async def timeseries(self, tenant: str, name: str) -> list[int]:
        """Return the firing counts of the last 60 minutes, oldest first."""
        found = await self._read_hosts(self._keyed(tenant, name), lambda host: host.timeseries(tenant, name))
        return [sum(counts) for counts in zip(*(one for series in found for one in series), strict=True)]

    async def courses(self, tenant: str, name: str, seconds: int) -> Courses:
        """Return the figures of a reactor over time: the sums of all hosts, and the longest durations."""
        keyed = self._keyed(tenant, name)
        return merge_courses(await self._read_hosts(keyed, lambda host: host.courses(tenant, name, seconds)))

    async def recoveries(self, tenant: str, name: str) -> list[Recovery]:
        """Return the recoveries of the partitions, newest first."""
        found = await self._read_hosts(self._keyed(tenant, name), lambda host: host.recoveries(tenant, name))
        return sorted((one for some in found for one in some), key=lambda one: one.at, reverse=True)

    async def command(
        self,
        tenant: str,
        name: str,
        command: ReactorCommand,
        inputs: Mapping[str, Any] | None = None,
        key: Any = None,
    ) -> CommandResult:
        """Give a reactor a command: one to fire is for one key, the others are for all partitions."""
        keyed = self._keyed(tenant, name)
        check_command(command, inputs, key)
        if command in FIRING_COMMANDS:
            part = keyed.part_of_key(key)
            result = await self._router.at_partition(part).command(tenant, part.name, command, inputs, key)
            return replace(result, state=state_in_whole(result.state, name))
        if command in ("pause", "resume"):  # first: partitions that move now follow the store
            await self._scheduler.runtime.durability.set_paused(tenant, name, paused=command == "pause")
        await self._command_hosts(keyed, command)
        return CommandResult(firing=None, state=await self.reactor_state(tenant, name))

    async def _command_hosts(self, keyed: PartitionedReactor, command: ReactorCommand) -> None:
        """Give all hosts a command; RequestError names those that live and have not carried it out."""

        async def give(part: PartKey) -> str | None:
            try:
                await self._router.at_host(part).command(keyed.tenant, keyed.name, command)
            except (OperationError, RequestError) as error:
                return str(error)
            return None

        parts = (await self._scheduler.sharing.view(keyed)).parts
        answers = await asyncio.gather(*map(give, parts.values()))
        failed = {host: error for host, error in zip(parts, answers, strict=True) if error is not None}
        living = (await self._scheduler.sharing.view(keyed)).parts if failed else {}
        if failed := {host: error for host, error in failed.items() if host in living}:
            raise _unreached_error(keyed.name, command, failed, len(parts))

    # -- accumulators

    async def accumulator_state(self, tenant: str, name: str) -> AccumulatorState:
        """Return the current state of an accumulator."""
        return await self.accumulator(tenant, name)

    async def accumulator(self, tenant: str, name: str) -> AccumulatorDetails:
        """Return the current state of an accumulator, merged from those of its partitions, and what it takes."""
        keyed = self._of_accumulator(tenant, name)
        found = await self._read_hosts(keyed, lambda host: host.accumulators(tenant, name))
        if not (states := [one for some in found for one in some]):
            raise no_partitions_error(name)
        definition = keyed.partitioners[name].accumulator
        merged = asdict(merge_accumulators(name, states)) | {
            "reactors": [keyed.name],
            "event_schema": schema_of(definition.event_type),
            "boundary_schema": schema_of(definition.boundary_type),
        }
        return AccumulatorDetails(**merged)

    async def check_accumulator(self, tenant: str, name: str) -> None:
        """Raise NotFoundError if an accumulator is not loaded."""
        self._of_accumulator(tenant, name)

    async def restart_accumulator(self, tenant: str, name: str) -> AccumulatorDetails:
        """Restart the partitions of an accumulator."""
        keyed = self._of_accumulator(tenant, name)
        await self._ask_hosts(keyed, lambda host: host.restart_accumulator(tenant, name))
        return await self.accumulator(tenant, name)

    async def push(
        self,
        tenant: str,
        name: str,
        event: Any,
        encoding: str = "json",
        patience: float | None = None,
        position: ProducerPosition | None = None,
    ) -> Receipt:
        """Push an event to the partition of its key. While the partition moves, the event waits for its next owner."""
        keyed = self._of_accumulator(tenant, name)
        routed = keyed.partitioners[name].route(event, encoding)
        part = keyed.accumulator_part(name, routed.partition)
        while self._loaded.runs(part):
            operations, value = self._router.at_partition(part), _local_value(routed, event)
            receipt = await operations.push(tenant, part.name, value, encoding, patience, position)
            if receipt.outcome != "rejected" or self._loaded.runs(part):
                return receipt
        return await self._router.at_partition(part).push(tenant, part.name, event, encoding, patience, position)

    async def push_many(
        self,
        tenant: str,
        name: str,
        events: Sequence[Any],
        encoding: str = "json",
        position: ProducerPosition | None = None,
        patience: float | None = None,
    ) -> PushSummary:
        """Push events, those of each partition together and in order, and return their receipts in the given order.

        A numbered push is atomic within each partition.
        """
        keyed = self._of_accumulator(tenant, name)
        groups: dict[int, list[int]] = {}
        routed = [keyed.partitioners[name].route(event, encoding) for event in events]
        for index, one in enumerate(routed):
            groups.setdefault(one.partition, []).append(index)

        async def push_group(partition: int, indexes: list[int]) -> PushSummary:
            part = keyed.accumulator_part(name, partition)
            values = [_local_value(routed[index], events[index]) for index in indexes]
            originals = [events[index] for index in indexes]
            return await self._push_group(part, values, originals, encoding, position, patience)

        summaries = await asyncio.gather(*(push_group(*group) for group in groups.items()))
        receipts: dict[int, Receipt] = {}
        for indexes, summary in zip(groups.values(), summaries, strict=True):
            receipts |= zip(indexes, summary.receipts, strict=True)
        is_duplicate = bool(summaries) and all(one.is_duplicate for one in summaries)
        in_order = (receipts[index] for index in range(len(events)))
        return PushSummary.of(in_order, is_duplicate=is_duplicate)

    async def _push_group(
        self,
        part: PartKey,
        values: Sequence[Any],
        originals: Sequence[Any],
        encoding: str,
        position: ProducerPosition | None,
        patience: float | None,
    ) -> PushSummary:
        """Push events of one partition; those that it rejects because it leaves this node go to its next owner."""
        receipts: list[Receipt] = []
        if self._loaded.runs(part):
            here = self._router.at_partition(part)
            summary = await here.push_many(part.tenant, part.name, values, encoding, position, patience)
            receipts = list(summary.receipts)
            while receipts and receipts[-1].outcome == "rejected" and not self._loaded.runs(part):
                receipts.pop()
            if len(receipts) == len(originals):
                return summary
        rest = originals[len(receipts) :]
        later = await self._router.at_partition(part).push_many(
            part.tenant, part.name, rest, encoding, position, patience
        )
        return PushSummary.of((*receipts, *later.receipts), is_duplicate=later.is_duplicate and not receipts)

    async def bring(
        self, part: PartKey, events: Sequence[Any], encoding: str, numbers: Sequence[int], after: int
    ) -> RelayProgress:
        """Bring a partition the numbered events of a source; return how far the partition is."""
        return await self._router.at_partition(part).relay(part.tenant, part.name, events, encoding, numbers, after)

    async def mark_source(self, keyed: PartitionedReactor, accumulator: str, *, is_lost: bool) -> None:
        """Tell all hosts whether the source of an accumulator is lost; raises if one does not answer."""
        await self._ask_hosts(keyed, lambda host: host.mark_source(keyed.tenant, accumulator, is_lost=is_lost))

    async def batch_space(self, tenant: str, name: str) -> int:
        """Return how many events are worth pushing together: those of one partition share a commit or a request."""
        self._of_accumulator(tenant, name)
        return MAX_SHARED_COMMIT

    async def last_position(self, tenant: str, name: str, client: str) -> int | None:
        """Return the number up to which every push of a producer was taken; None if there is none.

        The newest push does not count: some of its partitions may have taken it, and others not. The producer repeats
        it, and the partitions that have it recognize it.
        """
        keyed = self._of_accumulator(tenant, name)
        found = await self._ask_hosts(keyed, lambda host: host.last_positions(tenant, name, client))
        newest = max((one for some in found for one in some if one is not None), default=None)
        return None if newest is None else max(0, newest - 1)

    # -- dead letters

    async def dead_letters(self, kind: PartKind, tenant: str, name: str) -> list[DeadLetter]:
        """Return the dead letters of all partitions, newest first."""
        keyed = self._of_kind(kind, tenant, name)
        found = await self._read_hosts(keyed, lambda host: host.dead_letters(kind, tenant, name))
        return sorted((one for some in found for one in some), key=lambda one: one.id, reverse=True)

    async def dead_letter(self, kind: PartKind, tenant: str, name: str, dead_letter: str) -> DeadLetter:
        """Return one dead letter, with all its values."""
        keyed = self._of_kind(kind, tenant, name)
        found = await self._ask_hosts(keyed, lambda host: host.dead_letter(kind, tenant, name, dead_letter))
        return _only(found, dead_letter)

    async def replay(self, kind: PartKind, tenant: str, name: str, dead_letter: str) -> ReplayResult:
        """Process a dead letter again."""
        keyed = self._of_kind(kind, tenant, name)
        found = await self._ask_hosts(keyed, lambda host: host.replay(kind, tenant, name, dead_letter))
        return _only(found, dead_letter)

    async def drop(self, kind: PartKind, tenant: str, name: str, dead_letter: str) -> None:
        """Delete a dead letter."""
        keyed = self._of_kind(kind, tenant, name)
        if not any(await self._ask_hosts(keyed, lambda host: host.drop(kind, tenant, name, dead_letter))):
            raise unknown_dead_letter_error(dead_letter)

    def _of_kind(self, kind: PartKind, tenant: str, name: str) -> PartitionedReactor:
        return self._keyed(tenant, name) if kind == "reactor" else self._of_accumulator(tenant, name)


def _only(found: Iterable[_T | None], dead_letter: str) -> _T:
    """Return what the host answers that has a dead letter."""
    for one in found:
        if one is not None:
            return one
    raise unknown_dead_letter_error(dead_letter)


def _local_value(routed: RoutedEvent, event: Any) -> Any:
    """Return the event to push here: with its key, unless it is not valid."""
    return event if routed.key is None else KeyedEvent(routed.key, routed.event)


def _unreached_error(name: str, command: ReactorCommand, failed: Mapping[str, str], hosts: int) -> RequestError:
    reasons = "; ".join(f"{host}: {error}" for host, error in failed.items())
    message = f"{len(failed)} of {hosts} hosts of reactor '{name}' have not confirmed '{command}', the others have"
    return RequestError(
        f"{message}: give the command again, or restart these nodes ({reasons})",
        code="hosts_unreached",
        status=503,
        hosts=list(failed),
    )


def no_partitions_error(name: str) -> RequestError:
    """Return the error for something of which no partition runs now."""
    message = f"no partition of '{name}' runs now: its nodes are starting; try again"
    return RequestError(message, code="no_partitions", status=503)
