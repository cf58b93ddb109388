"""The states of the keys of one reactor, or of one of its partitions, and which of them is selected.

There is one firing loop, one set of accumulators and one compiled graph for all keys. To work on a key, its state is
selected: the loop's inputs and the accumulators then hold what belongs to it, and everything else runs as without keys.
A step that works on a key selects it again after each await, because other keys may have been selected meanwhile.
"""

from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

from tidemill.engine.graphs.firing.queue_gate import QueueGate
from tidemill.graphs.inputs import Inputs, QueuedBoundary, SourceBoundary
from tidemill.graphs.keys import Key

Result = TypeVar("Result")


class KeyedContent(Protocol):
    """An accumulator that keeps something for each key: running state, a buffer or a window."""

    def take_content(self) -> Any:
        """Return what it holds for the selected key."""

    def set_content(self, content: Any) -> None:
        """Hold this for the key that is being selected; None: the key is new to it."""


class KeyState:
    """What a reactor and its accumulators hold for one key, while the key is not selected."""

    __slots__ = (
        "applied_position",
        "cache",
        "consumed",
        "contents",
        "dirty",
        "is_changed",
        "is_fast",
        "key",
        "pauses",
        "pins",
        "queue",
        "reserved",
        "slot",
    )

    def __init__(self, key: Key, cache: list[Any]) -> None:
        self.key = key
        self.cache = cache
        self.dirty = 0
        self.applied_position = 0
        self.queue: deque[QueuedBoundary] | None = None
        self.consumed: deque[SourceBoundary] | None = None
        self.contents: list[Any] | None = None  # of the accumulators that keep something, in their order
        self.is_fast = False  # whether a boundary may be fired straight from its push, once the reactor allows it
        self.is_changed = False  # since the last snapshot
        self.pauses = 0  # retries that pause the queue
        self.pins = 0  # tasks, firings and commits that will select it again
        self.reserved = 0  # queue space for boundaries whose commit is in progress
        self.slot: int | None = None  # of its newest snapshot in the store

    @property
    def next_slot(self) -> int:
        """The slot of its next snapshot: the newest one stays until that is written."""
        return 0 if self.slot is None else 1 - self.slot


class InactiveKeys(Protocol):
    """The keys that are in the store and not active."""

    @property
    def drops_idle(self) -> bool:
        """Whether keys may leave the memory: one that an event needs must be held."""

    def is_stored(self, key: Key) -> bool:
        """Return whether a key that is not active may be in the store."""

    async def load(self, key: Key) -> KeyState:
        """Return the state of a key, read from the store if it is not active; StoreError if it cannot be read."""

    def holding(self, keys: Collection[Key]) -> AbstractAsyncContextManager[None]:
        """Load those of some keys that are in the store, and keep them active meanwhile.

        StoreError if they cannot be read.
        """


class NoInactiveKeys(InactiveKeys):
    """Without a store all keys are active."""

    drops_idle = False

    def is_stored(self, key: Key) -> bool:  # noqa: ARG002
        return False

    async def load(self, key: Key) -> KeyState:
        raise LookupError(f"no store holds the state of key {key!r}")

    @asynccontextmanager
    async def holding(self, keys: Collection[Key]) -> AsyncIterator[None]:  # noqa: ARG002
        yield


class KeyStates:
    """The active keys, the one that is selected, and those that a firing may be due for."""

    def __init__(self, inputs: Inputs, queue_gate: QueueGate) -> None:
        self._inputs = inputs
        self._gate = queue_gate
        self._initial_cache = inputs.cache.copy()
        self._holders: list[KeyedContent] = []
        self.active: dict[Key, KeyState] = {}
        self.due: OrderedDict[KeyState, None] = OrderedDict()  # its first key is found at once, a dict's is searched
        self.changed: dict[KeyState, None] = {}
        self.writing: dict[KeyState, None] = {}  # in the checkpoint that is being written
        self._blank = KeyState(None, self._initial_cache.copy())
        self.current = self._blank
        self.memory: InactiveKeys = NoInactiveKeys()

    def add_holder(self, holder: KeyedContent) -> None:
        """Keep something of this accumulator for each key; it has not processed any event yet."""
        self._holders.append(holder)

    def content_of(self, holder: KeyedContent, state: KeyState) -> Any:
        """Return what an accumulator holds for a key, which stays selected or not; None if the key is new to it."""
        if state is self.current:
            return holder.take_content()
        return None if state.contents is None else state.contents[self._holders.index(holder)]

    # -- finding

    def find(self, key: Key) -> KeyState | None:
        """Return the state of a key, a new one if the key is new; None if it must be loaded from the store."""
        state = self.active.get(key)
        return self.create(key) if state is None and not self.memory.is_stored(key) else state

    def create(self, key: Key) -> KeyState:
        """Return the state of a key as it is at first, which is active from now on."""
        state = self.active[key] = KeyState(key, self._initial_cache.copy())
        return state

    async def activate(self, key: Key) -> KeyState:
        """Return the state of a key, loaded from the store if it is there."""
        return self.find(key) or await self.memory.load(key)

    @property
    def current_key(self) -> Key | None:
        """The selected key; None if there is none."""
        return self.current.key

    # -- selecting

    def select(self, state: KeyState) -> None:
        """Let the inputs and the accumulators hold what belongs to a key."""
        if state is self.current:
            return
        self._put_away(self.current)
        self.current = state
        inputs = self._inputs
        inputs.cache, inputs.dirty, inputs.applied_position = state.cache, state.dirty, state.applied_position
        self._gate.reserved = state.reserved
        if state.queue is not None:
            inputs.queue = state.queue
        if state.consumed is not None:
            inputs.consumed = state.consumed
        if self._holders:
            for holder, content in zip(self._holders, state.contents or [None] * len(self._holders), strict=True):
                holder.set_content(content)

    def _put_away(self, state: KeyState) -> None:
        """Keep what the inputs and the accumulators hold. Empty queues are not kept: each takes 600 bytes."""
        inputs = self._inputs
        state.dirty, state.applied_position, state.reserved = inputs.dirty, inputs.applied_position, self._gate.reserved
        state.queue = inputs.queue or None
        if state.queue is not None:
            inputs.queue = deque()
        state.consumed = inputs.consumed or None
        if state.consumed is not None:
            inputs.consumed = deque(maxlen=inputs.capacity)
        if self._holders:
            state.contents = [holder.take_content() for holder in self._holders]

    async def with_key(self, state: KeyState, work: Coroutine[Any, Any, Result]) -> Result:
        """Do work that starts with a key selected, in a new task; the key stays active meanwhile."""
        state.pins += 1
        try:
            self.select(state)
            return await work
        finally:
            state.pins -= 1

    def deselect(self) -> None:
        """Select no key."""
        self._blank = KeyState(None, self._initial_cache.copy())
        self.select(self._blank)

    def put_away_current(self) -> None:
        """Bring the state of the selected key up to date, for one who reads states."""
        current = self.current
        self.deselect()
        self.select(current)

    def select_each(self) -> Iterator[KeyState]:
        """Select one active key after the other."""
        for state in tuple(self.active.values()):
            self.select(state)
            yield state

    # -- what is due, and what has changed

    def add_due(self) -> None:
        """Evaluate the criteria of the selected key with the next firings."""
        self.due[self.current] = None

    def add_all_due(self) -> None:
        """Evaluate the criteria of every key that has something to evaluate."""
        self.put_away_current()
        self.due.update(dict.fromkeys(one for one in self.active.values() if one.dirty or one.queue))

    def move_to_end(self, state: KeyState) -> None:
        """Let all other due keys go first."""
        self.due.move_to_end(state)

    def mark_changed(self) -> None:
        """Include the selected key in the next snapshot. Keys that changed last are the last ones to be dropped."""
        state = self.current
        if not state.is_changed and state.key is not None:
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
