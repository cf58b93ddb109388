"""The push loop: the fast path as the body of a loop, so that many events cost one call.

The loop takes events from an iterator as long as they are usual: of the declared class, with credit for a firing, and
with a boundary of the declared class. Then it returns how it ended, and its caller takes the last event another way, or
runs the loop again: whatever has changed behind the path is found there, never in the middle of the loop. The numbers
of emitted boundaries are not kept one by one: a run of them is reported to the tally when it ends.
"""

from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

from tidemill.engine.graphs.firing.fast_path import (
    BYTES_TYPES,
    FastFiringFailure,
    FastPathSource,
    FastPathTarget,
    FastPathWriter,
)
from tidemill.graphs.compiler import CompiledGraph, GeneratedFunction
from tidemill.graphs.pushes import ReceiptTally
from tidemill.graphs.wiring_model import Wiring
from tidemill.kernel.author_errors import AUTHOR_ERRORS
from tidemill.telemetry.log_context import FIRING_ON_STACK


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
    """Decline every event: the loop of an accumulator without a fast path to one graph."""
    return next((LoopEnd.DECLINED for _ in events), LoopEnd.EXHAUSTED)


def has_push_loop(wiring: Wiring) -> bool:
    """Return whether a loop can tell what an error interrupted: an input that is converted or routed may raise itself.

    The locals of a loop still hold the values of the event before, which only the line of a node tells from new ones.
    """
    routed = {edge.source for one in wiring.nodes for edge in one.edges if edge.admitted is not None}
    return all(one.convert is None and one.name not in routed for one in wiring.inputs)


def build_push_loop(graph: CompiledGraph, source: FastPathSource, index: int, target: FastPathTarget) -> PushLoop:
    """Write and compile the loop from an accumulator through one graph."""
    if not has_push_loop(graph.wiring):
        return decline_next
    writer = _PushLoopWriter(graph.wiring, source, index, target)
    generated = GeneratedFunction.build(writer.write_function(), f"{graph.name} pushed many times by {source.name}")

    def failed(boundary: Any, started: float, error: BaseException) -> None:
        target.fail_fast_firing(FastFiringFailure(index, boundary, started, error, generated))

    generated.function.__globals__.update({writer.failed: failed, FIRING_ON_STACK: target.describe_fast_firing})
    return generated.function


class _PushLoopWriter(FastPathWriter):
    """Writes the fast path as the body of a loop over events."""

    def __init__(self, wiring: Wiring, source: FastPathSource, index: int, target: FastPathTarget) -> None:
        super().__init__(wiring, source, index, target)
        self.events, self.tally = self.unique_name("events"), self.unique_name("tally")
        self.first, self.following = self.unique_name("first"), self.unique_name("following")
        self.author_errors = self.bind_value("AuthorErrors", AUTHOR_ERRORS)
        self.emit_slow = self.bind_value("emit_slow", source.emit_slow)

    def write_opening(self) -> None:
        """Write the head of the loop, and everything in it before the nodes."""
        self.source_lines.append(f"def {self.function_name}({self.events}, {self.tally}):")
        self.write_line(f"{self.first} = {self.following} = {self.counter}.sequence + 1")
        self.write_line(f"for {self.event} in {self.events}:")
        self.depth = 2
        self._write_ingest()
        self._write_claim()
        self.write_line("try:")
        self.base_depth = self.depth = 3
        used = self.used_inputs()
        for index, one in enumerate(self.wiring.inputs):
            if one.name in used and index != self.index:
                self.write_input(one, f"{self.cache}[{index}]")

    def _write_ingest(self) -> None:
        call = self.bind_value(f"call_{self.source.name}", self.source.call)
        self.write_line(f"if {self._class_test()} or not {self.state}.credit:")
        self._write_end(LoopEnd.DECLINED)
        self.write_line("try:")
        self.write_line(f"    {self.boundary} = {call}({self.event})")
        self.write_line(f"except {self.author_errors} as {self.error}:")
        dead_letter = self.bind_value("dead_letter", self.source.dead_letter)
        self._write_end(LoopEnd.ANSWERED, f"{dead_letter}({self.event}, {self.error})")

    def _class_test(self) -> str:
        expected = self.source.event_validator.exact_class
        if expected is None:
            return f"{self.event}.__class__ in {self.bind_value('BYTES_TYPES', BYTES_TYPES)}"
        return f"{self.event}.__class__ is not {self.bind_class(expected)}"

    def _write_claim(self) -> None:
        self.write_line(f"{self.credit} = {self.state}.credit")  # again: the function may have pushed here itself
        self.write_line(f"if not {self.credit} or {self._unusual_test()}:")
        self._write_end(LoopEnd.ANSWERED, f"{self.emit_slow}({self.event}, {self.boundary})")
        self.write_line(f"{self.counter}.sequence = {self.sequence} = {self.counter}.sequence + 1")
        self.write_line(f"if {self.sequence} != {self.following}:")
        self.write_line(f"    {self._report_run()}")
        self.write_line(f"    {self.first} = {self.sequence}")
        self.write_line(f"{self.following} = {self.sequence} + 1")
        self.write_line(f"{self.state}.credit = None")
        self.write_line(f"{self.cache}[{self.index}] = {self.boundary}")
        self.write_line(f"{self.arrivals}[{self.index}] = {self.started} = {self.now}()")

    def write_ending(self) -> None:
        """Write everything after the nodes, and the end of the loop."""
        self.base_depth = self.depth = 2
        self.write_line(f"except {self.bind_value('BaseException', BaseException)} as {self.error}:")
        self._write_end(LoopEnd.INTERRUPTED, f"{self.failed}({self.failed_arguments()})")
        entry = f"{self.entry_facts()}, {self.started}, {self.now}(), {self.result_expression()}"
        self.write_line(f"{self.entries}.append(({entry}))")
        self.write_line(f"if {self.credit} == 1 or {self.state}.flags:")
        self._write_end(LoopEnd.INTERRUPTED, f"{self.finish_fast_firing}()")
        self.write_line(f"{self.state}.credit = {self.credit} - 1")
        self.depth = 0
        self._write_end(LoopEnd.EXHAUSTED)

    def _write_end(self, end: LoopEnd, action: str | None = None) -> None:
        """Write a block that ends the loop: it reports the run so far, then acts."""
        self.write_line(f"    {self._report_run()}")
        if action is not None:
            self.write_line(f"    {action}")
        self.write_line(f"    return {self.bind_once(end.name, end)}")

    def _report_run(self) -> str:
        return f"{self.tally}.add_emitted({self.first}, {self.following} - {self.first})"
