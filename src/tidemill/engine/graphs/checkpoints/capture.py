"""Taking snapshots: what a reactor and its accumulators hold at one moment, as parts of a checkpoint.

Reactors that share accumulators are captured together: an accumulator's offset says what every one of them has seen.
Nothing here awaits, so a capture is one moment of the loop.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.checkpoints.sealing import sealed
from tidemill.engine.graphs.firing import Due
from tidemill.engine.graphs.outbox import Post
from tidemill.engine.graphs.reactor import RunningReactor
from tidemill.graphs.snapshot import AccumulatorPart, Named, ReactorPart, StoredFiring, StoredPost, encode
from tidemill.storage.ports import Covered, Part, PartKey


class Circle(msgspec.Struct, frozen=True):
    """Reactors that share accumulators, directly or by way of others, and all those accumulators."""

    reactors: list[RunningReactor]
    accumulators: list[RunningAccumulator]


def circles(reactors: Iterable[RunningReactor]) -> list[Circle]:
    """Sort reactors, and kept ones that share accumulators with them, into circles."""
    found: list[Circle] = []
    seen: set[RunningReactor] = set()
    for reactor in reactors:
        if reactor not in seen:
            found.append(_circle(reactor))
            seen.update(found[-1].reactors)
    return found


def _circle(start: RunningReactor) -> Circle:
    reactors = [start]
    known = {start}
    accumulators: dict[RunningAccumulator, None] = {}
    for reactor in reactors:  # which grows meanwhile
        for one in reactor.accumulators:
            if one in accumulators:
                continue  # all that listen to it are known
            accumulators[one] = None
            for target, _ in one.targets:
                if isinstance(target, RunningReactor) and target.is_kept and target not in known:
                    known.add(target)
                    reactors.append(target)
    return Circle(reactors, list(accumulators))


class Capture(msgspec.Struct, frozen=True):
    """One circle at one moment, ready to be written."""

    circle: Circle
    parts: list[Part]
    positions: list[int]

    @property
    def covered(self) -> list[Covered]:
        """What of the journals is dispensable once this is written: what the generation before it holds already.

        A reactor that is being exchanged is to find what happens while it is away.
        """
        found = ((one, min((one.covered, *one.departed.values()))) for one in self.circle.accumulators)
        return [Covered(one.journal_key, position) for one, position in found if position]

    def mark_written(self) -> None:
        """Note that this is the newest generation in the store."""
        things: list[RunningReactor | RunningAccumulator] = [*self.circle.reactors, *self.circle.accumulators]
        for thing, part in zip(things, self.parts, strict=True):
            thing.generation = part.generation
        for one, position in zip(self.circle.accumulators, self.positions, strict=True):
            one.covered = position


def capture(circle: Circle, moment: int, at: datetime) -> Capture:
    """Take the snapshot of a circle, or raise UnstorableError; from here on every change is one since then."""
    parts = [_part(one, moment, at, encode(_reactor_part(one))) for one in circle.reactors]
    parts += [_part(one, moment, at, encode(_accumulator_part(one))) for one in circle.accumulators]
    for reactor in circle.reactors:
        reactor.wheel.mark_saved()
    return Capture(circle, parts, [one.position for one in circle.accumulators])


def _part(thing: RunningReactor | RunningAccumulator, moment: int, at: datetime, payload: bytes) -> Part:
    key = PartKey(thing.tenant, thing.component, thing.name)
    return sealed(key, thing.generation + 1, moment, at, thing.schema_digest, payload)


def _accumulator_part(one: RunningAccumulator) -> AccumulatorPart:
    state = one.kept_state if one.commits else one.state
    codecs = one.codecs
    return AccumulatorPart(
        sequence=one.sequence,
        position=one.position,
        state=None if codecs.state is None else codecs.state.encode(state),
        offset=one.offset,
        held=[codecs.held.encode(value) for value in one.held],
        kind=one.definition.kind,
    )


def _reactor_part(reactor: RunningReactor) -> ReactorPart:
    wheel = reactor.wheel
    inputs, series = wheel.inputs, wheel.log.series
    named = _Names(reactor.accumulators)
    wheel.log.close_burst()  # which counts its firings
    return ReactorPart(
        cache=named.values(inputs.cache),
        dirty=named.flags(inputs.dirty),
        queue=[(*named.entry(index, value), position) for index, value, position in inputs.queue],
        consumed=[named.entry(index, value) for index, value in inputs.consumed],
        firings=[_firing(due, named) for due in wheel.unfinished()],
        position=max((one.position for one in reactor.accumulators), default=0),
        applied=inputs.applied,
        series=series.name,
        number=series.number,
        positions={one.name: one.departed.get(reactor, one.position) for one in reactor.accumulators},
        posts=[_post(post, named) for post in reactor.outbox.posts],
    )


def _firing(due: Due, named: "_Names") -> StoredFiring:
    taken = due.taken
    return StoredFiring(
        series=due.series,
        number=due.number,
        attempt=due.attempt,
        manual=due.manual,
        flags=named.flags(taken.flags),
        inputs=named.values(taken.snapshot),
        consumed=[named.entry(index, value) for index, value in taken.consumed],
        graphs=list(due.only),
    )


def _post(post: Post, named: "_Names") -> StoredPost:
    record = post.record
    at = record.offset + record.started
    return StoredPost(record.series, record.number, at, named.values(record.snapshot), sorted(post.to))


class _Names:
    """A reactor's values under the names of their accumulators, as bytes."""

    def __init__(self, accumulators: list[RunningAccumulator]) -> None:
        self._sources = [(one.name, one.codecs.boundary) for one in accumulators]

    def entry(self, index: int, value: Any) -> Named:
        name, codec = self._sources[index]
        return name, codec.encode(value)

    def values(self, values: list[Any]) -> dict[str, bytes]:
        """Return those values that are there."""
        return dict(self.entry(index, value) for index, value in enumerate(values) if value is not None)

    def flags(self, mask: int) -> list[str]:
        """Return the names whose flags are set."""
        return [name for index, (name, _) in enumerate(self._sources) if mask >> index & 1]
