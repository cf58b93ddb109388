"""The states of the keys of one reactor, or of one of its partitions: those in memory, and which are due or changed.

There is one firing loop, one set of accumulators and one compiled graph for all keys. Whatever works on a key is given
its state, and hands it on. The loop has one `Inputs`, the working copy of one key at a time: `inputs_of` loads a key
into it, and puts the one before it away.
"""

from collections import OrderedDict, deque
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from tidemill.engine.graphs.key_state import KeyState
from tidemill.engine.graphs.keys.key_index import KeyIndex
from tidemill.graphs.inputs import Inputs
from tidemill.graphs.keys import Key

Result = TypeVar("Result")


class KeyStates:
    """The active keys, and those that a firing may be due for."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._initial_cache = inputs.cache.copy()
        self._loaded = self._blank()
        self.holders = 0
        """The accumulators that hold something for each key."""
        self.active: dict[Key, KeyState] = {}
        self.due: OrderedDict[KeyState, None] = OrderedDict()  # its first key is found at once, a dict's is searched
        self.changed: dict[KeyState, None] = {}
        self.writing: dict[KeyState, None] = {}  # in the checkpoint that is being written
        self.stored = KeyIndex()
        """The keys that have a snapshot in the store."""

    def _blank(self) -> KeyState:
        return KeyState(None, self._initial_cache.copy())

    def add_holder(self) -> int:
        """Give an accumulator that holds something for each key its place among them."""
        self.holders += 1
        return self.holders - 1

    # -- finding

    def find(self, key: Key) -> KeyState | None:
        """Return the state of a key, a new one if the key is new; None if it must be loaded from the store."""
        state = self.active.get(key)
        return self.create(key) if state is None and not self.is_stored(key) else state

    def is_stored(self, key: Key) -> bool:
        """Return whether a key that is not active may be in the store."""
        return self.stored.count > 0 and key in self.stored

    def create(self, key: Key) -> KeyState:
        """Return the state of a key as it is at first, which is active from now on."""
        state = self.active[key] = KeyState(key, self._initial_cache.copy())
        return state

    async def pinned(self, state: KeyState, work: Coroutine[Any, Any, Result]) -> Result:
        """Do work on a key, which stays active meanwhile."""
        state.pins += 1
        try:
            return await work
        finally:
            state.pins -= 1

    # -- inputs

    def inputs_of(self, state: KeyState | None) -> Inputs:
        """Return the inputs of a key, only until those of another one are asked for; without a key, empty ones."""
        inputs = self._inputs
        if state is self._loaded:
            return inputs
        self._put_away(self._loaded)
        self._loaded = state = state or self._blank()
        inputs.cache, inputs.dirty, inputs.applied_position = state.cache, state.dirty, state.applied_position
        if state.queue is not None:
            inputs.queue = state.queue
        if state.consumed is not None:
            inputs.consumed = state.consumed
        return inputs

    def _put_away(self, state: KeyState) -> None:
        """Keep what the inputs have of a key. Empty queues are not kept: each takes 600 bytes."""
        inputs = self._inputs
        state.dirty, state.applied_position = inputs.dirty, inputs.applied_position
        state.queue = inputs.queue or None
        if state.queue is not None:
            inputs.queue = deque()
        state.consumed = inputs.consumed or None
        if state.consumed is not None:
            inputs.consumed = deque(maxlen=inputs.capacity)

    def put_away(self) -> None:
        """Bring all states up to date, for one who reads them."""
        self.inputs_of(None)

    def queue_length(self, state: KeyState) -> int:
        """Return how many boundaries wait in the queue of a key."""
        return len(self._inputs.queue if state is self._loaded else state.queue or ())

    # -- what is due, and what has changed

    def add_all_due(self) -> None:
        """Evaluate the criteria of every key that has something to evaluate."""
        self.put_away()
        self.due.update(dict.fromkeys(one for one in self.active.values() if one.dirty or one.queue))

    def mark_changed(self, state: KeyState) -> None:
        """Include a key in the next snapshot. Keys that changed last are the last ones to be dropped."""
        if not state.is_changed:
            state.is_changed = True
            self.changed[state] = None
            self.active[state.key] = self.active.pop(state.key)

    def take_changed(self) -> list[KeyState]:
        """Return the keys that have changed since the last snapshot; the next change of each takes the slow path."""
        self.writing, self.changed = self.changed, {}
        for state in self.writing:
            state.is_changed = state.is_fast = False
        return list(self.writing)

    def end_writing(self, *, is_written: bool) -> None:
        """Forget the keys of the last snapshot if it was written, or include them in the next one."""
        written, self.writing = self.writing, {}
        if not is_written:
            for state in written:
                state.is_changed = True
            self.changed = written | self.changed

    def close_fast_paths(self, states: Iterable[KeyState]) -> None:
        """Send the next boundary of these keys down the slow path."""
        for state in states:
            state.is_fast = False
