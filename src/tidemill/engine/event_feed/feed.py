"""The event feed of one node: its own events, and the events of all runs in its store, as one stream per reader.

A reader has a position in both. It takes events from memory, and events of runs that are no longer there from the
store, so a reader of runs that comes back, here or at another server, misses nothing. Events of a node are kept in
bounded memory: a reader that is too slow for them is cut off, and one that comes back too late gets an `events.gap`.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from tidemill.engine.event_feed.run_events import RunEventTail, event_fields, event_type
from tidemill.engine.event_feed.samplers import FiringSampler, NodeListSampler, ReadFiringCounts, Sampler
from tidemill.engine.tasks import TaskScope, cancel_and_wait
from tidemill.engine.workflows.notifications import RunNotifier
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError
from tidemill.kernel.ids import new_instance_id
from tidemill.kernel.suggestions import close_names, did_you_mean
from tidemill.storage.workflow_ports import WorkflowStore
from tidemill.telemetry import events
from tidemill.telemetry.node_events import NodeEvents

_FORMAT = re.compile(r"(?P<stored>\d{1,18})-(?P<local>\d{1,18})-(?P<node>[0-9a-z]{1,32})")


class FeedPosition(msgspec.Struct, frozen=True):
    """How far a reader is: in the events of all runs, which are in the store, and in the own events of one node."""

    stored: int
    local: int
    node: str
    """Identifies the node whose own events `local` counts; another one after each start."""

    def __str__(self) -> str:
        return f"{self.stored}-{self.local}-{self.node}"

    @classmethod
    def parse(cls, text: str) -> "FeedPosition":
        """Return the position that an event id is; RequestError if it is none."""
        found = _FORMAT.fullmatch(text)
        if found is None:
            message = f"{text!r} is not the id of an event: pass the id of the last event that you have received"
            raise RequestError(message, code="invalid_event_id")
        return cls(int(found["stored"]), int(found["local"]), found["node"])


STORED_EVENT_TYPES = {
    events.RUN_STARTED: "a run has started: run, workflow, state, actor",
    events.RUN_ENDED: "a run has ended: run, workflow, state, reason, actor",
    events.RUN_CLEARED: "a run that had ended runs again: run, workflow, state, reason, actor",
    events.TASK_STATE: "a task run has changed: run, workflow, task, index, attempt, before, state, reason, actor",
}
"""Events of runs. Every server on a store has all of them, and repeats them to a reader that comes back."""

NODE_EVENT_TYPES = {
    events.REACTOR_LOADED: "a reactor was loaded: reactor",
    events.REACTOR_UNLOADED: "a reactor was unloaded: reactor",
    events.REACTOR_HEALTH: "the health of a reactor has changed: reactor, health, disconnected",
    events.REACTOR_FIRED: "a reactor has fired, one event for all firings of 250 ms: reactor, firings, failures, total",
    events.ACCUMULATOR_HEALTH: "the health of an accumulator has changed: accumulator, health, reason",
    events.DEAD_LETTER_ADDED: "an event, a firing or the start of a run has failed: kind, source, dead_letter, error",
    events.COMPONENT_RECOVERY: "the supervisor has acted: component, name, action, reason, failures",
    events.PACKAGE_LOADED: "a package was loaded or reloaded: package, version",
    events.PACKAGE_REMOVED: "a package was unloaded: package",
    events.PACKAGE_FAILED: "a package could not be loaded or removed: package, version, reason",
    events.LEADERSHIP_WON: "this node leads from now on: node, epoch",
    events.LEADERSHIP_LOST: "this node no longer leads: node, epoch",
    events.NODE_JOINED: "a server, a worker or another node appeared in the store: node, name, kind",
    events.NODE_LEFT: "a node has left the store, or was removed because it is gone: node, name, kind",
    events.CHANGE_MADE: "a person or a program has changed something, as the audit log says: action, target",
    events.EVENTS_GAP: "events were missed, which are no longer known here: reason",
}
"""Events of the node that a reader is connected to."""

FEED_EVENT_TYPES = STORED_EVENT_TYPES | NODE_EVENT_TYPES

ALL_TYPES = frozenset(FEED_EVENT_TYPES)


def select_types(patterns: str | Iterable[str] | None) -> frozenset[str]:
    """Return the types that patterns such as "run.*,reactor.health" select; all of them without a pattern.

    A gap is always among them: who asked for some events must learn that some of them were missed.
    """
    given = patterns.split(",") if isinstance(patterns, str) else patterns or ()
    stripped = [one.strip() for one in given if one.strip()]
    selected = {events.EVENTS_GAP} if stripped else set(ALL_TYPES)
    for pattern in stripped:
        matching = {one for one in ALL_TYPES if fnmatchcase(one, pattern)}
        if not matching:
            known = ", ".join(sorted(ALL_TYPES))
            hint = did_you_mean(pattern, ALL_TYPES) or f"; there are {known}"
            message = f"no event has the type {pattern!r}{hint}"
            suggestions = close_names(pattern, ALL_TYPES)
            raise RequestError(message, code="unknown_event_type", pattern=pattern, suggestions=suggestions)
        selected |= matching
    return frozenset(selected)


class FeedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as readers get it. Pass the id of the last one as `after` to continue."""

    id: str
    type: str
    at: datetime
    tenant: str | None
    fields: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the event as one flat object."""
        return {"id": self.id, "type": self.type, "at": self.at.isoformat(), "tenant": self.tenant, **self.fields}


class Joined(NamedTuple):
    """Where a reader begins, and why it misses events if it does."""

    position: FeedPosition
    gap: str | None = None
    misses_runs: bool = False
    """Whether it misses events of runs too."""


class TooSlowError(RequestError):
    """A reader has not taken the events of a node, and some are no longer kept."""

    def __init__(self) -> None:
        message = "the reader was too slow, and events that it has not taken are no longer kept: subscribe again"
        super().__init__(message, code="too_slow", status=408)


class EventFeed:
    """Gives any number of readers the events of this node and of its store."""

    def __init__(
        self,
        store: WorkflowStore,
        notifier: RunNotifier,
        node_events: NodeEvents,
        read_firing_counts: ReadFiringCounts,
        *,
        clock: Clock,
        tasks: TaskScope,
    ) -> None:
        self._store = store
        self._notifier = notifier
        self.clock = clock
        self._tasks = tasks
        self.node_events = node_events
        node_events.listen(self._wake_readers)
        self.tail = RunEventTail(store.runs, clock, self._wake_readers)
        self._samplers: list[Sampler] = [
            FiringSampler(read_firing_counts, node_events, clock),
            NodeListSampler(store.owners, node_events, clock),
        ]
        self._readers: set[EventSubscription] = set()
        self._tail_task: asyncio.Task[Any] | None = None
        self._sampler_tasks: dict[str, asyncio.Task[Any]] = {}
        self._starting = asyncio.Lock()
        self._is_listening = self.is_closed = False
        self.node = new_instance_id()
        """Identifies this node and this start of it in positions."""

    @property
    def reader_count(self) -> int:
        """The number of readers at the moment."""
        return len(self._readers)

    def subscribe(
        self, types: str | Iterable[str] | None = None, *, after: str | None = None, tenant: str | None = None
    ) -> "EventSubscription":
        """Return a reader of the events of some types, from now on or after the event with an id.

        With a tenant, events of other tenants are left out.
        """
        position = None if after is None else FeedPosition.parse(after)
        return EventSubscription(self, select_types(types), position, tenant)

    def close(self) -> None:
        """End all subscriptions, after what was published so far."""
        self.is_closed = True
        self._wake_readers()

    def _wake_readers(self) -> None:
        for reader in self._readers:
            reader.wake()

    # -- for subscriptions

    async def join(self, reader: "EventSubscription", after: FeedPosition | None) -> Joined:
        """Add a reader, and start what runs for readers."""
        async with self._starting:
            self.node_events.record()
            if self._tail_task is None:
                await self._start_tail()
            for sampler in self._samplers:
                if sampler.types & reader.types and sampler.title not in self._sampler_tasks:
                    await sampler.start()
                    task = self._tasks.start(f"event feed: {sampler.title}", sampler.run())
                    self._sampler_tasks[sampler.title] = task
            self._readers.add(reader)
        here = FeedPosition(self.tail.number, self.node_events.number, self.node)
        return Joined(here) if after is None else await self._resume(here, after)

    async def _start_tail(self) -> None:
        if not self._is_listening:
            await self._store.listen(self.tail.wake, "runs")
            self._is_listening = True
        await self.tail.start()
        self._tail_task = self._tasks.start("event feed: run events", self.tail.run())
        self._notifier.listeners.append(self.tail.wake)

    async def _resume(self, here: FeedPosition, after: FeedPosition) -> Joined:
        """Return where a reader continues after an earlier event, and why it misses some if it does.

        It may have read more at another server than the tail of this one has: the store knows what there is.
        """
        if after.stored > here.stored and after.stored > await self._store.runs.last_event_number():
            return Joined(here, "the id is of another store, or of one whose newest events are lost", misses_runs=True)
        position = FeedPosition(after.stored, here.local, here.node)
        if after.node != here.node:
            return Joined(position, "the events of another node, or of this one before its last start, are not kept")
        if not self.node_events.has_all_after(after.local):
            return Joined(position, "too many events have passed since then")
        return Joined(FeedPosition(after.stored, after.local, here.node))

    async def leave(self, reader: "EventSubscription") -> None:
        """Remove a reader; the last one stops what runs for readers."""
        self._readers.discard(reader)
        for sampler in self._samplers:
            if not any(sampler.types & one.types for one in self._readers):
                await cancel_and_wait(self._sampler_tasks.pop(sampler.title, None))
        if not self._readers:
            self._notifier.listeners.remove(self.tail.wake)
            tail, self._tail_task = self._tail_task, None
            await cancel_and_wait(tail)


class EventSubscription:
    """Reads events as an async iterator: `async with feed.subscribe("run.*") as events: async for event in events`."""

    def __init__(self, feed: EventFeed, types: frozenset[str], after: FeedPosition | None, tenant: str | None) -> None:
        self.types = types
        self._feed = feed
        self._after = after
        self._tenant = tenant
        self._gap: str | None = None
        self._has_more = False
        self._changed = asyncio.Event()
        self._position = FeedPosition(0, 0, feed.node)
        self._reads_node_events = bool(types & NODE_EVENT_TYPES.keys() - {events.EVENTS_GAP})

    async def __aenter__(self) -> Self:
        try:
            joined = await self._feed.join(self, self._after)
        except BaseException:
            await self._feed.leave(self)
            raise
        self._position = joined.position
        self._gap = joined.gap if joined.misses_runs or self._reads_node_events else None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._feed.leave(self)

    async def __aiter__(self) -> AsyncIterator[FeedEvent]:
        while batch := await self.read():
            for event in batch:
                yield event

    def wake(self) -> None:
        """Look for new events."""
        self._changed.set()

    async def read(self) -> list[FeedEvent]:
        """Wait for events and return them; an empty list when the node ends. TooSlowError if some are lost."""
        while True:
            self._changed.clear()
            found = [*self._take_gap(), *self._take_node_events(), *await self._take_run_events()]
            if found or (self._feed.is_closed and not self._has_more):
                return found
            if not self._has_more:
                await self._changed.wait()

    def _take_gap(self) -> Iterator[FeedEvent]:
        gap, self._gap = self._gap, None
        if gap is not None:
            yield self._event(events.EVENTS_GAP, self._feed.clock.now(), None, {"reason": gap})

    def _take_node_events(self) -> Iterator[FeedEvent]:
        node_events = self._feed.node_events
        if self._reads_node_events and not node_events.has_all_after(self._position.local):
            raise TooSlowError
        for one in node_events.after(self._position.local):
            self._position = replace(self._position, local=one.number)
            if self._wants(one.type, one.tenant):
                yield self._event(one.type, one.at, one.tenant, one.fields)

    async def _take_run_events(self) -> list[FeedEvent]:
        found, (numbered, end) = [], await self._feed.tail.read_after(self._position.stored)
        for one in numbered:
            self._position = replace(self._position, stored=one.number)
            kind = event_type(one.event)
            if self._wants(kind, one.tenant):
                found.append(self._event(kind, one.event.at, one.tenant, event_fields(one)))
        self._position = replace(self._position, stored=end)
        self._has_more = end < self._feed.tail.number
        return found

    def _wants(self, type: str, tenant: str | None) -> bool:
        return type in self.types and (self._tenant is None or tenant is None or tenant == self._tenant)

    def _event(self, type: str, at: datetime, tenant: str | None, fields: dict[str, Any]) -> FeedEvent:
        return FeedEvent(id=str(self._position), type=type, at=at, tenant=tenant, fields=fields)
