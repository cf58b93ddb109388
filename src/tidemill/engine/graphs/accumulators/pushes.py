"""Pushes: one event, or many as one push, which its producer may number.

Two reads of the clock and three coroutines cost more than a light graph. `PushPaths.push_now` has neither. It leaves
every 64th event to `push`, which times it and yields to the event loop from time to time.

With a journal the events of a push share commits of limited size, and the event loop gets turns in between. A numbered
push is atomic: its events, its number and its answer are committed together, so that a repetition after any fault finds
either nothing of the push or all of it.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.emit import PendingReceipt
from tidemill.engine.graphs.accumulators.held import Held
from tidemill.engine.graphs.accumulators.ingest import EventIngest
from tidemill.engine.graphs.accumulators.producers import KnownProducers
from tidemill.engine.graphs.accumulators.push_paths import PushPaths
from tidemill.engine.graphs.durability.journal import MAX_SHARED_COMMIT, JournalStep
from tidemill.engine.graphs.push_paths.loop import decline_next
from tidemill.graphs.outcomes import Receipt
from tidemill.graphs.pushes import ProducerPosition, PushSummary, ReceiptTally, encode_runs
from tidemill.storage.graph_ports import StoredPush

PUSHES_PER_YIELD = 256  # pushes in a row before the event loop gets a turn


class AuthorCall(NamedTuple):
    """An event, and what the author's function returned for it."""

    event: Any
    boundary: Any
    held: Held
    receipt: Receipt | None
    """The receipt of the event if it needs no commit."""


class Pushes:
    """Takes the awaited pushes of one accumulator, and counts them."""

    def __init__(self, intake: EventIngest, paths: PushPaths) -> None:
        self._intake = intake
        self._paths = paths
        self._clock = intake.clock
        self._counted = 0  # without the direct ones that were not timed
        self._counted_seconds = 0.0
        self._direct_seconds = 0.0  # how long the last direct one that was timed took
        self._next_yield = PUSHES_PER_YIELD
        key, durability = intake.emitter.journal_writer.key, intake.runtime.durability
        self._producers = KnownProducers(lambda client: durability.newest_push(key, client))

    # -- counters

    @property
    def total(self) -> int:
        """How many pushes were awaited."""
        return self._counted + self._paths.untimed

    @property
    def seconds(self) -> float:
        """The time that they took: each direct one that was not timed counts as much as the last one that was."""
        return self._counted_seconds + self._paths.untimed * self._direct_seconds

    def count(self, number: int, seconds: float) -> None:
        """Count pushes that took some time together."""
        self._counted += number
        self._counted_seconds += seconds

    def _take_sample(self, seconds: float) -> None:
        """Count the untimed pushes so far by the last sample, and the next ones by this one."""
        untimed, self._paths.untimed = self._paths.untimed, 0
        self.count(untimed, untimed * self._direct_seconds)
        self._direct_seconds = seconds

    # -- one event

    async def push(self, event: Any, encoding: str = "json", offset: Any = None) -> Receipt:
        """Process an event, waiting for queue space and for its commit, and return its receipt.

        `offset` is the position of the source after this event, if it came from one. The caller then moves the offset,
        and yields: a snapshot in between would have the event and not its offset.
        """
        intake = self._intake
        direct: Receipt | None = None
        started = self._clock.monotonic()
        try:
            if intake.emitter.is_journaled:
                pending = intake.begin_push(event, encoding, offset)
                if pending is None:
                    receipt = await intake.ingest(event, encoding, offset)
                else:
                    receipt = pending if isinstance(pending, Receipt) else await pending
            else:
                paths = self._paths
                if not paths.is_tried:
                    paths.open()
                direct = None if paths.direct_class is None else paths.take_now(event, encoding)
                receipt = direct or await intake.ingest(event, encoding, offset)
        finally:
            seconds = self._clock.monotonic() - started
            self._counted += 1
            self._counted_seconds += seconds
            if direct is not None:
                self._take_sample(seconds)
        if intake.emitter.is_journaled and receipt.outcome == "dead_lettered":
            await intake.runtime.durability.flush_dead_letters()
        if offset is None and self._counted + self._paths.untimed >= self._next_yield:
            await self.yield_in_turn()
        return receipt

    async def yield_in_turn(self) -> None:
        """Give the event loop a turn now and then: a tight loop of pushes must not starve the node."""
        if self.total >= self._next_yield:
            self._next_yield = self.total + PUSHES_PER_YIELD
            await asyncio.sleep(0)

    # -- many events

    async def push_many(
        self, events: Sequence[Any], encoding: str = "json", position: ProducerPosition | None = None
    ) -> PushSummary:
        """Process events in order, as `push` does each, and return their receipts.

        A push with the number of an earlier one of its producer, or with a lower one, changes nothing. A push of which
        every event was rejected does not count: the producer may repeat it under the same number. StoreError if it
        cannot be known whether the push is new: then the answer cannot be that its events were rejected.
        """
        if position is None:
            return PushSummary(tuple((await self.push_all(events, encoding)).runs))
        position.check()
        work = self._push_once(events, encoding, position)
        return await self._intake.runtime.tasks.run_shielded(
            f"accumulator {self._intake.name}: push of a producer", work
        )

    def add_new_producer(self, client: str) -> None:
        """Add a producer that is known to have pushed nothing yet."""
        self._producers.add_new(client)

    async def last_position(self, client: str) -> int | None:
        """Return the number of the newest push of a producer that was taken; None if there is none."""
        ProducerPosition(client, 0).check()
        async with self._producers.turn(client, is_stored=self._intake.emitter.is_journaled) as producer:
            return None if producer.newest is None else producer.newest.sequence

    async def _push_once(self, events: Sequence[Any], encoding: str, position: ProducerPosition) -> PushSummary:
        async with self._producers.turn(position.client, is_stored=self._intake.emitter.is_journaled) as producer:
            if (answer := producer.answer_repetition(position, len(events))) is not None:
                return answer
            if self._intake.emitter.is_journaled:
                producer.is_read = False  # until the outcome of the commit is known
                summary, taken = await self.push_atomically(events, encoding, position)
                producer.is_read = True
            else:
                summary = PushSummary(tuple((await self.push_all(events, encoding)).runs))
                taken = None if summary.is_rejected else self._numbered_push(position, summary)
            producer.newest = taken or producer.newest
            return summary

    def _numbered_push(self, position: ProducerPosition, summary: PushSummary) -> StoredPush:
        return StoredPush(
            key=self._intake.emitter.journal_writer.key,
            client=position.client,
            sequence=position.sequence,
            answer=encode_runs(summary.runs),
            at=self._clock.now(),
        )

    async def push_all(self, events: Sequence[Any], encoding: str) -> ReceiptTally:
        """Process events in order; journaled ones share commits, as far as there is queue space.

        A commit has a limit: its events are processed in one turn of the loop, which also renews the node's leases.
        """
        tally = ReceiptTally()
        if not self._intake.emitter.is_journaled or self._awaits_author:
            await self.push_each(events, encoding, tally)
        while tally.count < len(events):
            following = events[tally.count : tally.count + MAX_SHARED_COMMIT]
            if pending := list(self.begin_unblocked(following, encoding)):
                await self._resolve_all(pending, tally)
            else:
                tally.add(await self.push(events[tally.count], encoding))  # waits for queue space
        return tally

    async def push_each(self, events: Sequence[Any], encoding: str, tally: ReceiptTally) -> None:
        """Push events in order, as many as possible by the push loop, and add their receipts."""
        remaining = iter(events)
        while tally.count < len(events):
            if self._paths.find_push_loop() is decline_next:
                tally.add(await self.push(next(remaining), encoding))
                continue
            started, before = self._clock.monotonic(), tally.count
            is_declined = self._paths.take_many(islice(remaining, PUSHES_PER_YIELD), tally)
            self.count(tally.count - before, self._clock.monotonic() - started)
            if is_declined:
                tally.add(await self.push(events[tally.count], encoding))
            else:
                await self.yield_in_turn()

    def begin_unblocked(self, events: Iterable[Any], encoding: str) -> Iterator[PendingReceipt]:
        """Begin to commit events, in order, as long as none has to wait."""
        for event in events:
            if (pending := self._intake.begin_unblocked(event, encoding)) is None:
                return
            yield pending

    async def _resolve_all(self, pending: Sequence[PendingReceipt], tally: ReceiptTally) -> None:
        """Add the receipts of events, after their commit."""
        started = self._clock.monotonic()
        await asyncio.sleep(0)  # pushes of nothing but suppressed events must not starve the node
        has_dead_letters = False
        for one in pending:
            receipt = one if isinstance(one, Receipt) else await one
            tally.add(receipt)
            has_dead_letters = has_dead_letters or receipt.outcome == "dead_lettered"
        self.count(len(pending), self._clock.monotonic() - started)
        if has_dead_letters:
            await self._intake.runtime.durability.flush_dead_letters()

    @property
    def _awaits_author(self) -> bool:
        """Whether each event waits for a call of the author's function."""
        return self._intake.is_async and not self._intake.kind.buffers_events

    # -- numbered pushes

    async def push_atomically(
        self, events: Sequence[Any], encoding: str, position: ProducerPosition
    ) -> tuple[PushSummary, StoredPush | None]:
        """Commit all events of a push together with its number. The queue may exceed its capacity by one push."""
        self._intake.waiting_pushers += 1
        try:
            async with self._intake.process_lock:
                called = await self.call_author_on_all(events, encoding) if self._awaits_author else None
                await self.wait_for_queue_space(events, encoding)
                # No await from here: steps that are appended in one turn of the loop are committed together.
                pending = self._begin_all(events, encoding) if called is None else self._emit_all(called)
                taken = None if _are_rejected(pending) else self._append_push(position, pending)
        finally:
            self._intake.waiting_pushers -= 1
        tally = ReceiptTally()
        await self._resolve_all(pending, tally)
        return PushSummary(tuple(tally.runs)), None if taken is None else await taken

    async def wait_for_queue_space(self, events: Sequence[Any], encoding: str) -> None:  # noqa: ARG002 - without keys
        """Wait until the queues of these events have space."""
        await self._intake.wait_for_queue_space(self._intake.held)

    def _begin_all(self, events: Sequence[Any], encoding: str) -> list[PendingReceipt]:
        return [self._intake.begin_event(event, encoding) for event in events]

    async def call_author_on_all(self, events: Sequence[Any], encoding: str) -> list[AuthorCall]:
        """Await the author's function on each event; each builds on the state that the one before it returned."""
        return [await self.call_author(event, encoding, self._intake.held) for event in events]

    async def call_author(self, event: Any, encoding: str, held: Held) -> AuthorCall:
        """Await the author's function on one event."""
        intake = self._intake
        if (rejection := intake.rejection(held)) is not None:
            return AuthorCall(event, None, held, rejection)
        try:
            value = intake.validate(event, encoding)
            boundary, receipt = await intake.call_author(partial(intake.process, value, held), value, held)
            if boundary is not None and intake.definition.state is not None:
                held.state = intake.emitter.validate_boundary(boundary)
        except TypeMismatchError as error:
            return AuthorCall(event, None, held, intake.dead_letter(event, error, held, encoding))
        return AuthorCall(value, boundary, held, receipt)

    def _emit_all(self, calls: Sequence[AuthorCall]) -> list[PendingReceipt]:
        """Emit what the author's function returned."""
        emit = self._intake.kind.emit_or_journal
        return [one.receipt or emit(one.boundary, one.event, one.held) for one in calls]

    def _append_push(
        self, position: ProducerPosition, pending: Sequence[PendingReceipt]
    ) -> "asyncio.Future[StoredPush | None]":
        """Commit the number of a push together with its steps, which were appended just now."""
        journal = self._intake.runtime.durability.journal
        assert journal is not None, "an accumulator is journaled only with a store"

        def to_row(emitted_before: int, steps: Sequence[JournalStep]) -> StoredPush:
            summary = PushSummary.of(self._expected_receipts(pending, emitted_before, steps))
            return self._numbered_push(position, summary)

        return journal.append_push(
            self._intake.emitter.journal_writer, sum(not isinstance(one, Receipt) for one in pending), to_row
        )

    def _expected_receipts(
        self, pending: Sequence[PendingReceipt], emitted_before: int, steps: Sequence[JournalStep]
    ) -> Iterator[Receipt]:
        """Yield the receipts that a push gets if its steps are committed now."""
        sequence, remaining = self._intake.emitter.sequence + emitted_before, iter(steps)
        for one in pending:
            if isinstance(one, Receipt):
                yield one
                continue
            step = next(remaining)
            is_emitted = self._intake.emitter.emits_boundary(step)
            sequence += is_emitted
            yield Receipt(True, sequence, "emitted" if is_emitted else self._intake.emitter.silent_outcome(step))


def _are_rejected(receipts: Sequence[PendingReceipt]) -> bool:
    """Return whether every event was rejected: then the push has changed nothing, and may be repeated."""
    return all(isinstance(one, Receipt) and one.outcome == "rejected" for one in receipts)
