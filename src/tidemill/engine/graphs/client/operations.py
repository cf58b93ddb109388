"""Operations on the reactors and accumulators that this node runs.

Every operation takes and returns values that can be sent to another node, so that a node that does not run a reactor
can ask the one that does.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.held import Held
from tidemill.engine.graphs.client.listed_values import to_listed_dead_letter, to_listed_firing, to_listed_state
from tidemill.engine.graphs.client.values import (
    FiringPage,
    HealthReport,
    KnownFiring,
    ReactorObservation,
    report_health,
)
from tidemill.engine.graphs.dead_letters import DeadLetterQueue, find_dead_letter
from tidemill.engine.graphs.durability.journal import MAX_SHARED_COMMIT
from tidemill.engine.graphs.firing.firing_log import LOGGED_FIRINGS_LIMIT
from tidemill.engine.graphs.handle import ReactorHandle, accumulator_state
from tidemill.engine.graphs.keys.keyed_kinds import KeyedPolling
from tidemill.engine.graphs.keys.topic_share import KeyedStream
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.history import Courses, History
from tidemill.graphs.key_forms import key_to_json
from tidemill.graphs.outcomes import DeadLetter, Receipt, to_jsonable
from tidemill.graphs.pushes import ProducerPosition, PushSummary, ReceiptRun, ReceiptTally, RelayProgress
from tidemill.graphs.result import Firing
from tidemill.graphs.state import AccumulatorState, ReactorState, Recovery
from tidemill.graphs.views import (
    FIRING_COMMANDS,
    AccumulatorDetails,
    CommandResult,
    FiringView,
    ReactorCommand,
    ReplayResult,
)
from tidemill.kernel.errors import RequestError, after_change
from tidemill.storage.graph_ports import PartKind
from tidemill.telemetry.tracing import CURRENT_TRACE

Reclaim = Callable[[str, str], Coroutine[Any, Any, None]]
"""Acquires a reactor that another node had acquired."""


class GraphOperations:
    """What can be done with the reactors and accumulators of this node, by tenant and name."""

    def __init__(self, scheduler: GraphScheduler, reclaim: Reclaim, history: History) -> None:
        self._scheduler = scheduler
        self._loaded = scheduler.loaded
        self._reclaim = reclaim
        self._history = history

    # -- reactors

    async def check_reactor(self, tenant: str, name: str) -> None:
        """Raise NotFoundError if a reactor is not loaded."""
        self._loaded.reactor(tenant, name)

    async def reactor_state(self, tenant: str, name: str, key: Any = None) -> ReactorState:
        """Return the current state of a reactor; with a key, the cache, flags and queue of that key."""
        reactor = self._reactor(tenant, name)
        return reactor.state() if key is None else await reactor.state_of(key)

    async def listed_state(self, tenant: str, name: str) -> ReactorState:
        """Return the current state of a reactor without large values of its cache."""
        return to_listed_state(await self.reactor_state(tenant, name))

    async def observe(self, tenant: str, name: str, known: KnownFiring | None) -> ReactorObservation:
        """Return the current state of a reactor, and its newest firing, unless that is the known one.

        Only a new one is converted to plain values: many clients observe, and a reactor may rest for long.
        """
        reactor = self._reactor(tenant, name)
        newest = next(iter(reactor.firings(1)), None)
        is_known = newest is not None and known == KnownFiring(newest.id, newest.attempt)
        firing = None if newest is None or is_known else FiringView.of(newest)
        return ReactorObservation(state=reactor.state(), last_firing=firing, is_known=is_known)

    async def health_report(self, tenant: str, name: str) -> HealthReport:
        """Return what is wrong with a reactor and its accumulators."""
        return report_health(self._loaded.reactor(tenant, name))

    async def firings(self, tenant: str, name: str, limit: int, after: str | None, key: Any = None) -> FiringPage:
        """Return firings that are kept, newest first; `after` is the id of the last one of the page before.

        Only those of the page are converted to plain values: with long windows as inputs, all of them take long.
        """
        kept = self._reactor(tenant, name).firings(LOGGED_FIRINGS_LIMIT, key)
        ids = [] if after is None else [one.id for one in kept]
        start = 0 if after is None else ids.index(after) + 1 if after in ids else len(kept)
        shown = [to_listed_firing(FiringView.of(one)) for one in kept[start : start + limit]]
        return FiringPage(firings=shown, kept=len(kept), has_more=start + limit < len(kept))

    async def timeseries(self, tenant: str, name: str) -> list[int]:
        """Return the firing counts of the last 60 minutes, oldest first."""
        return self._reactor(tenant, name).timeseries()

    async def courses(self, tenant: str, name: str, seconds: int) -> Courses:
        """Return the figures of a reactor over time; of one with keys, those of the partitions of this node."""
        return self._history.courses((tenant, name), seconds)

    async def recoveries(self, tenant: str, name: str) -> list[Recovery]:
        """Return the recoveries of a reactor and its accumulators, newest first."""
        return self._reactor(tenant, name).events(limit=None)

    async def command(
        self,
        tenant: str,
        name: str,
        command: ReactorCommand,
        inputs: Mapping[str, Any] | None = None,
        key: Any = None,
    ) -> CommandResult:
        """Give a reactor a command; `fire_with` takes inputs, the others take none.

        A StoreError, or a RequestError, says that the reactor has not fired.
        """
        check_command(command, inputs, key)
        reactor, firing = self._reactor(tenant, name), None
        match command:
            case "force_fire":
                firing = await reactor.force_fire(key)
            case "fire_with":
                firing = await reactor.fire_with(inputs or {}, key)
            case "pause":
                await reactor.pause()
            case "resume":
                await reactor.resume()
            case "restart":
                await reactor.restart()
        if firing is None:
            return CommandResult(firing=None, state=await self.reactor_state(tenant, name))
        with after_change(f"reactor '{name}' has fired as {firing.id}"):
            state = await self.reactor_state(tenant, name, key)
        return CommandResult(firing=FiringView.of(firing), state=state)

    def _reactor(self, tenant: str, name: str) -> ReactorHandle:
        find = partial(self._loaded.reactor, tenant, name)
        find()
        return ReactorHandle(find, self._reclaim)

    # -- accumulators

    async def accumulator_state(self, tenant: str, name: str) -> AccumulatorState:
        """Return the current state of an accumulator."""
        return accumulator_state(self._loaded.accumulator(tenant, name))

    async def accumulator(self, tenant: str, name: str) -> AccumulatorDetails:
        """Return the current state of an accumulator, and what it takes."""
        found = self._loaded.accumulator(tenant, name)
        return AccumulatorDetails(
            **asdict(accumulator_state(found)),
            reactors=sorted(target.name for target, _ in found.emitter.targets),
            event_schema=schema_of(found.definition.event_type),
            boundary_schema=schema_of(found.definition.boundary_type),
        )

    async def check_accumulator(self, tenant: str, name: str) -> None:
        """Raise NotFoundError if an accumulator is not loaded."""
        self._loaded.accumulator(tenant, name)

    async def restart_accumulator(self, tenant: str, name: str) -> AccumulatorDetails:
        """Restart an accumulator that the supervisor gave up, or one that hangs."""
        found = self._loaded.accumulator(tenant, name)
        for target, _ in found.emitter.targets:
            target.reactor.check_owned()
        self._scheduler.runtime.supervisor.restart(found)
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
        """Push an event, a Python value or bytes, and return its receipt; `position` numbers the push.

        With `patience` it waits for queue space no longer than this many seconds, and is rejected then.
        """
        found = self._traced_accumulator(tenant, name)
        if patience is not None:
            rejection = await _wait_unless_taken(found, patience, found.held_for(event, encoding), position)
            if rejection is not None:
                return rejection
        if position is not None:
            return (await found.pushes.push_many([event], encoding, position)).receipts[0]
        return await found.pushes.push(event, encoding)

    def _traced_accumulator(self, tenant: str, name: str) -> RunningAccumulator:
        """Return an accumulator, after noting for which span its reactors get the next event."""
        found, runtime = self._loaded.accumulator(tenant, name), self._scheduler.runtime
        if (trace := CURRENT_TRACE.get()) is not None:
            reactors = [target.reactor.definition for target, _ in found.emitter.targets]
            subscribed = (one for one in reactors if runtime.subscribers.subscriptions_to(tenant, one.declared_name))
            runtime.push_traces.update(((tenant, one.name), trace) for one in subscribed)
        return found

    async def push_many(
        self,
        tenant: str,
        name: str,
        events: Sequence[Any],
        encoding: str = "json",
        position: ProducerPosition | None = None,
        patience: float | None = None,
    ) -> PushSummary:
        """Push events in order, and return their receipts; `patience` as for one, for each part that finds space."""
        found = self._traced_accumulator(tenant, name)
        if position is not None and patience is not None:  # it enters the queue as a whole
            held = found.held_for(events[0], encoding) if events else found.emitter.held
            rejection = await _wait_unless_taken(found, patience, held, position)
            if rejection is not None:
                return PushSummary((ReceiptRun.of(rejection, len(events)),) if events else ())
        if position is not None or patience is None or (size := free_space(found, found.emitter.held)) is None:
            return await found.pushes.push_many(events, encoding, position)
        tally = ReceiptTally()
        while tally.count < len(events):
            held = found.held_for(events[tally.count], encoding)
            if (rejection := await wait_for_space(found, patience, held)) is not None:
                tally.add(rejection, len(events) - tally.count)
                break
            size = free_space(found, held) or size
            tally.extend((await found.pushes.push_many(events[tally.count : tally.count + size], encoding)).runs)
        return PushSummary(tuple(tally.runs))

    async def relay(
        self, tenant: str, name: str, events: Sequence[Any], encoding: str, numbers: Sequence[int], after: int
    ) -> RelayProgress:
        """Bring a partition the events of a source that one node reads for all; return how far the partition is."""
        found = self._traced_accumulator(tenant, name)
        assert isinstance(found.kind, KeyedStream | KeyedPolling), "only partitions of streams and polls have a relay"
        return await found.kind.relayed.take(events, encoding, numbers, after)

    async def batch_space(self, tenant: str, name: str) -> int:
        """Return how many events are worth pushing together: those that share a commit, and need not wait for space."""
        found = self._loaded.accumulator(tenant, name)
        held = found.emitter.held
        if not found.emitter.is_journaled or found.intake.is_blocked(held):
            return 1
        return min(MAX_SHARED_COMMIT, free_space(found, held) or MAX_SHARED_COMMIT)

    async def last_position(self, tenant: str, name: str, client: str) -> int | None:
        """Return the number of the newest push of a producer that was taken; None if there is none."""
        return await self._loaded.accumulator(tenant, name).pushes.last_position(client)

    # -- dead letters

    async def dead_letters(self, kind: PartKind, tenant: str, name: str) -> list[DeadLetter]:
        """Return the dead letters of an accumulator, or of a reactor with its accumulators, newest first.

        Large values are left out.
        """
        entries = [entry for queue in self._queues(kind, tenant, name) for entry in queue.entries_with_details()]
        newest_first = sorted(entries, key=lambda entry: entry[0].id, reverse=True)
        return [to_listed_dead_letter(to_plain(*entry)) for entry in newest_first]

    async def dead_letter(self, kind: PartKind, tenant: str, name: str, dead_letter: str) -> DeadLetter:
        """Return one dead letter, with all its values."""
        _, entry = find_dead_letter(self._queues(kind, tenant, name), dead_letter)
        return to_plain(*entry)

    async def replay(self, kind: PartKind, tenant: str, name: str, dead_letter: str) -> ReplayResult:
        """Process a dead letter again."""
        _, entry = find_dead_letter(self._queues(kind, tenant, name), dead_letter)
        if kind == "reactor":
            return to_replay_result(await self._reactor(tenant, name).replay(dead_letter))
        return to_replay_result(await self._loaded.accumulator(tenant, name).intake.replay(*entry))

    async def drop(self, kind: PartKind, tenant: str, name: str, dead_letter: str) -> None:
        """Delete a dead letter."""
        queue, _ = find_dead_letter(self._queues(kind, tenant, name), dead_letter)
        queue.remove(dead_letter)

    def _queues(self, kind: PartKind, tenant: str, name: str) -> Iterable[DeadLetterQueue]:
        if kind == "accumulator":
            return [self._loaded.accumulator(tenant, name).dead_letters]
        return self._reactor(tenant, name).dead_letter_queues


async def _wait_unless_taken(
    found: RunningAccumulator, patience: float, held: Held, position: ProducerPosition | None
) -> Receipt | None:
    """Wait for queue space, and return the rejection without any; None for a push that was taken before."""
    rejection = await wait_for_space(found, patience, held)
    if rejection is None or position is None:
        return rejection
    newest = await found.pushes.last_position(position.client)
    return rejection if newest is None or newest < position.sequence else None


def check_command(command: ReactorCommand, inputs: Mapping[str, Any] | None, key: Any) -> None:
    """Raise RequestError for a command that was given what it does not take."""
    if inputs and command != "fire_with":
        raise RequestError(f"'{command}' takes no inputs, only 'fire_with' does", code="unexpected_inputs")
    if key is not None and command not in FIRING_COMMANDS:
        message = f"'{command}' is for all keys, and takes none: leave out the key"
        raise RequestError(message, code="unexpected_key")


def schema_of(annotation: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of an annotation; None for a class that msgspec does not know."""
    try:
        return msgspec.json.schema(annotation)
    except TypeError:
        return None


async def wait_for_space(accumulator: RunningAccumulator, patience: float, held: Held) -> Receipt | None:
    """Wait until an event need not wait for queue space; return its rejection if that takes longer than `patience`.

    The event itself is not involved, so that a caller who gave up can be sure that it had no effect. `held` is that of
    its key, if there are keys: each key has a queue.
    """
    if not accumulator.intake.is_blocked(held):
        return None
    async with asyncio.TaskGroup() as group:
        space = group.create_task(_wait_for_gates(accumulator, held), name=f"accumulator {accumulator.name}: space")
        timer = group.create_task(accumulator.clock.sleep(patience), name=f"accumulator {accumulator.name}: patience")
        await asyncio.wait((space, timer), return_when=asyncio.FIRST_COMPLETED)
        space.cancel()
        timer.cancel()
    return _reject_full(accumulator, held)


async def _wait_for_gates(accumulator: RunningAccumulator, held: Held) -> None:
    while blocked := [gate for gate in accumulator.emitter.queue_gates if gate.is_blocked(held.key_state)]:
        await blocked[0].wait(held.key_state)


def _reject_full(accumulator: RunningAccumulator, held: Held) -> Receipt | None:
    """Return the rejection of an event that no queue has space for, with what keeps the queue from moving."""
    full = [target for target, _ in accumulator.emitter.targets if target.queue_gate.is_blocked(held.key_state)]
    for target in full:
        if target.paused:
            reason = f"the queue of reactor '{target.name}' is full, and the reactor is paused; resume it first"
            return accumulator.emitter.reject("paused", reason)
    if not full:
        return None
    name = full[0].queue_gate.reactor
    return accumulator.emitter.reject("queue_full", f"the queue of reactor '{name}' is full; push again later")


def free_space(accumulator: RunningAccumulator, held: Held) -> int | None:
    """Return how many events can be pushed without waiting; None if there is no limit, at least 1."""
    gates = accumulator.emitter.queue_gates
    return max(1, min(gate.space(held.key_state) for gate in gates)) if gates else None


def to_plain(dead_letter: DeadLetter, detail: Any) -> DeadLetter:
    """Return a dead letter whose values can be encoded as JSON; `detail` is the encoding of an event in bytes."""
    inputs = dead_letter.inputs
    return replace(
        dead_letter,
        event=_to_plain_event(dead_letter.event, detail),
        inputs=None if inputs is None else {name: to_jsonable(value) for name, value in inputs.items()},
        key=key_to_json(dead_letter.key),
    )


def _to_plain_event(event: Any, encoding: Any) -> Any:
    if not isinstance(event, bytes | bytearray | memoryview):
        return to_jsonable(event)
    try:
        decode = msgspec.msgpack.decode if encoding == "msgpack" else msgspec.json.decode
        return to_jsonable(decode(event))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return bytes(event).decode("utf-8", "backslashreplace")  # what was pushed, for a person to read


def to_replay_result(outcome: Any) -> ReplayResult:
    """Return what a replay of a dead event, firing or start has returned, as a plain value."""
    match outcome:
        case Receipt():
            return ReplayResult(receipt=outcome)
        case Firing():
            return ReplayResult(firing=FiringView.of(outcome))
        case None:
            return ReplayResult()
    return ReplayResult(run=outcome.id)
