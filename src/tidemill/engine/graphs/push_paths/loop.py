"""The push loop: the fast path as the body of a loop, so that many events cost one call.

The loop takes events from an iterator as long as they are usual: of the declared class, with credit for a firing, and
with a boundary of the declared class. Then it returns how it ended, and its caller takes the last event another way, or
runs the loop again: whatever has changed behind the path is found there, never in the middle of the loop. The numbers
of emitted boundaries are not kept one by one: a run of them is reported to the tally when it ends.
"""

from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

from tidemill.engine.graphs.push_paths.one_graph import (
    FastPathSource,
    FastPathTarget,
    OneEvent,
    PushWriter,
    build_plain,
)
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.pushes import ReceiptTally
from tidemill.graphs.wiring_model import Wiring


class LoopEnd(Enum):
    """Why a push loop has ended."""

    EXHAUSTED = auto()
    """There is no further event."""
    DECLINED = auto()
    """The last event was not touched: it must take another way."""
    ANSWERED = auto()
    """The last event left the fast path; the accumulator has its receipt."""
    INTERRUPTED = auto()
    """The last firing has led to others, or has failed; its event is counted."""


PushLoop = Callable[[Iterator[Any], ReceiptTally], LoopEnd]
"""Takes events, and adds the receipts of those that emitted boundaries to the tally."""


def decline_next(events: Iterator[Any], _: ReceiptTally) -> LoopEnd:
    """Decline every event: the loop of an accumulator whose events may all have to wait."""
    return next((LoopEnd.DECLINED for _ in events), LoopEnd.EXHAUSTED)


def has_push_loop(wiring: Wiring) -> bool:
    """Return whether a loop can tell what an error interrupted: an input that is converted or routed may raise itself.

    The locals of a loop still hold the values of the event before, which only the line of a node tells from new ones.
    """
    routed = {edge.source for one in wiring.nodes for edge in one.edges if edge.admitted is not None}
    return all(one.convert is None and one.name not in routed for one in wiring.inputs)


class EventLoop(OneEvent):
    """The shape of a function whose body is a loop over events.

    Every end of the loop reports the run of emitted boundaries first: what follows may raise.
    """

    is_loop = True
    events: str
    tally: str
    before: str
    """The number before the first one of the run."""

    def write_head(self) -> None:
        code = self.code
        self.events, self.tally = code.unique_name("events"), code.unique_name("tally")
        self.before = code.unique_name("before")
        code.source_lines.append(f"def {code.function_name}({self.events}, {self.tally}):")
        code.write_line(f"{self.before} = {self.sequence} = {self.counter}.sequence")
        code.write_line(f"for {self.event} in {self.events}:")
        code.depth += 1

    def write_declined(self) -> None:
        self._write_end(LoopEnd.DECLINED)

    def write_answered(self, action: str) -> None:
        self._write_end(LoopEnd.ANSWERED, action)

    def write_interrupted(self, action: str | None = None) -> None:
        """Write the block for a firing that leads to others, or that has failed; `action` runs before the loop ends."""
        self._write_end(LoopEnd.INTERRUPTED, action)

    def write_numbering(self) -> None:
        write = self.code.write_line
        write(f"if {self.counter}.sequence != {self.sequence}:")  # other events came in between
        write(f"    {self._report_run()}")
        write(f"    {self.before} = {self.sequence} = {self.counter}.sequence")
        write(f"{self.counter}.sequence = {self.sequence} = {self.sequence} + 1")

    def write_tail(self) -> None:
        self.code.depth = 0
        self._write_end(LoopEnd.EXHAUSTED)

    def _write_end(self, end: LoopEnd, action: str | None = None) -> None:
        """Write a block that ends the loop."""
        self.code.write_line(f"    {self._report_run()}")
        if action is not None:
            self.code.write_line(f"    {action}")
        self.code.write_line(f"    return {self.code.bind_once(end.name, end)}")

    def _report_run(self) -> str:
        return f"{self.tally}.add_emitted({self.before} + 1, {self.sequence} - {self.before})"


def build_push_loop(graph: CompiledGraph, source: FastPathSource, index: int, target: FastPathTarget) -> PushLoop:
    """Write and compile the loop from an accumulator through one graph."""
    writer = PushWriter(graph.wiring, source, index, target, EventLoop)
    return build_plain(writer, f"{graph.name} pushed many times by {source.name}", target).function
