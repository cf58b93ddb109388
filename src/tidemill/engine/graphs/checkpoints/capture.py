"""Snapshots: the state of reactors and their accumulators at one moment, as parts of a checkpoint.

Reactors that share accumulators are captured together: an accumulator's offset covers what all of them have seen.
Nothing here awaits, so a snapshot is atomic on the event loop.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.emit import Emitter
from tidemill.engine.graphs.checkpoints.key_capture import KeyCapture, capture_keys
from tidemill.engine.graphs.checkpoints.named_values import NamedEncoder
from tidemill.engine.graphs.durability.checksums import snapshot_part
from tidemill.engine.graphs.firing.graph_caller import PendingFiring
from tidemill.engine.graphs.reactors.outbox import OutboxEntry
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.graphs.keys import encode_key
from tidemill.graphs.snapshot import (
    AccumulatorPart,
    ReactorPart,
    StoredFeed,
    StoredFiring,
    StoredOutboxEntry,
    StoredOutput,
    encode_stored,
)
from tidemill.storage.graph_ports import JournalTrim, PartKey, SnapshotPart


class CheckpointGroup(msgspec.Struct, frozen=True):
    """Durable reactors that share accumulators, directly or through other reactors, and all those accumulators."""

    reactors: list[RunningReactor]
    accumulators: list[RunningAccumulator]


def checkpoint_groups(reactors: Iterable[RunningReactor]) -> list[CheckpointGroup]:
    """Group reactors with the durable ones that share accumulators with them."""
    groups: list[CheckpointGroup] = []
    seen: set[RunningReactor] = set()
    for reactor in reactors:
        if reactor not in seen:
            groups.append(_group_of(reactor))
            seen.update(groups[-1].reactors)
    return groups


def _group_of(start: RunningReactor) -> CheckpointGroup:
    reactors = [start]
    known = {start}
    accumulators: dict[RunningAccumulator, None] = {}
    for reactor in reactors:  # the list grows meanwhile
        for one in reactor.accumulators:
            if one in accumulators:
                continue  # all its targets are known
            accumulators[one] = None
            for target, _ in one.emitter.targets:
                other = target.reactor
                if isinstance(other, RunningReactor) and other.durability.is_durable and other not in known:
                    known.add(other)
                    reactors.append(other)
    return CheckpointGroup(reactors, list(accumulators))


class GroupSnapshot(msgspec.Struct, frozen=True):
    """The snapshot of one group, ready to be written."""

    group: CheckpointGroup
    parts: list[SnapshotPart]
    marks: list[tuple[int, Any]]
    """The journal position and the offset of each accumulator."""
    keys: list[KeyCapture]

    @property
    def _emitters(self) -> list[Emitter]:
        return [one.emitter for one in self.group.accumulators]

    @property
    def journal_trims(self) -> list[JournalTrim]:
        """The journal entries that may be deleted with this write: those that the generation before it covers.

        Entries stay for a reactor that is being replaced and has not seen them.
        """
        positions = ((one, min((one.checkpointed_position, *one.departed_reactors.values()))) for one in self._emitters)
        return [JournalTrim(one.journal_writer.key, position) for one, position in positions if position]

    def mark_written(self) -> None:
        """Record that this is the newest generation in the store."""
        components: list[RunningReactor | RunningAccumulator] = [*self.group.reactors, *self.group.accumulators]
        for component, part in zip(components, self.parts, strict=True):
            component.generation = part.generation
        for one, mark in zip(self._emitters, self.marks, strict=True):
            one.checkpointed_position, one.checkpointed_offset = mark
        for capture in self.keys:
            capture.mark_written()

    def mark_failed(self) -> None:
        """Include everything again in the next checkpoint."""
        for capture in self.keys:
            capture.mark_failed()


def take_snapshot(group: CheckpointGroup, moment: int, at: datetime) -> GroupSnapshot:
    """Take the snapshot of a group, or raise UnstorableError; later changes request the next checkpoint."""
    parts = [_build_part(one, moment, at, encode_stored(reactor_part(one))) for one in group.reactors]
    parts += [_build_part(one, moment, at, encode_stored(accumulator_part(one))) for one in group.accumulators]
    keys = capture_keys(group.reactors, moment)
    for reactor in group.reactors:
        reactor.firing_loop.mark_checkpointed()
    return GroupSnapshot(group, parts, [(one.emitter.position, one.emitter.offset) for one in group.accumulators], keys)


def _build_part(
    component: RunningReactor | RunningAccumulator, moment: int, at: datetime, payload: bytes
) -> SnapshotPart:
    key = PartKey(component.tenant, component.component, component.name)
    return snapshot_part(key, component.generation + 1, moment, at, component.schema_digest, payload)


def accumulator_part(accumulator: RunningAccumulator) -> AccumulatorPart:
    """Return what a checkpoint keeps of an accumulator."""
    emitter = accumulator.emitter
    codecs = emitter.codecs
    return AccumulatorPart(
        sequence=emitter.sequence,
        position=emitter.position,
        state=None if codecs.state is None else codecs.state.encode(emitter.stored_state(emitter.held)),
        offset=emitter.offset,
        held=[codecs.buffered.encode(value) for value in emitter.held.events],
        kind=accumulator.definition.kind,
    )


def reactor_part(reactor: RunningReactor) -> ReactorPart:
    """Return what a checkpoint keeps of a reactor, without its keys."""
    loop = reactor.firing_loop
    inputs, series = reactor.inputs_of(None), loop.log.series  # what belongs to single keys is written apart
    encoder = NamedEncoder(reactor.accumulators)
    loop.log.close_burst()  # counts its firings in the series
    return ReactorPart(
        cache=encoder.encode_values(inputs.cache),
        dirty=encoder.flag_names(inputs.dirty),
        queue=[(*encoder.encode_entry(index, value), position) for index, value, position in inputs.queue],
        consumed=[encoder.encode_entry(index, value) for index, value in inputs.consumed],
        firings=[_stored_firing(firing, encoder) for firing in loop.unfinished_firings()],
        position=max((one.emitter.position for one in reactor.accumulators), default=0),
        applied=inputs.applied_position,
        series=series.name,
        number=series.number,
        positions={one.name: one.emitter.position_for(loop) for one in reactor.accumulators},
        posts=[_stored_entry(entry, encoder) for entry in reactor.outbox.entries],
        feeds=[StoredFeed(*feed.target, feed.encoded or b"") for feed in reactor.feed_outbox.entries],
        **reactor.keys.stored_facts(),
    )


def _stored_firing(firing: PendingFiring, encoder: NamedEncoder) -> StoredFiring:
    inputs = firing.inputs
    return StoredFiring(
        series=firing.series,
        number=firing.number,
        attempt=firing.attempt,
        manual=firing.manual,
        flags=encoder.flag_names(inputs.flags),
        inputs=encoder.encode_values(inputs.snapshot),
        consumed=[encoder.encode_entry(index, value) for index, value in inputs.consumed],
        graphs=list(firing.retry_graphs),
        key=_stored_key(firing.key),
    )


def _stored_entry(entry: OutboxEntry, encoder: NamedEncoder) -> StoredOutboxEntry:
    record = entry.record
    at = record.wall_offset + record.started
    return StoredOutboxEntry(
        record.series,
        record.number,
        at,
        encoder.encode_values(record.snapshot),
        sorted(one.workflow for one, output in entry.undelivered.items() if output is None),
        [StoredOutput(one, output) for one, output in entry.undelivered.items() if output is not None],
        _stored_key(record.key),
    )


def _stored_key(key: Any) -> bytes | None:
    return None if key is None else encode_key(key)
