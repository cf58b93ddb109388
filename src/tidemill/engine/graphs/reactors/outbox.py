"""The outbox: firings of one reactor that workflows have not received yet.

A firing of a durable reactor becomes part of its next checkpoint, which is written right away, and only then is it
delivered to workflows: a firing that a crash undoes has started nothing. It leaves the checkpoint when all workflows
have received it. After a crash in between it is delivered again, and workflows recognise it by its id.

A firing that fails for good to start a run becomes a dead letter of the reactor, with all that a replay needs.

A subscription to all firings receives a firing once, after its first attempt. A subscription to a node receives each
value that the node returns in a call of its graph that succeeded, even in a retry or a replay of the firing.

If workflows cannot keep up, or the store does not answer, the reactor stops firing on criteria until there is space:
its inputs wait or replace each other, as its strategy says, and no firing is lost.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from tidemill.engine.graphs.durability.write_health import WRITE_FAILURE_LIMIT
from tidemill.engine.graphs.firing.firing_log import FiringRecord
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.supervisor import Supervised
from tidemill.graphs.result import SKIPPED, GraphResult
from tidemill.graphs.subscription import FailedDelivery, GraphNodeOutput, Subscription
from tidemill.kernel.errors import OperationError
from tidemill.telemetry.tracing import CURRENT_TRACE, TraceContext

OUTBOX_LIMIT = 256  # undelivered firings that pause the reactor


class OutboxEntry(msgspec.Struct, eq=False):
    """A firing that is being delivered."""

    record: FiringRecord
    undelivered: dict[Subscription, GraphNodeOutput | None]
    """The subscriptions that have not received it; one to a node with the value that it is to receive."""
    is_stored: bool = False
    in_delivery: set[Subscription] = msgspec.field(default_factory=set)
    """The subscriptions whose delivery is in progress."""
    trace: TraceContext | None = None
    """The span of the push that led to the firing; it is not stored."""


class FailedStart(msgspec.Struct, frozen=True):
    """What a replay needs of a delivery that failed."""

    record: FiringRecord
    subscription: Subscription
    output: GraphNodeOutput | None


class Outbox:
    """The firings of one reactor that are being delivered to workflows."""

    def __init__(self, owner: Supervised, firing_loop: FiringLoop, runtime: GraphRuntime) -> None:
        self._owner = owner
        self._firing_loop = firing_loop
        self._reactor = firing_loop.reactor
        self._runtime = runtime
        self._entries: list[OutboxEntry] = []
        self._is_full = False
        self._failing: set[Subscription] = set()  # whose last delivery failed
        self.subscriptions: frozenset[Subscription] = frozenset()

    @property
    def entries(self) -> tuple[OutboxEntry, ...]:
        """The entries that a checkpoint holds, oldest first."""
        return tuple(self._entries)

    def set_subscriptions(self, subscriptions: frozenset[Subscription]) -> None:
        """Deliver to these, and no others; a new one receives the restored entries that are left for it."""
        removed, self.subscriptions = self.subscriptions - subscriptions, subscriptions
        for entry in self.entries:
            for one in entry.undelivered.keys() & removed:
                self._on_delivered(entry, one, None)
        self._deliver()

    def restore(self, entries: Iterable[OutboxEntry]) -> None:
        """Add the entries that an earlier process stored."""
        self._entries.extend(entries)
        self._deliver()

    def put(self, record: FiringRecord) -> None:
        """Deliver an attempt of a firing, as soon as it is stored, to every subscription that takes something of it."""
        outputs = {one: self._output_for(one, record) for one in self.subscriptions}
        entry = OutboxEntry(record, {one: output for one, output in outputs.items() if _is_taken(one, output, record)})
        if not entry.undelivered:
            return
        last_push = self._runtime.push_traces.pop((self._owner.tenant, self._owner.name), None)
        entry.trace = CURRENT_TRACE.get() or last_push  # a graph that waits fires in a task of its own
        self._entries.append(entry)
        if len(self._entries) >= OUTBOX_LIMIT and not self._is_full:
            self._is_full = True
            self._firing_loop.pause_queue(+1, always=True)
        self._firing_loop.request_checkpoint()
        self._deliver_when_stored(entry)

    def _output_for(self, subscription: Subscription, record: FiringRecord) -> GraphNodeOutput | None:
        """Return the value that the node of a subscription returned, if its graph was called and succeeded."""
        if subscription.graph is None or subscription.node is None:
            return None
        result, graph = record.results.get(subscription.graph), self._firing_loop.graphs.get(subscription.graph)
        value = _find_output(result, subscription.node) if result is not None and result.ok else None
        if value is None:
            return None
        nodes = () if graph is None else graph.wiring.nodes
        declared = next((one.classes for one in nodes if one.name == subscription.node), None)
        return GraphNodeOutput.encode(value, declared)

    def _deliver_when_stored(self, entry: OutboxEntry) -> None:
        if self._reactor.durability.is_durable:
            self._runtime.durability.on_next_write(partial(self._on_written, entry))
        else:
            self._mark_stored(entry)

    def _on_written(self, entry: OutboxEntry) -> None:
        """Deliver a stored firing; after too many failed writes, deliver it without."""
        if 0 < self._reactor.write_health.failures < WRITE_FAILURE_LIMIT:
            self._deliver_when_stored(entry)
        else:
            self._mark_stored(entry)

    def _mark_stored(self, entry: OutboxEntry) -> None:
        entry.is_stored = True
        self._deliver()

    def _deliver(self) -> None:
        for entry in self.entries:
            if not entry.is_stored:
                break  # deliveries keep their order
            for one in (entry.undelivered.keys() & self.subscriptions) - entry.in_delivery:
                entry.in_delivery.add(one)
                done = partial(self._on_delivered, entry, one)
                firing = self._firing_loop.log.to_firing(entry.record)
                output = entry.undelivered[one]
                self._runtime.subscribers.deliver(self._owner.tenant, one, firing, output, done, entry.trace)

    def _on_delivered(self, entry: OutboxEntry, subscription: Subscription, failed: FailedDelivery | None) -> None:
        if subscription not in entry.undelivered:
            return  # it unsubscribed meanwhile
        output = entry.undelivered.pop(subscription)
        self._firing_loop.request_checkpoint()
        if failed is None:
            self._failing.discard(subscription)
        else:
            record = msgspec.structs.replace(entry.record, results={})  # a replay needs none, and they hold code
            self._dead_letter(FailedStart(record, subscription, output), failed)
        if not entry.undelivered:
            self._entries.remove(entry)
        if self._is_full and len(self._entries) < OUTBOX_LIMIT:
            self._is_full = False
            self._firing_loop.pause_queue(-1, always=True)

    # -- dead letters

    def _dead_letter(self, start: FailedStart, failed: FailedDelivery) -> None:
        """Keep a failed delivery; the first in a row is an event of the reactor as well: later ones have its reason."""
        firing, subscription = self._firing_loop.log.to_firing(start.record), start.subscription
        self._firing_loop.results.dead_letters.put(
            "start",
            failed.reason,
            start,
            inputs=firing.inputs,
            attempts=failed.attempts,
            workflow=subscription.workflow,
            firing_id=firing.id,
            key=start.record.key,
        )
        if subscription not in self._failing:
            self._failing.add(subscription)
            reason = f"firing {firing.id} started no run of workflow '{subscription.workflow}': {failed.reason}"
            self._runtime.supervisor.on_undelivered(self._owner, reason)

    def discard_failed(self, starts: Iterable[FailedStart]) -> None:
        """Deliver nothing that is a dead letter: a crash may have come before the checkpoint without it."""
        failed = {(one.record.series, one.record.number, one.subscription) for one in starts}
        for entry in self._entries:
            for one in [*entry.undelivered]:
                if (entry.record.series, entry.record.number, one) in failed:
                    del entry.undelivered[one]
        self._entries = [entry for entry in self._entries if entry.undelivered]

    async def replay(self, dead_letter_id: str, start: FailedStart) -> Any:
        """Try to start the run of a dead letter, and return its handle; None if the firing starts no run now."""
        dead_letters = self._firing_loop.results.dead_letters
        firing = self._firing_loop.log.to_firing(start.record)
        try:
            run = await self._runtime.subscribers.start(self._owner.tenant, start.subscription, firing, start.output)
        except OperationError as error:
            dead_letters.record_failed_replay(dead_letter_id, str(error))
            raise
        dead_letters.remove(dead_letter_id)
        return run


def _find_output(result: GraphResult, node: str) -> Any:
    """Return the result of a terminal node of a call that succeeded; None if the node did not run.

    Every firing of a followed reactor asks for it, so only this one value is looked at.
    """
    layout = result.layout
    value = result.values[layout.returned.index(node)] if node in layout.terminals else None
    return None if value is SKIPPED else value


def _is_taken(subscription: Subscription, output: GraphNodeOutput | None, record: FiringRecord) -> bool:
    """Return whether an attempt of a firing has something for a subscription."""
    return record.attempt == 1 if subscription.node is None else output is not None
