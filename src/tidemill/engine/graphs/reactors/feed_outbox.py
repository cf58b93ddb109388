"""The feed outbox: results of nodes that are being pushed into other accumulators.

A result is pushed like an event from outside: it is validated, waits while a blocking queue is full, and is committed
first where the target is journaled. Results for one accumulator keep their order. While too many wait, the reactor
stops firing on criteria, so that a slow target slows its source. A result that waits is part of the reactor's
checkpoint: after a crash it is pushed again, at least once. One that its target rejects because a queue is full is
dropped, and counted there.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from tidemill.annotations.codec import UnstorableError, encode_msgpack
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.supervisor import Supervised
from tidemill.engine.registry import Key
from tidemill.engine.tasks import wait_until
from tidemill.graphs.feeds import ends_loop
from tidemill.graphs.outcomes import may_accept_later
from tidemill.kernel.errors import OperationError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

FEED_LIMIT = 256  # waiting results that pause the reactor


class PendingFeed(msgspec.Struct, eq=False):
    """A result that has not reached its accumulator."""

    target: Key
    value: Any
    encoded: bytes | None = None
    """Its stored form; None if the reactor is not durable."""
    is_restored: bool = False
    """Whether an earlier process stored it; then only its stored form is known."""


class FeedOutbox:
    """The results of one reactor's nodes that are being pushed."""

    def __init__(self, owner: Supervised, firing_loop: FiringLoop, runtime: GraphRuntime) -> None:
        self._owner = owner
        self._firing_loop = firing_loop
        self._reactor = firing_loop.reactor
        self._runtime = runtime
        self._queues: dict[Key, deque[PendingFeed]] = {}
        self._deliveries: dict[Key, asyncio.Task[Any]] = {}
        self._waiting_for_retry: set[Key] = set()
        self._pauses_reactor = False
        self._is_active = False  # until everything that loads together with the reactor is there

    @property
    def entries(self) -> list[PendingFeed]:
        """The results that a checkpoint holds, oldest first for each accumulator."""
        return [feed for queue in self._queues.values() for feed in queue if feed.encoded is not None]

    @property
    def is_idle(self) -> bool:
        """Whether no result can be pushed now: those that wait for space or for a retry do not count."""
        return not self._is_active or all(self._is_waiting(key) for key in self._queues)

    def _is_waiting(self, key: Key) -> bool:
        target = self._runtime.find_accumulator(*key)
        return key in self._waiting_for_retry or target is None or target.is_waiting_for_space

    def put(self, target: Key, value: Any) -> None:
        """Push a result into an accumulator of a tenant, after those that wait for it."""
        self._append(PendingFeed(target, value, self._encode(target, value)))
        self._update_pause()

    def restore(self, entries: Iterable[PendingFeed]) -> None:
        """Add the results that an earlier process stored; they are pushed when the reactor is activated."""
        for feed in entries:
            self._append(feed)

    def activate(self) -> None:
        """Push from now on."""
        self._is_active = True
        for key in self._queues:
            self._start_delivery(key)

    def _encode(self, target: Key, value: Any) -> bytes | None:
        if not self._reactor.durability.is_durable:
            return None
        try:
            return encode_msgpack(value)
        except UnstorableError as error:
            reason = f"a result for accumulator '{target[1]}' would be lost in a crash: {error}"
            self._runtime.supervisor.on_undelivered(self._owner, reason)
            return None

    def _append(self, feed: PendingFeed) -> None:
        self._queues.setdefault(feed.target, deque()).append(feed)
        if self._is_active:
            self._start_delivery(feed.target)

    def _update_pause(self) -> None:
        """Pause the reactor while too many results wait. Those that may be part of a loop do not count: they could
        wait for this very reactor.
        """
        counted = sum(len(queue) for key, queue in self._queues.items() if self._slows_reactor(key))
        is_too_many = counted >= FEED_LIMIT
        if is_too_many is not self._pauses_reactor:
            self._pauses_reactor = is_too_many
            self._firing_loop.pause_queue(+1 if is_too_many else -1, always=True)

    def _slows_reactor(self, key: Key) -> bool:
        target = self._runtime.find_accumulator(*key)
        return target is None or not ends_loop(target.definition)

    # -- delivery

    def _start_delivery(self, key: Key) -> None:
        if key not in self._deliveries:
            title = f"reactor {self._owner.name}: feed {key[1]}"
            self._deliveries[key] = self._runtime.tasks.start(title, self._deliver(key))

    async def _deliver(self, key: Key) -> None:
        """Push the results for one accumulator, one after the other."""
        queue = self._queues[key]
        try:
            while queue:
                await self._push(queue[0])
                queue.popleft()
                self._firing_loop.mark_changed()
                self._update_pause()
            del self._queues[key]
        except OperationError as error:  # the node is closing, and it is not known whether the result was stored
            logger.warning(events.FEED_STALLED, extra=self._facts(key, str(error)))
        finally:
            self._deliveries.pop(key, None)

    async def _push(self, feed: PendingFeed) -> None:
        """Push a result until it is accepted, dead-lettered, or finally rejected."""
        was_logged = False
        while (reason := await self._try_push(feed)) is not None:
            if not was_logged:
                logger.warning(events.FEED_STALLED, extra=self._facts(feed.target, reason))
            was_logged = True
            self._waiting_for_retry.add(feed.target)
            try:
                await self._runtime.clock.sleep(self._runtime.settings.checkpoint_interval)
            finally:
                self._waiting_for_retry.discard(feed.target)

    async def _try_push(self, feed: PendingFeed) -> str | None:
        """Push a result; return why it must be pushed again later, if it must."""
        target = self._runtime.find_accumulator(*feed.target)
        if target is None:
            return f"accumulator '{feed.target[1]}' is not loaded"
        receipt = await (_push_restored(target, feed) if feed.is_restored else target.push(feed.value))
        return receipt.reason if may_accept_later(receipt) else None

    def _facts(self, key: Key, reason: str) -> dict[str, str]:
        return {"reactor": self._owner.name, "accumulator": key[1], "reason": reason}

    # -- stopping

    async def drain(self) -> None:
        """Wait until every result is pushed that can be."""
        await wait_until(lambda: self.is_idle, self._runtime.settings.unload_timeout)

    def stop(self) -> None:
        """Stop pushing; a durable reactor keeps the results for its next start."""
        if not self._is_active:
            return
        self._is_active = False
        for task in self._deliveries.values():
            task.cancel()
        lost = sum(feed.encoded is None for queue in self._queues.values() for feed in queue)
        if lost:
            self._firing_loop.dropped["unloaded"] += lost


def _push_restored(target: RunningAccumulator, feed: PendingFeed) -> Any:
    """Push a result from its stored form, decoded as the target's event type."""
    assert feed.encoded is not None
    is_bytes = target.intake.event_validator.exact_class is bytes  # then encoded bytes would pass as they are
    return target.push(msgspec.msgpack.decode(feed.encoded) if is_bytes else feed.encoded, "msgpack")
