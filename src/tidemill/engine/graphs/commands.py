"""What operators can ask of a reactor: look, fire, pause, resume, restart, replay."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from tidemill.annotations.admission import Admission, MisfitError
from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.reactor import RunningReactor
from tidemill.graphs.health import ReactorHealth
from tidemill.graphs.result import DeadLetter, Firing, Receipt, plain
from tidemill.graphs.state import AccumulatorState, Latency, ReactorState, Recovery
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean


class ReactorHandle:
    """One loaded reactor, for whoever operates it."""

    def __init__(self, find: Callable[[], RunningReactor]) -> None:
        self._find = find

    @property
    def _reactor(self) -> RunningReactor:
        """The reactor that has the name now: a handle outlives reloads, and says so when there is none."""
        return self._find()

    @property
    def name(self) -> str:
        """The reactor's name."""
        return self._reactor.name

    # -- looking

    def state(self) -> ReactorState:
        """Return health, cache, flags and counters of this moment, as plain values."""
        reactor = self._reactor
        names, inputs = reactor.definition.names, reactor.wheel.inputs
        unhealthy = reactor.unhealthy
        warming = reactor.health in (ReactorHealth.STARTING, ReactorHealth.WARMING)
        return ReactorState(
            name=reactor.name,
            health=reactor.health,
            waiting=unhealthy if warming else [],
            disconnected=[] if warming else reactor.disconnected,
            paused=reactor.wheel.paused,
            cache={name: plain(value) for name, value in zip(names, inputs.cache, strict=True) if value is not None},
            dirty={name: bool(inputs.dirty >> index & 1) for index, name in enumerate(names)},
            queued=len(inputs.queue),
            fires=reactor.wheel.log.fires,
            failures=reactor.wheel.outcomes.failures,
            incomplete=reactor.wheel.incomplete,
            dropped=dict(self._dropped()),
            subscribers=sorted(reactor.wheel.graphs),
            accumulators={one.name: accumulator_state(one) for one in reactor.accumulators},
        )

    def _dropped(self) -> Counter[str]:
        total = self._reactor.all_dropped()
        for one in self._reactor.accumulators:
            total.update(one.dropped)
        return total

    def firings(self, limit: int = 50) -> list[Firing]:
        """Return the newest firings, newest first; at most 200 are kept."""
        if limit < 1:
            raise RequestError(f"limit is at least 1, not {limit}", code="invalid_limit")
        return self._reactor.wheel.log.newest(limit)

    async def next_firing(self, timeout: float | None = None) -> Firing:
        """Return the oldest firing not handed out yet; wait up to `timeout` seconds if there is none."""
        return await self._reactor.wheel.next_firing(timeout)

    def timeseries(self) -> list[int]:
        """Return how many firings each of the last 60 minutes saw, oldest first."""
        return self._reactor.wheel.log.per_minute()

    def latency(self) -> Latency:
        """Return median and 99th percentile of the newest firings' durations, in seconds."""
        return self._reactor.wheel.log.latency()

    def events(self) -> list[Recovery]:
        """Return the recoveries of this reactor and its accumulators, oldest first."""
        ours = {("reactor", self.name)} | {("accumulator", one.name) for one in self._reactor.accumulators}
        return [
            recovery
            for tenant, recovery in self._reactor.environment.supervisor.recoveries
            if tenant == self._reactor.tenant and (recovery.component, recovery.name) in ours
        ]

    # -- acting

    async def pause(self) -> None:
        """Stop firing on criteria; boundaries go on accumulating."""
        await self._reactor.pause()

    async def resume(self) -> None:
        """Fire on criteria again, at once if they hold."""
        await self._reactor.resume()

    async def force_fire(self) -> Firing:
        """Fire now with the cache as it is, whatever the criteria say."""
        return await self._reactor.fire()

    async def fire_with(self, inputs: Mapping[str, Any]) -> Firing:
        """Replace the whole cache by these inputs and fire; sources not given are absent afterwards."""
        if not inputs:
            names = ", ".join(self._reactor.definition.names)
            raise RequestError(f"fire_with needs at least one input, of: {names}", code="empty_inputs")
        definition = self._reactor.definition
        values: list[Any] = [[] if one.is_window else None for one in definition.accumulators]
        for name, value in inputs.items():
            values[self._position(name)] = self._fitted(name, self._admitted(name, value))
        return await self._reactor.fire(values)

    def _position(self, name: str) -> int:
        names = self._reactor.definition.names
        if name not in names:
            message = f"reactor '{self.name}' has no accumulator '{name}'{did_you_mean(name, names)}"
            raise RequestError(message, code="unknown_accumulator", status=404, accumulator=name)
        return names.index(name)

    def _admitted(self, name: str, value: Any) -> Any:
        definition = self._reactor.definition.accumulators[self._position(name)]
        try:
            return Admission(definition.boundary_type).admit(value)
        except MisfitError as error:
            raise RequestError(f"input '{name}': {error}", code="invalid_input", input=name) from error

    def _fitted(self, name: str, value: Any) -> Any:
        """Return a window's content cut to what the window holds, anything else as it is."""
        accumulator = self._reactor.definition.accumulators[self._position(name)]
        return accumulator.cut(value) if accumulator.is_window else value

    async def restart(self) -> None:
        """Restart the reactor, and those of its accumulators that had been given up."""
        supervisor = self._reactor.environment.supervisor
        for one in tuple(self._reactor.accumulators):
            if one.health == "failed":
                supervisor.restart(one)
        supervisor.restart(self._reactor)

    async def dead_letters(self) -> list[DeadLetter]:
        """Return the dead letters of this reactor and its accumulators, oldest first."""
        boxes = [self._reactor.wheel.outcomes.letters, *(one.letters for one in self._reactor.accumulators)]
        return sorted((letter for box in boxes for letter in box.letters()), key=lambda letter: letter.id)

    async def replay(self, dead_letter_id: str) -> Firing | Receipt:
        """Try a dead letter again: an event through its accumulator, a firing on its own snapshot."""
        for one in self._reactor.accumulators:
            if (found := one.letters.find(dead_letter_id)) is not None:
                return await one.replay(*found)
        return await self._reactor.wheel.outcomes.replay(dead_letter_id)


def accumulator_state(one: RunningAccumulator) -> AccumulatorState:
    """Return what is to be seen of an accumulator."""
    return AccumulatorState(
        name=one.name,
        kind=str(one.definition.kind),
        health=one.health,
        events=one.events,
        emitted=one.sequence,
        suppressed=one.suppressed,
        dead_letters=one.letters.total,
        restarts=one.supervision.restarts,
        last_event_at=_wall(one.clock, one.last_event),
        stuck_since=_wall(one.clock, one.stuck_since),
    )


def _wall(clock: Clock, moment: float | None) -> datetime | None:
    return None if moment is None else clock.now() - timedelta(seconds=clock.monotonic() - moment)
