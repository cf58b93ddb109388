"""The sink of a source that cannot be split: brings its events to the partitions of a keyed reactor, each event once.

Events are numbered in the order of the source. Each partition stores the number of the newest one that it has taken
with its state, so events that are read again after a crash are recognized there. The offset of the source is stored
with its number, and does not pass events that a partition has not stored yet. A partition that comes back older than it
was has lost some: the source is then read again from the stored offset.

Numbers recognize events only if the source sends the same events again after the stored offset. One that cannot go
back sends new ones, and so does one that has lost its history. Their numbers continue after the newest one that any
partition has taken, and so do those of a source that does not declare which of both it does: an event may then count
twice, and none is taken for a repeated one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tidemill.engine.graphs.durability.checksums import is_part_intact, snapshot_part
from tidemill.engine.graphs.durability.ownership import ReactorOwnership
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.push_paths.by_partition import EventPartitioner
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.outcomes import to_jsonable
from tidemill.graphs.pushes import RelayProgress
from tidemill.graphs.snapshot import DIGEST_SIZE, AccumulatorPart, encode_stored
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.storage.graph_ports import Checkpoints, PartKey
from tidemill.telemetry import events as event_names

logger = logging.getLogger(__name__)

BringEvents = Callable[[PartKey, Sequence[Any], str, Sequence[int], int], Awaitable[RelayProgress]]
"""Brings a partition events with their numbers, after the event that it must have; returns how far it is then."""

MAX_MARKS = 10_000
"""Points at which a source can be continued that are remembered, until the partitions have stored what came before."""

UNKNOWN = "its answer was lost"
"""Why a partition must be asked again how far it is."""


class WentBackError(Exception):
    """A partition has lost events of its source that it had taken: its node died before it stored them."""


class SourceMark(NamedTuple):
    """An event of a source, by its number, and the offset of the source after it."""

    number: int
    offset: Any


class StoredOffset:
    """The offset of a source, and the number of the event before it, in the store."""

    def __init__(self, key: PartKey, checkpoints: Checkpoints, ownership: ReactorOwnership, clock: Clock) -> None:
        self._key = key
        self._checkpoints = checkpoints
        self._ownership = ownership
        self._clock = clock
        self._generation = 0

    async def read(self) -> SourceMark:
        """Return the newest offset that is intact; that of event 0 if there is none."""
        for part in await self._checkpoints.read_parts([self._key]):
            self._generation = max(self._generation, part.generation)
            if is_part_intact(part):
                content = msgspec.msgpack.decode(part.payload, type=AccumulatorPart)
                return SourceMark(content.sequence, content.offset)
        return SourceMark(0, None)

    async def write(self, mark: SourceMark) -> None:
        """Replace the offset; StoreError if another node owns the source now."""
        self._generation += 1
        payload = encode_stored(AccumulatorPart(sequence=mark.number, position=0, offset=mark.offset))
        part = snapshot_part(
            self._key, self._generation, self._generation, self._clock.now(), bytes(DIGEST_SIZE), payload
        )
        await self._checkpoints.save([part], (), self._ownership.fences_for([self._key]))


class RelaySink:
    """Takes the events of one source, and knows which of them the partitions have stored."""

    def __init__(
        self, keyed: PartitionedReactor, accumulator: str, *, runtime: GraphRuntime, bring: BringEvents
    ) -> None:
        self._keyed = keyed
        self._accumulator = accumulator
        self._bring = bring
        self._runtime = runtime
        self._is_durable = runtime.durability.policy_for(keyed.definition).is_durable
        self.stored = SourceMark(0, None)
        """The newest event such that every partition has stored what it got up to it."""
        self.number = 0
        """The number of the newest event that every partition has."""
        self._marks: deque[SourceMark] = deque()  # after the stored one, oldest first
        self._progress: dict[int, RelayProgress] = {}  # of each partition that it has asked
        self._is_repeatable = self._is_durable  # whether the source may send its newest events again
        self._must_continue = False  # whether the next events may be new, although they follow an older offset
        self._is_past_all = False  # whether the number of the next event is higher than all that were taken
        self._is_delivering = False

    def go_to(self, mark: SourceMark) -> Any:
        """Number the next event after a mark; return the offset to read the source from."""
        self.stored, self.number = mark, mark.number
        self._is_past_all = False
        self._marks.clear()
        self._progress.clear()
        return mark.offset

    # -- events

    async def deliver(self, events: Sequence[Any], encoding: str, offset: Any, replays: bool | None) -> None:
        """Push events to their partitions; return when all have them.

        `offset` is that of the source after them; `replays` says whether the source sends them again from an older
        one, None if that is not known. Raises WentBackError if a partition has lost earlier events, which the source
        must send again.
        """
        self._is_repeatable = self._is_durable and offset is not None and replays is not False
        if self._must_continue or not (self._is_repeatable and replays):
            await self._continue_numbers()
        self._is_delivering = True
        try:
            await self._deliver_groups(events, encoding)
        except BaseException:  # some may have been taken, and other events may come next
            self._is_past_all = False
            raise
        finally:
            self._is_delivering = False
        self.number += len(events)
        if self._is_durable:
            self._add_mark(SourceMark(self.number, offset))

    async def _deliver_groups(self, events: Sequence[Any], encoding: str) -> None:
        partitioner = self._keyed.partitioners[self._accumulator]
        groups: dict[int, list[tuple[int, Any]]] = {}
        for number, event in enumerate(events, self.number + 1):
            groups.setdefault(partitioner.route(event, encoding).partition, []).append((number, event))
        deliveries = (self._deliver_group(one, group, encoding) for one, group in groups.items())
        for outcome in await asyncio.gather(*deliveries, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def on_history_lost(self) -> None:
        """Take the next events for new ones: the source may no longer have those that followed its offset."""
        self._must_continue = True

    def move_to(self, offset: Any) -> None:
        """Continue at another offset after a crash: the source has no events before it that were not delivered."""
        if self._marks and self._marks[-1].number == self.number:
            self._marks.pop()
        if self._is_durable:
            self._add_mark(SourceMark(self.number, offset))

    def _add_mark(self, mark: SourceMark) -> None:
        if len(self._marks) >= MAX_MARKS:  # the store has failed for long: fewer points to continue at are enough
            self._marks = deque(islice(self._marks, 1, None, 2))
        self._marks.append(mark)

    async def _deliver_group(self, partition: int, group: Sequence[tuple[int, Any]], encoding: str) -> None:
        """Bring a partition its events; those that cannot be sent together are sent in parts."""
        try:
            await self._bring_group(partition, group, encoding)
        except RequestError as error:
            if not is_unsendable(error):
                raise
            if len(group) == 1:
                await self._bring_unsendable(partition, *group[0], encoding)
                return
            half = len(group) // 2
            await self._deliver_group(partition, group[:half], encoding)
            await self._deliver_group(partition, group[half:], encoding)

    async def _bring_unsendable(self, partition: int, number: int, event: Any, encoding: str) -> None:
        for form in sendable_forms(self._keyed.partitioners[self._accumulator], event, encoding):
            try:
                return await self._bring_group(partition, [(number, form)], encoding)
            except RequestError as error:
                if not is_unsendable(error):
                    raise

    async def _bring_group(self, partition: int, group: Sequence[tuple[int, Any]], encoding: str) -> None:
        async def attempt() -> str | None:
            try:
                return await self._try_group(partition, group, encoding)
            except (RequestError, OperationError):  # some may have been taken: ask again
                self._forget(partition)
                raise

        await self._retry(attempt)

    def _forget(self, partition: int) -> None:
        """Ask again what a partition has taken; what it will miss if it has gone back is still known."""
        if (known := self._progress.get(partition)) is not None:
            self._progress[partition] = replace(known, reason=UNKNOWN)

    async def _retry(self, attempt: Callable[[], Awaitable[str | None]]) -> None:
        """Try until there is no reason to try again: the source must not continue while no node answers.

        Raises the RequestError that says that events cannot be sent: another try cannot help.
        """
        was_logged = False
        while True:
            try:
                with self._runtime.in_flight:
                    reason = await attempt()
            except (RequestError, OperationError) as error:
                if is_unsendable(error):
                    raise
                reason = str(error)
            if reason is None:
                return
            if not was_logged:
                logger.warning(event_names.SOURCE_STALLED, extra={"accumulator": self._accumulator, "reason": reason})
            was_logged = True
            await self._runtime.clock.sleep(self._runtime.settings.checkpoint_interval)

    async def _continue_numbers(self) -> None:
        """Continue after the newest event that any partition has: it may be newer than the stored number."""
        if not self._is_past_all:
            await self._retry(self._jump)
        self._is_past_all, self._must_continue = True, False

    async def pass_gap(self) -> None:
        """Continue the numbers after a gap before an event comes, if all partitions answer now.

        Then the offset after the gap can be stored: a source that started again may have grown past the older one
        when the next reader comes, and show no gap there.
        """
        if not self._must_continue or self._is_delivering:
            return
        try:
            newest = await self._find_newest()
        except (RequestError, OperationError):  # asked again
            return
        if self._must_continue and not self._is_delivering:  # else an event has come meanwhile
            self._number_after(newest)
            self._is_past_all, self._must_continue = True, False

    async def _jump(self) -> None:
        self._number_after(await self._find_newest())

    async def _find_newest(self) -> int:
        found = await asyncio.gather(*(self._ask(number) for number in self._keyed.numbers))
        return max(one.taken for one in found)

    def _number_after(self, newest: int) -> None:
        if newest <= self.number:
            return
        self.number = newest
        if self._marks:  # a reader that goes back to this offset numbers the events after it in the same way
            self._marks.append(SourceMark(newest, self._marks.pop().offset))
        else:
            self.stored = SourceMark(newest, self.stored.offset)

    async def _try_group(self, partition: int, group: Sequence[tuple[int, Any]], encoding: str) -> str | None:
        """Bring a partition those events that it does not have; return why it does not have all of them then."""
        known = self._progress.get(partition)
        if known is None or known.reason is UNKNOWN:
            known = await self._ask(partition)
            self._record(partition, known)
        waiting = [(number, event) for number, event in group if number > known.taken]
        if not waiting:
            return None
        after = known.taken if self._is_durable else 0
        numbers, events = zip(*waiting, strict=True)
        progress = await self._bring(self._part(partition), events, encoding, numbers, after)
        self._record(partition, progress)
        if progress.taken >= numbers[-1]:
            return None
        return progress.reason or "a partition has lost events"

    async def _ask(self, partition: int) -> RelayProgress:
        return await self._bring(self._part(partition), (), "json", (), 0)

    def _part(self, partition: int) -> PartKey:
        return self._keyed.accumulator_part(self._accumulator, partition)

    def _record(self, partition: int, progress: RelayProgress) -> None:
        """Remember how far a partition is; raise WentBackError if it has lost events that can be sent again."""
        before = self._progress.get(partition)
        if before is not None and progress.taken < before.taken and self._is_repeatable:
            lost = f"partition {partition} has its events up to {progress.taken}, and had those up to {before.taken}"
            raise WentBackError(lost)
        self._progress[partition] = progress

    # -- what is stored

    async def ask_unstored(self) -> None:
        """Ask the partitions that have not stored everything yet; raise WentBackError if one has lost events."""
        waiting = {number: one for number, one in self._progress.items() if one.stored < one.taken}
        answers = await asyncio.gather(*(self._ask(one) for one in waiting), return_exceptions=True)
        for (number, before), answer in zip(waiting.items(), answers, strict=True):
            if isinstance(answer, RelayProgress):
                if self._progress.get(number) is before:  # else there is a newer answer
                    self._record(number, answer)
            elif not isinstance(answer, RequestError | OperationError):  # those are asked again
                raise answer

    def find_stored(self) -> SourceMark:
        """Return the newest mark such that every partition has stored what it got up to it.

        After a gap that mark stays until the numbers have continued: at a newer offset the next reader would meet no
        gap, and give new events the numbers of those that partitions have taken.
        """
        if self._must_continue:
            return self.stored
        limit = min((one.stored for one in self._progress.values() if one.stored < one.taken), default=self.number)
        while self._marks and self._marks[0].number <= limit:
            self.stored = self._marks.popleft()
        return self.stored


MAX_SHOWN = 1_000  # characters of an event in its dead letter


def is_unsendable(error: Exception) -> bool:
    """Return whether an error says that an event cannot be sent, now or later."""
    return isinstance(error, RequestError) and error.code == "invalid_value"


def sendable_forms(partitioner: EventPartitioner, event: Any, encoding: str) -> Iterator[Any]:
    """Return forms of an event to send, the best one first; the last one can be sent, and becomes a dead letter."""
    if (reduced := _reduce(partitioner.route(event, encoding).event)) is not None:
        yield reduced
    shown = msgspec.json.encode(to_jsonable(event)).decode()[:MAX_SHOWN]
    text = f"cannot be sent to the node of its partition: {shown}"
    takes_any_bytes = partitioner.validator.exact_class is bytes  # others decode them, and find no value in the text
    yield {"error": text} if takes_any_bytes else text.encode()


def _reduce(event: Any) -> Any:
    """Return a validated event as plain values; None if its annotation names a class that msgpack does not know."""
    try:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(event))
    except (TypeError, ValueError, OverflowError):
        return None
