"""Restores the keys of keyed reactors from their snapshots: some before the start, the others when they are needed.

Of a key the newest intact snapshot counts. A damaged one falls back to the one before it, which loses what happened to
this key in between; that is reported.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.held import Held
from tidemill.engine.graphs.checkpoints.named_values import Decode, NamedDecoder
from tidemill.engine.graphs.durability.checksums import is_key_intact
from tidemill.engine.graphs.key_state import KeyState
from tidemill.engine.graphs.keys.key_index import KeyIndex
from tidemill.engine.graphs.keys.keyed_reactor import KeyedReactor
from tidemill.engine.graphs.unread_state import UnreadState
from tidemill.graphs.definition import Reactor
from tidemill.graphs.inputs import Inputs
from tidemill.graphs.keys import Key, decode_key, encode_key
from tidemill.graphs.snapshot import KeyPart
from tidemill.storage.graph_ports import KeySnapshot, PartKey
from tidemill.storage.store import Store

KEYS_PER_PAGE = 10_000
REPORT_INTERVAL = 60.0  # seconds between reports of what is not read of keys


class StoredKeys(msgspec.Struct, frozen=True):
    """The stored keys of a reactor that is about to start."""

    index: KeyIndex
    rows: list[KeySnapshot]
    """Of the keys that have, or had, work to do without a new event, and of those that the journal changes."""
    newest_moment: int
    changed: frozenset[bytes] = frozenset()
    """The keys that the journal changes."""


async def read_stored_keys(store: Store, reactor: PartKey, wanted: Sequence[bytes]) -> StoredKeys:
    """Read which keys of a reactor are stored, and the snapshots of those that it starts with."""
    index, after = KeyIndex(), b""
    while page := await store.key_snapshots.list_keys(reactor, after, KEYS_PER_PAGE):
        after = page[-1]
        for key in page:
            index.add(decode_key(key))
    if not index.count:
        return StoredKeys(index, [], 0)
    rows = await store.key_snapshots.read_pending(reactor)
    known = {row.key for row in rows}
    rows += await store.key_snapshots.read(reactor, [key for key in wanted if key not in known])
    newest_moment = (await store.checkpoints.read_high_water_marks()).moment
    return StoredKeys(index, rows, newest_moment, frozenset(wanted))


class KeyRestorer:
    """Makes keys of one reactor active, with the state that their snapshots hold."""

    def __init__(self, reactor: KeyedReactor, report: Callable[[str], None], unread: UnreadState) -> None:
        self._reactor = reactor
        self._keys = reactor.firing_loop.keys
        self._report = report
        self._unread = unread

    def restore(self, rows: Iterable[KeySnapshot]) -> None:
        """Restore the keys that these snapshots belong to."""
        for stored, snapshots in _by_key(rows).items():
            self._restore_key(decode_key(stored), snapshots)

    def restore_at_start(self, keys: StoredKeys) -> None:
        """Restore the keys that a reactor starts with; the others are read when they are needed."""
        for stored, snapshots in _by_key(keys.rows).items():
            if stored in keys.changed or self._has_work(snapshots):
                self._restore_key(decode_key(stored), snapshots)

    def _has_work(self, snapshots: list[KeySnapshot]) -> bool:
        """Return whether a key has work to do now, and not only in its older snapshot, or is damaged."""
        counting = [row for row in snapshots if self._reactor.key_history.counts(row.moment)]
        newest = max(counting, key=lambda row: row.moment, default=None)
        return newest is not None and (newest.is_pending or not is_key_intact(newest))

    def _restore_key(self, key: Key, snapshots: list[KeySnapshot]) -> None:
        state = self._keys.create(key)
        state.slot = snapshots[0].slot
        row = self._choose(key, snapshots)
        if row is not None:
            state.slot = row.slot
            self._unread.key = key
            self._apply(row, state, f"key {key!r}")

    def _choose(self, key: Key, snapshots: list[KeySnapshot]) -> KeySnapshot | None:
        counting = [row for row in snapshots if self._reactor.key_history.counts(row.moment)]
        newest_first = sorted(counting, key=lambda row: -row.moment)
        intact = [row for row in newest_first if is_key_intact(row)]
        if len(intact) < len(newest_first):
            followed = "the one before it is used" if intact else "there is no other: it starts empty"
            if not intact or newest_first[0] is not intact[0]:
                self._report(f"the snapshot of key {key!r} is damaged; {followed}")
            else:
                self._report(f"an older snapshot of key {key!r} is damaged; the newest one is intact and is used")
        return intact[0] if intact else None

    def _apply(self, row: KeySnapshot, state: KeyState, subject: str) -> None:
        """Fill the state of a key."""
        try:
            part = msgspec.msgpack.decode(row.payload, type=KeyPart)
        except msgspec.DecodeError as error:  # intact, so another version of Tidemill wrote it
            self._report(f"the snapshot of {subject} cannot be read by this version: {error}; it starts empty")
            return

        is_reset = row.moment <= self._reactor.key_history.reset_moment
        self._apply_inputs(part, self._keys.inputs_of(state), is_reset=is_reset)
        for one in self._reactor.accumulators:
            if not (is_reset and one.definition.is_window):
                _apply_content(one, one.held_at(state.key), part, self._unread.read_fitting)

    def _apply_inputs(self, part: KeyPart, inputs: Inputs, *, is_reset: bool) -> None:
        decoder = NamedDecoder(self._reactor.accumulators, self._unread.read_fitting)
        if not is_reset:
            inputs.restore(decoder.decode_values(part.cache), decoder.flag_mask(part.dirty), part.applied)
            inputs.consumed.extend(decoder.decode_entries(part.consumed))
        inputs.queue.extend(
            (*entry, at) for name, data, at in part.queue for entry in decoder.decode_entries([(name, data)])
        )


def _by_key(rows: Iterable[KeySnapshot]) -> dict[bytes, list[KeySnapshot]]:
    found: dict[bytes, list[KeySnapshot]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    return found


def _apply_content(accumulator: RunningAccumulator, held: Held, part: KeyPart, decode: Decode) -> None:
    codecs, name, shown = accumulator.emitter.codecs, accumulator.name, accumulator.definition.declared_name
    if codecs.state is not None and name in part.states:
        what = f"the running state of '{shown}'"
        state = decode(codecs.state, part.states[name], what, accumulator.definition.state_upgrade)
        if state is not None:
            held.state = held.committed_state = state
    kind, stored = part.held.get(name, ("", []))
    if stored and kind == str(accumulator.definition.kind):
        values = [decode(codecs.buffered, value, f"an event that '{shown}' held", None) for value in stored]
        accumulator.kind.replace_events(held, [value for value in values if value is not None])


class KeyLoader:
    """Reads the keys of a running reactor that are not active."""

    def __init__(self, reactor: KeyedReactor, store: Store) -> None:
        self._reactor = reactor
        self._store = store
        self._runtime = reactor.runtime
        self._is_waiting = False  # the last report is less than a minute old
        self._version: Reactor | None = None  # that the restorer and the report are for

    def _start_version(self) -> None:
        self._version = self._reactor.definition
        self._unread = UnreadState()
        report = partial(self._runtime.supervisor.on_partial_restore, self._reactor)
        self._restorer = KeyRestorer(self._reactor, report, self._unread)

    async def read(self, keys: Sequence[Key]) -> None:
        """Make keys active that the store has."""
        if self._version is not self._reactor.definition:
            self._start_version()
        part = PartKey(self._reactor.tenant, "reactor", self._reactor.name)
        self._restorer.restore(await self._store.key_snapshots.read(part, [encode_key(key) for key in keys]))
        self._report_unread()

    def _report_unread(self) -> None:
        """Report what was not read so far, at most once a minute."""
        if self._unread.has_news and not self._is_waiting:
            self._unread.has_news = False
            if (reason := self._unread.describe_unfit()) is not None:
                self._runtime.supervisor.on_partial_restore(self._reactor, reason)
            self._runtime.supervisor.on_unread_state(self._reactor, self._unread.describe_fields())
            self._is_waiting = True
            self._runtime.tasks.start(f"reactor {self._reactor.name}: unread state", self._report_later())

    async def _report_later(self) -> None:
        await self._runtime.clock.sleep(REPORT_INTERVAL)
        self._is_waiting = False
        self._report_unread()
