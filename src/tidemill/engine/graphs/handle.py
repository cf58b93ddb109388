"""The operator's handle of a reactor: state, firings, pause, resume, restart, replay."""

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.dead_letters import DeadLetterQueue, check_editable, find_dead_letter
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.graphs.health import ReactorHealth
from tidemill.graphs.key_forms import key_to_json
from tidemill.graphs.outcomes import DeadLetter, Receipt, to_jsonable
from tidemill.graphs.result import Firing
from tidemill.graphs.state import AccumulatorState, Latency, ReactorState, Recovery
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.kernel.suggestions import did_you_mean


class ReactorHandle:
    """One loaded reactor, for operators."""

    def __init__(
        self, find: Callable[[], RunningReactor], reclaim: Callable[[str, str], Coroutine[Any, Any, None]]
    ) -> None:
        self._find = find
        self._reclaim = reclaim

    @property
    def _reactor(self) -> RunningReactor:
        """The reactor that has the name now: a handle outlives reloads, and raises if there is none."""
        return self._find()

    @property
    def _running(self) -> Sequence[RunningReactor]:
        """What runs on this node under the name: the reactor, or the partitions of a keyed one."""
        return [self._reactor]

    @property
    def name(self) -> str:
        """The reactor's name."""
        return self._reactor.name

    # -- reading

    def state(self, key: Any = None) -> ReactorState:
        """Return the current health, cache, flags and counters, as plain values.

        Of a keyed reactor it has the cache, flags and queue of one key, if a key is given, which must be in memory.
        """
        reactor = self._reactor
        names, inputs = reactor.definition.accumulator_names, reactor.inputs_of(key)
        unhealthy = reactor.unhealthy_accumulators
        latency = reactor.firing_loop.log.latency()
        warming = reactor.health in (ReactorHealth.STARTING, ReactorHealth.WARMING)
        return ReactorState(
            name=reactor.name,
            health=reactor.health,
            waiting=unhealthy if warming else [],
            disconnected=[] if warming else reactor.disconnected,
            paused=reactor.firing_loop.paused,
            cache={
                name: to_jsonable(value) for name, value in zip(names, inputs.cache, strict=True) if value is not None
            },
            dirty={name: bool(inputs.dirty >> index & 1) for index, name in enumerate(names)},
            queued=len(inputs.queue) if key is not None else reactor.firing_loop.queued,
            fires=reactor.firing_loop.log.fires,
            failures=reactor.firing_loop.results.failures,
            incomplete=reactor.firing_loop.incomplete,
            dropped=dict(self._dropped_counts()),
            subscribers=sorted(reactor.firing_loop.graphs),
            accumulators={one.name: accumulator_state(one) for one in reactor.accumulators},
            since=reactor.health_since,
            when=str(reactor.definition.when),
            strategy=reactor.definition.strategy,
            buffered=len(inputs.queue) if reactor.definition.strategy == "sequential" else inputs.dirty.bit_count(),
            p50=latency.p50,
            p99=latency.p99,
            key=key_to_json(key),
            keys=reactor.keys.counts(),
            dead_letters=sum(map(len, self.dead_letter_queues)),
            counted_since=reactor.counted_since,
            starts=sorted({one.workflow for one in reactor.outbox.subscriptions}),
            owner=reactor.definition.about.owner,
            description=reactor.definition.about.description,
        )

    async def state_of(self, key: Any) -> ReactorState:
        """Return the state of one key of a keyed reactor, read from the store if it is not in memory."""
        await self._reactor.keys.load(key)
        return self.state(key)

    def _dropped_counts(self) -> Counter[str]:
        total = self._reactor.all_dropped()
        for one in self._reactor.accumulators:
            total.update(one.emitter.dropped)
        return total

    def firings(self, limit: int = 50, key: Any = None) -> list[Firing]:
        """Return the newest firings, newest first; at most 200 are kept. Of a keyed reactor, those of one key."""
        if limit < 1:
            raise RequestError(f"limit is at least 1, not {limit}", code="invalid_limit")
        wanted = None if key is None else self._reactor.keys.check(key)
        return self._reactor.firing_loop.log.newest(limit, wanted)

    async def next_firing(self, timeout: float | None = None) -> Firing:
        """Return the oldest firing not returned before; wait up to `timeout` seconds if there is none."""
        return await self._find().commands.next_firing(timeout)

    def timeseries(self) -> list[int]:
        """Return the firing counts of the last 60 minutes, oldest first; of a keyed reactor, those on this node."""
        counts = [one.firing_loop.log.per_minute() for one in self._running]
        return [sum(minute) for minute in zip(*counts, strict=True)]

    def latency(self) -> Latency:
        """Return median and 99th percentile of the newest firings' durations, in seconds.

        Of a keyed reactor, the mean of the medians and the highest percentile of the partitions on this node.
        """
        found = [one.firing_loop.log.latency() for one in self._running]
        medians = [one.p50 for one in found if one.p50]
        mean = sum(medians) / len(medians) if medians else 0.0
        return Latency(mean, max((one.p99 for one in found), default=0.0))

    def events(self, limit: int | None = 50) -> list[Recovery]:
        """Return what the supervisor did with the reactor and its accumulators, newest first."""
        components = {("reactor", self.name)} | {("accumulator", one.name) for one in self._reactor.accumulators}
        found = [
            recovery
            for tenant, recovery in self._reactor.runtime.supervisor.recoveries
            if tenant == self._reactor.tenant and (recovery.component, recovery.name) in components
        ]
        return found[::-1][:limit]

    # -- commands

    async def pause(self) -> ReactorState:
        """Stop firing on criteria; boundaries are still accepted. Return the state afterwards."""
        await self._reactor.pausing.pause()
        return self.state()

    async def resume(self) -> ReactorState:
        """Fire on criteria again, immediately if they are met. Return the state afterwards."""
        await self._reactor.pausing.resume()
        return self.state()

    async def force_fire(self, key: Any = None) -> Firing:
        """Fire now with the cache as it is, regardless of the criteria; of a keyed reactor, that of one key."""
        return await self._reactor.fire_manually(None, key)

    async def fire_with(self, inputs: Mapping[str, Any], key: Any = None) -> Firing:
        """Replace the whole cache by these inputs and fire; sources not given are absent afterwards.

        Of a keyed reactor it is the cache of one key.
        """
        if not inputs:
            names = ", ".join(self._reactor.definition.accumulator_names)
            raise RequestError(f"fire_with needs at least one input, of: {names}", code="empty_inputs")
        definition = self._reactor.definition
        values: list[Any] = [[] if one.is_window else None for one in definition.accumulators]
        for name, value in inputs.items():
            values[self._accumulator_index(name)] = self._trim_window(name, self._validate_input(name, value))
        return await self._reactor.fire_manually(values, key)

    def _accumulator_index(self, name: str) -> int:
        names = self._reactor.definition.accumulator_names
        if name not in names:
            reactor = self._reactor.definition.declared_name
            message = f"reactor '{reactor}' has no accumulator '{name}'{did_you_mean(name, names)}"
            raise NotFoundError("accumulator", name, message, names)
        return names.index(name)

    def _validate_input(self, name: str, value: Any) -> Any:
        definition = self._reactor.definition.accumulators[self._accumulator_index(name)]
        try:
            return TypeValidator(definition.boundary_type).validate(value)
        except TypeMismatchError as error:
            raise RequestError(f"input '{name}': {error}", code="invalid_input", input=name) from error

    def _trim_window(self, name: str, value: Any) -> Any:
        """Return a window's content trimmed to its capacity, and any other value unchanged."""
        accumulator = self._reactor.definition.accumulators[self._accumulator_index(name)]
        return accumulator.trim_to_capacity(value) if accumulator.is_window else value

    async def restart(self) -> ReactorState:
        """Restart the reactor, and those of its accumulators that have failed. Return the state afterwards.

        One that another node had acquired is acquired again, and continues from its stored state; RequestError if that
        node still owns it.
        """
        if self._reactor.is_fenced:
            await self._reclaim(self._reactor.tenant, self._reactor.name)
            return self.state()
        supervisor = self._reactor.runtime.supervisor
        for one in tuple(self._reactor.accumulators):
            if one.health == "failed":
                supervisor.restart(one)
        supervisor.restart(self._reactor)
        return self.state()

    # -- dead letters

    @property
    def dead_letter_queues(self) -> list[DeadLetterQueue]:
        """The queues of the reactor and its accumulators."""
        own = self._reactor.firing_loop.results.dead_letters
        return [own, *(one.dead_letters for one in self._reactor.accumulators)]

    async def dead_letters(self, limit: int | None = None) -> list[DeadLetter]:
        """Return the dead letters of the reactor and its accumulators, newest first."""
        found = (entry for queue in self.dead_letter_queues for entry in queue.entries())
        return sorted(found, key=lambda entry: entry.id, reverse=True)[:limit]

    async def dead_letter(self, dead_letter_id: str) -> DeadLetter:
        """Return a dead letter."""
        return find_dead_letter(self.dead_letter_queues, dead_letter_id)[1][0]

    async def drop(self, dead_letter_id: str) -> None:
        """Delete a dead letter."""
        find_dead_letter(self.dead_letter_queues, dead_letter_id)[0].remove(dead_letter_id)

    async def replay(self, dead_letter_id: str, event: Any = None) -> Any:
        """Process a dead letter again; with `event`, that instead of a dead event, which is dropped if it is accepted.

        An event goes through its accumulator, and returns a Receipt. A firing runs on its own snapshot, and returns a
        Firing. A start returns the handle of the run, or None if the firing starts none now.
        """
        if event is not None:
            return await self._replay_edited(await self.dead_letter(dead_letter_id), event)
        for one in self._reactor.accumulators:
            if (entry := one.dead_letters.find(dead_letter_id)) is not None:
                return await one.intake.replay(*entry)
        entry = self._reactor.firing_loop.results.dead_letters.find(dead_letter_id)
        if entry is not None and entry[0].kind == "start":
            return await self._reactor.outbox.replay(dead_letter_id, entry[1])
        return await self._reactor.commands.replay(dead_letter_id)

    async def _replay_edited(self, letter: DeadLetter, event: Any) -> Receipt:
        accumulator = next((one for one in self._reactor.accumulators if one.dead_letters.find(letter.id)), None)
        check_editable(letter, "" if accumulator is None else str(accumulator.definition.kind))
        assert accumulator is not None, "an event belongs to an accumulator"
        receipt = await accumulator.pushes.push(event)
        if receipt.accepted:
            accumulator.dead_letters.remove(letter.id)
        return receipt


def accumulator_state(accumulator: RunningAccumulator) -> AccumulatorState:
    """Return the public state of an accumulator."""
    return AccumulatorState(
        name=accumulator.name,
        kind=str(accumulator.definition.kind),
        health=accumulator.health,
        reason=accumulator.unhealthy_reason,
        events=accumulator.kind.event_count,
        emitted=accumulator.emitter.sequence,
        suppressed=accumulator.emitter.suppressed,
        dead_letters=len(accumulator.dead_letters),
        restarts=accumulator.restart_state.restarts,
        last_event_at=_wall_time(accumulator.clock, accumulator.last_event_time),
        stuck_since=_wall_time(accumulator.clock, accumulator.intake.stuck_since),
        since=accumulator.health_since,
        buffered=accumulator.kind.buffered_count,
        pushes=accumulator.pushes.total,
        push_seconds=accumulator.pushes.seconds,
        upstream_lag=accumulator.kind.upstream_lag,
        counted_since=accumulator.counted_since,
    )


def _wall_time(clock: Clock, time: float | None) -> datetime | None:
    return None if time is None else clock.now() - timedelta(seconds=clock.monotonic() - time)
