"""Batches: gather events, and sum them up by time, by size, after each firing, and at an orderly end.

Under a journal an event is held only once that is committed, and let go of by the same commit that records the sum:
whenever the process dies, each event is either still held or already part of a boundary, never both.
"""

import asyncio
from typing import Any, Self

from tidemill.annotations.admission import MisfitError
from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.dead_letters import Gathered, Replayed
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.outlet import Answer, answered
from tidemill.engine.graphs.step import Step
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.result import DeadLetter, Receipt
from tidemill.kernel.author_errors import AUTHOR_ERRORS


class Batch(RunningAccumulator):
    """Holds events until they are summed up together."""

    healthy_as = AccumulatorHealth.LIVE
    flushes_after_firing = True
    works = True
    holds = True

    def __init__(self, definition: Accumulator, tenant: str, environment: Environment) -> None:
        super().__init__(definition, tenant, environment)
        self.buffer: list[Any] = []
        self._releasing = 0  # events at the front of the buffer whose sum is being committed
        self._is_flushing = False  # because of its size
        self._failed = 0

    def redefine(self, newer: Self) -> None:
        super().redefine(newer)
        leaving, staying = self.buffer[: self._releasing], self.buffer[self._releasing :]
        self.buffer = [*leaving, *self._migrated(staying)]  # those that leave are counted, whatever they are

    @property
    def events(self) -> int:
        """How many single events were taken in; a batch that failed is not one more."""
        return self.buffered + self.letters.total - self._failed

    @property
    def held(self) -> list[Any]:
        return self.buffer.copy()

    def hold(self, content: Any) -> None:
        self.buffer = list(content)

    # -- holding

    def take(self, value: Any) -> Receipt:
        """Keep an event, and sum up what is kept if that is enough."""
        self._keep(value)
        if self._is_large():
            flushed = self.flush()
            if isinstance(flushed, Receipt):
                return flushed
        return self._receipt("buffered")

    def take_step(self, value: Any, offset: Any = None) -> Answer:
        """Begin to commit that an event is held."""
        return self.commit(Step("held", value, offset=offset), value)

    def advance(self, step: Step) -> Any:
        """Hold an event, or let go of those that a sum or a dead letter stands for."""
        if step.kind == "held":
            self._keep(step.value)
            return None
        self._let_go(step.count)
        return super().advance(step) if step.kind == "boundary" else None

    def complete(self, step: Step, position: int) -> Receipt:
        """Let a step happen, and sum up if that fills the batch."""
        receipt = super().complete(step, position)
        if self._is_large() and not self._is_flushing:
            self._is_flushing = True
            self.environment.tasks.start(self._flush_title, self._flush_while_large())
        return receipt

    def comes_again(self, step: Step) -> bool:
        """Return whether a refused step is tried again: a sum always is, its events are still held."""
        return step.kind != "held" or super().comes_again(step)

    def refuse(self, step: Step, reason: str) -> Receipt:
        """Take a step back; events whose sum was refused may be summed up again."""
        if step.kind != "held":
            self._releasing = 0
        return super().refuse(step, reason)

    async def _take_in_turn(self, value: Any, offset: Any = None) -> Receipt:
        if self.commits:
            return await self._take_committed(value, offset)
        async with self._turn:
            if self._is_large(with_another=True):
                await self._wait_for_room()
            if (turned_away := self._turned_away()) is not None:
                return turned_away
            return await self._take_async(value)

    async def _take_async(self, value: Any) -> Receipt:
        self._keep(value)
        return (await self._flush_async() if self._is_large() else None) or self._receipt("buffered")

    def _keep(self, value: Any) -> None:
        self.buffer.append(value)
        self.buffered += 1
        self._last_event = self.clock.monotonic()
        self.note()

    def _is_large(self, *, with_another: bool = False) -> bool:
        size = self.definition.max_size
        return size is not None and len(self.buffer) + with_another >= size

    def _blocked(self) -> bool:
        """Only the event that fills the batch may have to wait: the others are merely kept."""
        if self._waiting or not self._flows.is_set():
            return True
        return self._is_large(with_another=True) and super()._blocked()

    # -- summing up

    def flush(self) -> Answer | None:
        """Sum up what is buffered and hand it on; nothing happens without events or without room for the result."""
        whole = self._gather()
        if whole is None:
            return None
        try:
            boundary = self.process(whole.events)
        except AUTHOR_ERRORS as error:
            return self._dead(whole, error)
        return self.hand_in(boundary, whole)

    def _gather(self) -> Gathered | None:
        """Return what is to be summed up. Under a journal it stays in the buffer until the sum is committed."""
        if not self.buffer or self._releasing or self._has_no_room():
            return None
        if self.commits:
            gathered = self.buffer[: self.definition.max_size]
            self._releasing = len(gathered)
        else:
            gathered, self.buffer = self.buffer, []
            self.note()  # also if nothing comes of them
        return Gathered(gathered, self._releasing)

    def hand_in(self, boundary: Any, event: Any, offset: Any = None, count: int = 0) -> Answer:
        """Emit a sum, and let go of its events with it; also if nothing came of them."""
        count = event.count if isinstance(event, Gathered) else count
        if count and not self.commits:  # a newer version has no journal
            self._let_go(count)
            count = 0
        if count and boundary is None:
            self.suppressed += 1
            return self.commit(Step("released", count=count), event)
        return super().hand_in(boundary, event, offset, count)

    def _let_go(self, count: int) -> None:
        del self.buffer[:count]
        self._releasing = 0

    def turned_back(self, event: Any) -> None:
        """Hold events on whose sum was turned away."""
        if isinstance(event, Gathered):
            self._releasing = 0
            if not event.count:
                self.buffer[:0] = event.events

    def _has_no_room(self) -> bool:
        return not self._flows.is_set() or any(
            target.room.is_blocked or target.room.refuses for target, _ in self.targets
        )

    def _dead(self, event: Any, error: BaseException, form: str = "json") -> Receipt:
        self._failed += isinstance(event, Gathered)
        receipt = super()._dead(event, error, form)
        if isinstance(event, Gathered) and event.count:  # held until the letter is stored
            self.environment.keeper.after_write(lambda: self._let_go_of_dead(event))
        return receipt

    def _let_go_of_dead(self, event: Gathered) -> None:
        if self.commits:
            self.commit(Step("released", count=event.count), event)
        else:
            self._let_go(event.count)

    async def _flush_async(self) -> Receipt | None:
        whole = self._gather()
        if whole is None:
            return None
        return await answered(await self.watch_over(lambda: self.process(whole.events), whole))

    async def _flush_while_large(self) -> None:
        try:
            while self._is_large():
                receipt = await self._flush_in_turn()
                if receipt is None or receipt.outcome == "rejected" or self._releasing:
                    return  # no room, no store, or a letter to wait for: the next event or the timer sees to it
        finally:
            self._is_flushing = False

    async def _flush_in_turn(self) -> Receipt | None:
        async with self._turn:
            if self.is_async:
                return await self._flush_async()
            answer = self.flush()
            return None if answer is None else await answered(answer)

    def after_firing(self) -> None:
        if self.is_async or self.commits:
            if self.buffer:
                self._flush_soon()
        else:
            self.flush()

    def _flush_soon(self) -> None:
        self.environment.tasks.start(self._flush_title, self._flush_in_turn())

    @property
    def _flush_title(self) -> str:
        return f"accumulator {self.name}: flush"

    async def work(self) -> None:
        while True:
            await self.clock.sleep(self.definition.every or 0.0)
            if self.is_async or self.commits:
                await self.environment.tasks.see_through(self._flush_title, self._flush_in_turn())
            else:
                self.flush()

    # -- ending

    async def drain(self) -> None:
        if self.is_async or self.commits:  # in a task of its own: if it hangs, `stop` puts the events aside
            await asyncio.wait({self.environment.tasks.start(self._flush_title, self._flush_in_turn())})
        else:
            self.flush()
        await self.environment.keeper.all_committed()

    async def stop(self) -> None:
        if not any(reactor.is_kept for reactor, _ in self.targets):
            left, self.buffer = self.buffer, []
            for _ in left:
                self._count_drop("unloaded")
        await super().stop()

    async def _take_again(self, letter: DeadLetter, detail: Any) -> Receipt:
        """Take a batch that failed, or a single event that did not fit."""
        if isinstance(detail, Gathered):
            return await self._process_again(detail.events, Replayed(letter))
        try:
            value = self._admit(letter.event, detail)
        except MisfitError as error:
            return self._dead(Replayed(letter), error)
        if self.commits:
            return await answered(self.commit(Step("held", value), Replayed(letter)))
        self.letters.remove(letter.id)  # from now on the event shares the fate of its batch
        return await self._take_async(value) if self.is_async else self.take(value)
