"""The gate in front of a reactor's queue: overflow policies, and the pushers that wait for space."""

import asyncio
from collections import Counter

import msgspec

from tidemill.engine.graphs.key_state import KeyState
from tidemill.graphs.definition import Overflow
from tidemill.graphs.inputs import Inputs


class OverflowPolicy(msgspec.Struct, frozen=True):
    """How a reactor treats a boundary that comes when its queue is full."""

    name: Overflow
    blocks: bool = False
    """Whether pushers wait for space."""
    rejects: bool = False
    """Whether the boundary is rejected."""
    drops_oldest: bool = False
    """Whether the oldest queued boundary makes room."""


BLOCK = OverflowPolicy("block", blocks=True)
REJECT = OverflowPolicy("reject", rejects=True)
DROP_OLDEST = OverflowPolicy("drop_oldest", drops_oldest=True)
OVERFLOW_POLICIES: dict[Overflow, OverflowPolicy] = {policy.name: policy for policy in (BLOCK, REJECT, DROP_OLDEST)}


class QueueGate:
    """Decides whether a boundary may come now, must wait, or is rejected. The latest strategy always has space.

    Boundaries that are lost here are counted in `dropped`.
    """

    def __init__(self, reactor: str, inputs: Inputs, overflow: Overflow, dropped: Counter[str]) -> None:
        self.reactor = reactor
        self._inputs = inputs
        self._policy = OVERFLOW_POLICIES[overflow]
        self._dropped = dropped
        self._is_closed = False
        self.reserved = 0  # for boundaries whose commit is in progress
        self.has_waiters = False
        self._freed = asyncio.Event()

    @property
    def capacity(self) -> int:
        """How many boundaries the queue takes."""
        return self._inputs.capacity

    def set_overflow(self, overflow: Overflow) -> None:
        """Apply a newer version's policy, and wake the waiters: its capacity may be larger."""
        self._policy = OVERFLOW_POLICIES[overflow]
        self.wake_waiters()

    def is_blocked(self, key_state: KeyState | None = None) -> bool:  # noqa: ARG002 - without keys
        """Return whether pushers must wait; with keys, those of one key."""
        inputs = self._inputs
        is_blocking = self._policy.blocks and inputs.is_sequential and not self._is_closed
        return is_blocking and len(inputs.queue) + self.reserved >= inputs.capacity

    def space(self, key_state: KeyState | None = None) -> int:  # noqa: ARG002 - without keys
        """Return how many boundaries may come before a push has to wait or is rejected; none beyond the capacity."""
        inputs = self._inputs
        return max(0, inputs.capacity - len(inputs.queue) - self.reserved)

    @property
    def rejects(self) -> bool:
        """Whether a push is rejected when the queue is full."""
        return self._policy.rejects

    def is_rejecting(self, key_state: KeyState | None = None) -> bool:
        """Return whether a push is rejected."""
        return self._policy.rejects and self._inputs.is_sequential and not self.space(key_state)

    def reject(self) -> str:
        """Count a rejected push, and return the reason for its receipt."""
        self._dropped["full"] += 1
        return f"the queue of reactor '{self.reactor}' is full"

    def make_room(self) -> bool:
        """Apply the policy to a full queue for a boundary that cannot wait; return whether it may come.

        A blocking queue lets it exceed the capacity.
        """
        if self._policy.rejects:
            self._dropped["full"] += 1
            return False
        if self._policy.drops_oldest:
            self._inputs.drop_oldest()
            self._dropped["overflow"] += 1
        return True

    def reserve(self, key_state: KeyState | None = None) -> None:  # noqa: ARG002 - without keys
        """Reserve space for a boundary while it is being committed."""
        self.reserved += 1

    def release(self, key_state: KeyState | None = None) -> None:  # noqa: ARG002 - without keys
        """Release the space that was reserved for a boundary while it was being committed."""
        self.reserved -= 1
        self.wake_waiters()

    async def wait(self, key_state: KeyState | None = None) -> None:
        """Wait until there is space, or the gate is closed."""
        while self.is_blocked(key_state):
            await self.wait_for_change()

    async def wait_for_change(self) -> None:
        """Wait until some space is free, which another pusher may take first, or the gate is closed."""
        self._freed.clear()
        self.has_waiters = True
        await self._freed.wait()

    def wake_waiters(self) -> None:
        """Let the waiters check for space."""
        self.has_waiters = False
        self._freed.set()

    def close(self) -> None:
        """Block no pusher from now on: the reactor is about to stop."""
        self._is_closed = True
        self.wake_waiters()
