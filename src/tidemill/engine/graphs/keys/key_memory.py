"""The memory of a keyed reactor: a bounded number of active keys; idle ones are dropped, and read again when needed.

A key is dropped only after a checkpoint has written it, so that dropping it costs nothing. Which keys changed last is
known to the length of a checkpoint interval: events of active keys do not pay for it.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

from tidemill.engine.graphs.host import FiringHost
from tidemill.engine.graphs.key_state import KeyState
from tidemill.engine.graphs.keys.key_states import KeyStates
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.keys import Key
from tidemill.kernel.errors import OperationError, StoreError

KEYS_PER_READ = 1000
_SCANNED_AT_LEAST = 1024  # keys that are looked at for idle ones, at least


class KeyMemory:
    """Loads and drops the keys of one reactor."""

    def __init__(
        self, reactor: FiringHost, keys: KeyStates, runtime: GraphRuntime, is_busy: Callable[[KeyState], bool]
    ) -> None:
        """Drop no key that `is_busy`."""
        self._name = reactor.definition.name
        self._keys = keys
        self._runtime = runtime
        self.read = runtime.durability.key_reader(reactor)  # without a store nothing is dropped
        self._is_busy = is_busy
        self._futures: dict[Key, asyncio.Future[Any]] = {}
        self._wanted: Counter[Key] = Counter()
        self._is_reading = False

    @property
    def drops_idle(self) -> bool:
        """Whether keys may leave the memory: one that an event needs must be held."""
        return self.read is not None

    # -- loading

    async def activate(self, key: Key) -> KeyState:
        """Return the state of a key, loaded from the store if it is there; StoreError if it cannot be read."""
        return self._keys.find(key) or await self.load(key)

    async def load(self, key: Key) -> KeyState:
        """Return the state of a key, read from the store if it is not active; StoreError if it cannot be read."""
        async with self.holding([key]):
            return self._keys.active[key]

    @asynccontextmanager
    async def holding(self, keys: Collection[Key]) -> AsyncIterator[None]:
        """Load those of some keys that are in the store, and keep them active meanwhile; StoreError if it fails."""
        self._wanted.update(keys)
        try:
            for key in keys:
                self._want(key)
            for key in keys:
                if key in self._futures:
                    await asyncio.shield(self._futures[key])
            yield
        finally:
            self._release(keys)

    def _release(self, keys: Collection[Key]) -> None:
        for key in keys:
            if self._wanted[key] > 1:
                self._wanted[key] -= 1
            else:
                del self._wanted[key]

    def _want(self, key: Key) -> None:
        """Read a key with the next ones, if it is in the store and not active."""
        if key in self._keys.active or key in self._futures or not self._keys.is_stored(key):
            return
        self._futures[key] = asyncio.get_running_loop().create_future()
        if not self._is_reading:
            self._is_reading = True
            self._runtime.tasks.start(f"reactor {self._name}: keys", self._read_wanted())

    async def _read_wanted(self) -> None:
        try:
            await asyncio.sleep(0)  # keys that are wanted in the same turn of the loop are read together
            while self._futures:
                keys = list(islice(self._futures, KEYS_PER_READ))
                await self._read_some(keys)
        finally:
            self._is_reading = False
            for future in self._futures.values():
                future.set_exception(OperationError("the node ended before the state of this key was read"))
                future.exception()  # marks it as retrieved: some have no waiter
            self._futures.clear()

    async def _read_some(self, keys: Sequence[Key]) -> None:
        assert self.read is not None, "keys are in the store only if there is one"
        error: StoreError | None = None
        try:
            await self.read([key for key in keys if key not in self._keys.active])
        except StoreError as raised:
            error = raised
        for key in keys:
            future = self._futures.pop(key)
            if error is not None:
                future.set_exception(error)
                future.exception()  # marks it as retrieved: some have no waiter
                continue
            if key not in self._keys.active:  # another key has the same fingerprint in the index
                self._keys.create(key)
            future.set_result(None)
        self.drop_idle()

    # -- dropping

    @property
    def limit(self) -> int:
        """How many keys may be active: a fair share of what the node may have."""
        return max(1, self._runtime.settings.active_keys // max(1, self._runtime.keyed_reactors))

    @property
    def total(self) -> int:
        """How many keys there are, in memory and in the store."""
        return self._keys.stored.count + sum(state.slot is None for state in self._keys.active.values())

    def on_written(self, states: Iterable[KeyState]) -> None:
        """Record that the newest snapshots of these keys are in the store."""
        for state in states:
            if state.slot is None:
                self._keys.stored.add(state.key)
            state.slot = state.next_slot
        self._keys.end_writing(is_written=True)
        self.drop_idle()

    def drop_idle(self) -> None:
        """Drop idle keys, those that changed first, if more are active than the limit allows."""
        excess = len(self._keys.active) - self.limit
        if excess <= 0 or self.read is None:
            return
        self._keys.put_away()
        scanned = islice(self._keys.active.values(), max(2 * excess, _SCANNED_AT_LEAST))
        idle = list(islice((one for one in scanned if self._is_idle(one)), excess))
        for state in idle:
            del self._keys.active[state.key]
            state.held = None  # it refers to the state: without the cycle both are freed at once

    def _is_idle(self, state: KeyState) -> bool:
        if state.pins or state.is_changed or state.pauses or state.reserved or state.queue:
            return False
        keys = self._keys
        return state not in keys.due and state not in keys.writing and not self._is_needed(state)

    def _is_needed(self, state: KeyState) -> bool:
        return state.key in self._wanted or self._is_busy(state)
