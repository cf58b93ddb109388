"""Bulk ingestion: many events as one push, which its producer may number.

With a journal the events of a push share commits of limited size, and the event loop gets turns in between. A numbered
push is atomic: its events, its number and its answer are committed together, so that a repetition after any fault finds
either nothing of the push or all of it.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.emit import PendingReceipt
from tidemill.engine.graphs.accumulators.producers import KnownProducers
from tidemill.engine.graphs.accumulators.push_ingest import PushIngest
from tidemill.engine.graphs.durability.journal import MAX_SHARED_COMMIT, JournalStep
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.outcomes import Receipt
from tidemill.graphs.pushes import ProducerPosition, PushSummary, ReceiptTally, encode_runs
from tidemill.storage.graph_ports import StoredPush

AuthorCall = tuple[Any, Any, Receipt | None]
"""An event, the boundary that the author's function returned for it, and its receipt if it needs no commit."""


class BulkIngest(PushIngest):
    """Takes many events of one pusher at once."""

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        super().__init__(definition, tenant, runtime)
        key = self.journal_writer.key
        self._producers = KnownProducers(lambda client: runtime.durability.newest_push(key, client))

    async def push_many(
        self, events: Sequence[Any], encoding: str = "json", position: ProducerPosition | None = None
    ) -> PushSummary:
        """Process events in order, as `push` does each, and return their receipts.

        A push with the number of an earlier one of its producer, or with a lower one, changes nothing. A push of which
        every event was rejected does not count: the producer may repeat it under the same number. StoreError if it
        cannot be known whether the push is new: then it is no answer that its events were rejected.
        """
        if position is None:
            return PushSummary(tuple((await self._push_all(events, encoding)).runs))
        position.check()
        work = self._push_once(events, encoding, position)
        return await self.runtime.tasks.run_shielded(f"accumulator {self.name}: push of a producer", work)

    def add_new_producer(self, client: str) -> None:
        """Add a producer that is known to have pushed nothing yet."""
        self._producers.add_new(client)

    async def last_position(self, client: str) -> int | None:
        """Return the number of the newest push of a producer that was taken; None if there is none."""
        ProducerPosition(client, 0).check()
        async with self._producers.turn(client, is_stored=self.is_journaled) as producer:
            return None if producer.newest is None else producer.newest.sequence

    async def _push_once(self, events: Sequence[Any], encoding: str, position: ProducerPosition) -> PushSummary:
        async with self._producers.turn(position.client, is_stored=self.is_journaled) as producer:
            if (answer := producer.answer_repetition(position, len(events))) is not None:
                return answer
            if self.is_journaled:
                producer.is_read = False  # until the outcome of the commit is known
                summary, taken = await self._push_atomically(events, encoding, position)
                producer.is_read = True
            else:
                summary = PushSummary(tuple((await self._push_all(events, encoding)).runs))
                taken = None if summary.is_rejected else self._numbered_push(position, summary)
            producer.newest = taken or producer.newest
            return summary

    def _numbered_push(self, position: ProducerPosition, summary: PushSummary) -> StoredPush:
        return StoredPush(
            key=self.journal_writer.key,
            client=position.client,
            sequence=position.sequence,
            answer=encode_runs(summary.runs),
            at=self.clock.now(),
        )

    # -- many events

    async def _push_all(self, events: Sequence[Any], encoding: str) -> ReceiptTally:
        """Process events in order; journaled ones share commits, as far as there is queue space.

        A commit has a limit: its events are processed in one turn of the loop, which also renews the node's leases.
        """
        tally = ReceiptTally()
        if not self.is_journaled or self._awaits_author:
            await self._push_each(events, encoding, tally)
        while tally.count < len(events):
            following = events[tally.count : tally.count + MAX_SHARED_COMMIT]
            if pending := list(self._begin_unblocked(following, encoding)):
                await self._resolve_all(pending, tally)
            else:
                tally.add(await self.push(events[tally.count], encoding))  # waits for queue space
        return tally

    def _begin_unblocked(self, events: Iterable[Any], encoding: str) -> Iterator[PendingReceipt]:
        for event in events:
            if self._is_blocked():
                return
            yield self.begin_event(event, encoding)

    async def _resolve_all(self, pending: Sequence[PendingReceipt], tally: ReceiptTally) -> None:
        """Add the receipts of events, after their commit."""
        started = self.clock.monotonic()
        await asyncio.sleep(0)  # pushes of nothing but suppressed events must not starve the node
        has_dead_letters = False
        for one in pending:
            receipt = one if isinstance(one, Receipt) else await one
            tally.add(receipt)
            has_dead_letters = has_dead_letters or receipt.outcome == "dead_lettered"
        self._count_pushes(len(pending), self.clock.monotonic() - started)
        if has_dead_letters:
            await self.runtime.durability.flush_dead_letters()

    @property
    def _awaits_author(self) -> bool:
        """Whether each event waits for a call of the author's function."""
        return self.is_async and not self.buffers_events

    # -- numbered pushes

    async def _push_atomically(
        self, events: Sequence[Any], encoding: str, position: ProducerPosition
    ) -> tuple[PushSummary, StoredPush | None]:
        """Commit all events of a push together with its number. The queue may exceed its capacity by one push."""
        self._waiting_pushers += 1
        try:
            async with self._process_lock:
                called = await self._call_author_on_all(events, encoding) if self._awaits_author else None
                await self._wait_for_queue_space()
                # No await from here: steps that are appended in one turn of the loop are committed together.
                pending = self._begin_all(events, encoding) if called is None else self._emit_all(called)
                taken = None if _are_rejected(pending) else self._append_push(position, pending)
        finally:
            self._waiting_pushers -= 1
        tally = ReceiptTally()
        await self._resolve_all(pending, tally)
        return PushSummary(tuple(tally.runs)), None if taken is None else await taken

    def _begin_all(self, events: Sequence[Any], encoding: str) -> list[PendingReceipt]:
        return [self.begin_event(event, encoding) for event in events]

    async def _call_author_on_all(self, events: Sequence[Any], encoding: str) -> list[AuthorCall]:
        """Await the author's function on each event; each builds on the state that the one before it returned."""
        calls: list[AuthorCall] = []
        for event in events:
            if (rejection := self._rejection()) is not None:
                calls.append((event, None, rejection))
                continue
            try:
                value = self._validate(event, encoding)
                boundary, receipt = await self.call_author(partial(self.process, value), value)
                if boundary is not None and self.definition.state is not None:
                    self.state = self.validate_boundary(boundary)
            except TypeMismatchError as error:
                calls.append((event, None, self._dead_letter(event, error, encoding)))
            else:
                calls.append((value, boundary, receipt))
        return calls

    def _emit_all(self, calls: Sequence[AuthorCall]) -> list[PendingReceipt]:
        return [receipt or self.emit_or_journal(boundary, event) for event, boundary, receipt in calls]

    def _append_push(
        self, position: ProducerPosition, pending: Sequence[PendingReceipt]
    ) -> "asyncio.Future[StoredPush | None]":
        """Commit the number of a push together with its steps, which were appended just now."""
        journal = self.runtime.durability.journal
        assert journal is not None, "an accumulator is journaled only with a store"

        def to_row(emitted_before: int, steps: Sequence[JournalStep]) -> StoredPush:
            summary = PushSummary.of(self._expected_receipts(pending, emitted_before, steps))
            return self._numbered_push(position, summary)

        return journal.append_push(self.journal_writer, sum(not isinstance(one, Receipt) for one in pending), to_row)

    def _expected_receipts(
        self, pending: Sequence[PendingReceipt], emitted_before: int, steps: Sequence[JournalStep]
    ) -> Iterator[Receipt]:
        """Yield the receipts that a push gets if its steps are committed now."""
        sequence, remaining = self.sequence + emitted_before, iter(steps)
        for one in pending:
            if isinstance(one, Receipt):
                yield one
                continue
            step = next(remaining)
            is_emitted = self.emits_boundary(step)
            sequence += is_emitted
            yield Receipt(True, sequence, "emitted" if is_emitted else self.silent_outcome(step))


def _are_rejected(receipts: Sequence[PendingReceipt]) -> bool:
    """Return whether every event was rejected: then the push has changed nothing, and may be repeated."""
    return all(isinstance(one, Receipt) and one.outcome == "rejected" for one in receipts)
