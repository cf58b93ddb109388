"""Snapshots of the keys of a keyed reactor: those that have changed since the last checkpoint."""

from collections.abc import Sequence

import msgspec

from tidemill.engine.graphs.checkpoints.named_values import NamedEncoder
from tidemill.engine.graphs.durability.checksums import key_snapshot
from tidemill.engine.graphs.key_state import KeyState
from tidemill.engine.graphs.keys.keyed_reactor import KeyedReactor
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.graphs.keys import encode_key
from tidemill.graphs.snapshot import KeyPart, encode_stored
from tidemill.storage.graph_ports import KeySnapshot, PartKey


class KeyCapture(msgspec.Struct, frozen=True):
    """The snapshots of a reactor's changed keys."""

    reactor: KeyedReactor
    states: list[KeyState]
    rows: list[KeySnapshot]

    def mark_written(self) -> None:
        """Record that these are the newest snapshots in the store; idle keys may be dropped from memory."""
        self.reactor.firing_loop.memory.on_written(self.states)

    def mark_failed(self) -> None:
        """Include the keys in the next checkpoint."""
        self.reactor.firing_loop.keys.end_writing(is_written=False)


def capture_keys(reactors: Sequence[RunningReactor], moment: int) -> list[KeyCapture]:
    """Take the snapshots of the changed keys of keyed reactors, or raise UnstorableError and leave them changed."""
    captures: list[KeyCapture] = []
    for reactor in reactors:
        if not isinstance(reactor, KeyedReactor):
            continue
        states = reactor.firing_loop.keys.take_changed()
        capture, encoder = KeyCapture(reactor, states, []), NamedEncoder(reactor.accumulators)
        captures.append(capture)
        try:
            capture.rows.extend(_capture_key(reactor, state, moment, encoder) for state in states)
        except BaseException:
            for one in captures:
                one.mark_failed()
            raise
    return captures


def _capture_key(reactor: KeyedReactor, state: KeyState, moment: int, encoder: NamedEncoder) -> KeySnapshot:
    slot = state.next_slot
    part = PartKey(reactor.tenant, "reactor", reactor.name)
    payload, is_pending = encode_stored(key_part(reactor, state, encoder)), reactor.keys.is_pending(state)
    return key_snapshot(part, encode_key(state.key), slot, moment, is_pending=is_pending, payload=payload)


def key_part(reactor: KeyedReactor, state: KeyState, encoder: NamedEncoder) -> KeyPart:
    """Return the content of a key."""
    inputs = reactor.firing_loop.keys.inputs_of(state)
    states, held = {}, {}
    for one in reactor.accumulators:
        codecs, kept = one.emitter.codecs, one.held_at(state.key)
        if codecs.state is not None:
            states[one.name] = codecs.state.encode(one.emitter.stored_state(kept))
        if kept.events:
            held[one.name] = (str(one.definition.kind), [codecs.buffered.encode(value) for value in kept.events])
    return KeyPart(
        cache=encoder.encode_values(inputs.cache),
        dirty=encoder.flag_names(inputs.dirty),
        queue=[(*encoder.encode_entry(index, value), position) for index, value, position in inputs.queue],
        consumed=[encoder.encode_entry(index, value) for index, value in inputs.consumed],
        applied=inputs.applied_position,
        states=states,
        held=held,
    )
