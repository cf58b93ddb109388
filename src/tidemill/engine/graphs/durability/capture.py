"""Taking snapshots: what a reactor and its accumulators hold at one moment, as parts of a checkpoint.

Reactors that share accumulators are captured together: an accumulator's offset says what every one of them has seen.
Nothing here awaits, so a capture is one moment of the loop.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.durability.checksums import snapshot_part
from tidemill.engine.graphs.reactors.firing import PendingFiring
from tidemill.engine.graphs.reactors.outbox import OutboxEntry
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.graphs.snapshot import (
    AccumulatorPart,
    NamedBoundary,
    ReactorPart,
    StoredFiring,
    StoredOutboxEntry,
    encode_stored,
)
from tidemill.storage.graph_ports import JournalTrim, PartKey, SnapshotPart


class CheckpointGroup(msgspec.Struct, frozen=True):
    """Reactors that share accumulators, directly or by way of others, and all those accumulators."""

    reactors: list[RunningReactor]
    accumulators: list[RunningAccumulator]


def checkpoint_groups(reactors: Iterable[RunningReactor]) -> list[CheckpointGroup]:
    """Sort reactors, and kept ones that share accumulators with them, into circles."""
    found: list[CheckpointGroup] = []
    seen: set[RunningReactor] = set()
    for reactor in reactors:
        if reactor not in seen:
            found.append(_group_of(reactor))
            seen.update(found[-1].reactors)
    return found


def _group_of(start: RunningReactor) -> CheckpointGroup:
    reactors = [start]
    known = {start}
    accumulators: dict[RunningAccumulator, None] = {}
    for reactor in reactors:  # which grows meanwhile
        for one in reactor.accumulators:
            if one in accumulators:
                continue  # all that listen to it are known
            accumulators[one] = None
            for target, _ in one.targets:
                if isinstance(target, RunningReactor) and target.is_durable and target not in known:
                    known.add(target)
                    reactors.append(target)
    return CheckpointGroup(reactors, list(accumulators))


class GroupSnapshot(msgspec.Struct, frozen=True):
    """One circle at one moment, ready to be written."""

    group: CheckpointGroup
    parts: list[SnapshotPart]
    positions: list[int]

    @property
    def journal_trims(self) -> list[JournalTrim]:
        """What of the journals is dispensable once this is written: what the generation before it holds already.

        A reactor that is being exchanged is to find what happens while it is away.
        """
        found = (
            (one, min((one.checkpointed_position, *one.departed_reactors.values()))) for one in self.group.accumulators
        )
        return [JournalTrim(one.journal_key, position) for one, position in found if position]

    def mark_written(self) -> None:
        """Note that this is the newest generation in the store."""
        things: list[RunningReactor | RunningAccumulator] = [*self.group.reactors, *self.group.accumulators]
        for thing, part in zip(things, self.parts, strict=True):
            thing.generation = part.generation
        for one, position in zip(self.group.accumulators, self.positions, strict=True):
            one.checkpointed_position = position


def take_snapshot(group: CheckpointGroup, moment: int, at: datetime) -> GroupSnapshot:
    """Take the snapshot of a circle, or raise UnstorableError; from here on every change is one since then."""
    parts = [_build_part(one, moment, at, encode_stored(_reactor_part(one))) for one in group.reactors]
    parts += [_build_part(one, moment, at, encode_stored(_accumulator_part(one))) for one in group.accumulators]
    for reactor in group.reactors:
        reactor.firing_loop.mark_checkpointed()
    return GroupSnapshot(group, parts, [one.position for one in group.accumulators])


def _build_part(
    component: RunningReactor | RunningAccumulator, moment: int, at: datetime, payload: bytes
) -> SnapshotPart:
    key = PartKey(component.tenant, component.component, component.name)
    return snapshot_part(key, component.generation + 1, moment, at, component.schema_digest, payload)


def _accumulator_part(accumulator: RunningAccumulator) -> AccumulatorPart:
    state = accumulator.committed_state if accumulator.is_journaled else accumulator.state
    codecs = accumulator.codecs
    return AccumulatorPart(
        sequence=accumulator.sequence,
        position=accumulator.position,
        state=None if codecs.state is None else codecs.state.encode(state),
        offset=accumulator.offset,
        held=[codecs.buffered.encode(value) for value in accumulator.buffered_events],
        kind=accumulator.definition.kind,
    )


def _reactor_part(reactor: RunningReactor) -> ReactorPart:
    wheel = reactor.firing_loop
    inputs, series = wheel.inputs, wheel.log.series
    named = _NamedEncoder(reactor.accumulators)
    wheel.log.close_burst()  # which counts its firings
    return ReactorPart(
        cache=named.encode_values(inputs.cache),
        dirty=named.flag_names(inputs.dirty),
        queue=[(*named.encode_entry(index, value), position) for index, value, position in inputs.queue],
        consumed=[named.encode_entry(index, value) for index, value in inputs.consumed],
        firings=[_stored_firing(due, named) for due in wheel.unfinished_firings()],
        position=max((one.position for one in reactor.accumulators), default=0),
        applied=inputs.applied_position,
        series=series.name,
        number=series.number,
        positions={one.name: one.departed_reactors.get(reactor, one.position) for one in reactor.accumulators},
        posts=[_stored_entry(post, named) for post in reactor.outbox.entries],
    )


def _stored_firing(firing: PendingFiring, encoder: "_NamedEncoder") -> StoredFiring:
    taken = firing.inputs
    return StoredFiring(
        series=firing.series,
        number=firing.number,
        attempt=firing.attempt,
        manual=firing.manual,
        flags=encoder.flag_names(taken.flags),
        inputs=encoder.encode_values(taken.snapshot),
        consumed=[encoder.encode_entry(index, value) for index, value in taken.consumed],
        graphs=list(firing.retry_graphs),
    )


def _stored_entry(entry: OutboxEntry, encoder: "_NamedEncoder") -> StoredOutboxEntry:
    record = entry.record
    at = record.wall_offset + record.started
    return StoredOutboxEntry(
        record.series, record.number, at, encoder.encode_values(record.snapshot), sorted(entry.undelivered_to)
    )


class _NamedEncoder:
    """A reactor's values under the names of their accumulators, as bytes."""

    def __init__(self, accumulators: list[RunningAccumulator]) -> None:
        self._sources = [(one.name, one.codecs.boundary) for one in accumulators]

    def encode_entry(self, index: int, value: Any) -> NamedBoundary:
        name, codec = self._sources[index]
        return name, codec.encode(value)

    def encode_values(self, values: list[Any]) -> dict[str, bytes]:
        """Return those values that are there."""
        return dict(self.encode_entry(index, value) for index, value in enumerate(values) if value is not None)

    def flag_names(self, mask: int) -> list[str]:
        """Return the names whose flags are set."""
        return [name for index, (name, _) in enumerate(self._sources) if mask >> index & 1]
