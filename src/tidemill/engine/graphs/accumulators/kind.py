"""The common part of the kinds of accumulators. Each kind is a class, and an accumulator has one of them."""

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

from tidemill.engine.graphs.accumulators.emit import Emitter, PendingReceipt
from tidemill.engine.graphs.accumulators.held import Held
from tidemill.engine.graphs.dead_letters import DeadLetterQueue, ReplayedEvent
from tidemill.engine.graphs.durability.journal import JournalStep
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.outcomes import DeadLetter, Receipt


class Intake(Protocol):
    """The intake of an accumulator, as its kind sees it."""

    dead_letters: DeadLetterQueue
    process_lock: asyncio.Lock

    @property
    def emitter(self) -> Emitter:
        """What delivers its boundaries."""

    def process_directly(self, value: Any, held: Held) -> Receipt:
        """Call the function on a validated event now, and emit its boundary."""

    def begin_directly(self, value: Any, held: Held, offset: Any = None) -> PendingReceipt:
        """Call the function on a validated event, and begin to commit its outcome."""

    async def process_in_order(self, value: Any, held: Held, offset: Any = None) -> Receipt:
        """Process a validated event after all that came before it."""

    def is_queue_blocked(self, held: Held) -> bool:
        """Return whether pushers wait already, or a queue has no space."""

    async def reprocess(self, value: Any, replayed: ReplayedEvent, held: Held) -> Receipt:
        """Call the function on the value of a dead letter, and emit its boundary."""


class WithIntake(Protocol):
    """An accumulator, as its kind sees it."""

    @property
    def intake(self) -> Intake:
        """What takes its events."""


class Kind:
    """How an accumulator starts, takes events, reacts to firings, and drains.

    This is what all kinds have in common: the author's function is called on each event, and no event is held back.
    """

    started_health = AccumulatorHealth.SOCKET_ONLY
    allows_fast_path = False
    """Whether processing an event is only a call of the function."""
    holds_events = False
    """Whether an event is held first: then `process_now` and `begin_step` are those of the kind."""
    buffers_events = False
    """Whether events are buffered until they are processed together; then `is_blocked` is that of the kind, too."""
    flushes_after_firing = False
    has_background_loop = False
    """Whether `run_loop` runs next to the pushes."""
    gap_count = 0
    """How often its source has lost events."""

    def __init__(self, accumulator: WithIntake) -> None:
        self.accumulator = accumulator
        self.intake = accumulator.intake
        self.emitter = accumulator.intake.emitter

    # -- the declaration

    def apply_definition(self, definition: Accumulator) -> None:
        """Read what it needs of a declaration."""

    def before_redefine(self, newer: "Kind") -> None:
        """Prepare to become a newer version."""

    def after_redefine(self) -> None:
        """Become the newer version, whose declaration the accumulator has by now."""

    # -- events

    def process_now(self, value: Any, held: Held) -> Receipt:
        """Process a validated event now; for synchronous functions."""
        return self.intake.process_directly(value, held)

    def begin_step(self, value: Any, held: Held, offset: Any = None) -> PendingReceipt:
        """Process a validated event, and begin to commit its outcome; for synchronous functions."""
        return self.intake.begin_directly(value, held, offset)

    async def process_in_order(self, value: Any, held: Held, offset: Any = None) -> Receipt:
        """Process a validated event after all that came before it; for asynchronous functions."""
        return await self.intake.process_in_order(value, held, offset)

    def is_blocked(self, held: Held) -> bool:
        """Return whether an event that is pushed now has to wait."""
        return self.intake.is_queue_blocked(held)

    def emit_or_journal(self, boundary: Any, event: Any, held: Held, offset: Any = None) -> PendingReceipt:
        """Emit the boundary of an event, after its commit if the accumulator is journaled."""
        return self.emitter.emit_or_journal(boundary, event, held, offset)

    def requeue(self, event: Any, held: Held) -> None:
        """Take back an event whose boundary was rejected; only batches do, other pushers get the receipt."""

    def on_dead_letter(self, event: Any, held: Held) -> None:
        """React to an event that became a dead letter."""

    async def replay(self, value: Any, dead_letter: DeadLetter, held: Held) -> Receipt:
        """Process the validated event of a dead letter again."""
        return await self.intake.reprocess(value, ReplayedEvent(dead_letter), held)

    @property
    def event_count(self) -> int:
        """How many events were taken, with any outcome."""
        emitter = self.emitter
        return emitter.sequence + emitter.suppressed + emitter.buffered + self.intake.dead_letters.total

    # -- steps

    def apply_step(self, step: JournalStep, held: Held) -> Any:
        """Update the accumulator by a step, after its commit or in a restore; return the boundary it emits, if any."""
        return self.emitter.apply_boundary(step, held)

    def boundary_of(self, step: JournalStep, held: Held) -> Any:  # noqa: ARG002 - only a window has more than the step
        """Return the boundary that an already applied step emitted."""
        return step.value if step.kind == "boundary" else None

    def after_commit(self, held: Held) -> None:
        """React to a step that was committed and applied; only batches do."""

    def before_refusal(self, step: JournalStep, held: Held) -> None:
        """Take back what was prepared for a step that was not committed; only batches do."""

    # -- what it holds

    @property
    def buffered_count(self) -> int:
        """The number of events that it holds until it processes them together."""
        return 0

    def new_events(self) -> Any:
        """Return an empty collection of the events that it keeps; those of a batch or a window, oldest first."""
        return ()

    def replace_events(self, held: Held, events: Iterable[Any]) -> None:
        """Replace the events that it keeps, for a manual firing or a restore."""

    def migrate_events(self, held: Held) -> None:
        """Keep the events that fit the newer declaration."""

    # -- life

    async def run_loop(self) -> None:
        """Run the background work until cancelled."""

    def feed(self, value: Any, source_reactor: FiringLoop, held: Held) -> None:
        """Take the result of a node of `source_reactor`; only windows do."""

    def after_firing(self, held: Held) -> None:
        """React to a successful firing of a reactor that the accumulator feeds."""

    def on_health_set(self) -> None:
        """React to a word about the health."""

    async def drain(self) -> None:
        """Finish the events in progress, before an orderly stop."""
        async with self.intake.process_lock:
            await self.emitter.wait_committed()

    def before_stop(self) -> None:
        """Count what is lost with the accumulator."""

    @property
    def upstream_lag(self) -> int | None:
        """The number of events that its source has, and that it has not read yet; None if its source cannot say."""
        return None

    @property
    def is_on_thread(self) -> bool:
        """Whether the author's function is running on a separate thread."""
        return False
