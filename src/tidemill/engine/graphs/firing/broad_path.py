"""The broad path: one generated function that fires all graphs of a reactor straight from a push.

The plain fast path writes the nodes of one graph into each accumulator's function. A reactor with several graphs, with
nodes that take the context, with `when="all"`, with windows that its graphs feed, with batches, or with workflows that
follow it needs more: a snapshot that all graphs share, and what follows a firing. That is the same for all of its
accumulators, so it is one function, and the functions of the accumulators only take the event, evaluate the criteria,
and call it. It calls the graphs' own functions. Several inputs may have changed, so a log entry holds the snapshot.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidemill.engine.graphs.firing.fast_path import FastPathSource, FastPathTarget, FastPathWriter, FiringWriter
from tidemill.engine.graphs.firing.host import FiringHost
from tidemill.engine.graphs.firing.push_loop import PushLoop, PushLoopWriter
from tidemill.graphs.codegen import GeneratedSource
from tidemill.graphs.compiler import CompiledGraph, GeneratedFunction
from tidemill.graphs.context import FiringContext
from tidemill.graphs.inputs import FiringInputs, SourceBoundary
from tidemill.graphs.wiring_model import GraphInput, Wiring
from tidemill.telemetry.log_context import FIRING_ON_STACK

FireBroad = Callable[[int, int, float], bool | None]
"""Fires with the cache as it is. Takes the credit, the flags that the firing clears, and its start.

Returns True if the next boundary may follow at once: the firing did not fail, and has led to nothing else."""
ContextMaker = Callable[[list[SourceBoundary]], FiringContext]
"""Returns the context of the fast firing that runs now, from the boundaries that led to it."""


class BroadFiringFailure(msgspec.Struct, frozen=True):
    """A firing on the broad path in which a graph raised: its inputs, and the values of the graphs called before it."""

    inputs: FiringInputs
    started: float
    error: BaseException
    graphs: Sequence[CompiledGraph]
    values: tuple[tuple[Any, ...] | None, ...]
    """By graph; None for the one that raised, and for those after it, which were not called."""


class BroadPathTarget(msgspec.Struct, frozen=True):
    """What the broad path of a reactor needs in addition to the fast path's target."""

    target: FastPathTarget
    host: FiringHost
    make_context: Callable[[CompiledGraph], ContextMaker]
    observe: Callable[[], None] | None
    """Delivers the newest firing to the workflows that follow the reactor; None if none does."""
    fail_firing: Callable[[BroadFiringFailure], None]
    fail_effects: Callable[[BaseException], None]
    """Handles an error of the engine in what follows a firing."""


class BroadPath:
    """The broad path of one reactor, as long as its graphs stay the same.

    Its function calls the graphs that have all required inputs. A boundary that fills an empty input takes the slow
    path; after that, the function may be another one.
    """

    fire: FireBroad

    def __init__(self, inputs: tuple[GraphInput, ...], broad: BroadPathTarget) -> None:
        self.graph_inputs = inputs
        self._broad = broad
        self.graphs: tuple[CompiledGraph, ...] = ()

    def set_ready(self, graphs: Sequence[CompiledGraph]) -> None:
        """Call these graphs from the next firing on."""
        if self.graphs == (ready := tuple(graphs)):
            return
        source = _BroadFiringWriter(ready, self._broad).write_function()
        self.graphs = ready
        self.fire = GeneratedFunction.build(source, f"{self._broad.host.definition.name} fires").function

    def build_push(self, source: FastPathSource, index: int) -> GeneratedFunction:
        """Build the function that takes an event of the accumulator at `index`, and fires if the criteria are met."""
        writer = _BroadPushWriter(source, index, self, self._broad.target)
        return GeneratedFunction.build(writer.write_function(), f"{source.name} pushes")

    def build_push_loop(self, source: FastPathSource, index: int) -> PushLoop:
        """Build the function that does the same for many events."""
        writer = _BroadLoopWriter(source, index, self, self._broad.target)
        return GeneratedFunction.build(writer.write_function(), f"{source.name} pushes many").function


def may_fire_broadly(graphs: Sequence[CompiledGraph]) -> bool:
    """Return whether a broad path can fire these graphs: there are some, and all are synchronous."""
    return bool(graphs) and not any(graph.is_async for graph in graphs)


def _wiring_without_nodes(name: str, inputs: tuple[GraphInput, ...] = ()) -> Wiring:
    return Wiring(name=name, nodes=(), inputs=inputs, terminals=frozenset())


class _BroadPushWriter(FastPathWriter):
    """Writes the function of one accumulator: it takes the event, evaluates the criteria, and fires."""

    def __init__(self, source: FastPathSource, index: int, path: "BroadPath", target: FastPathTarget) -> None:
        super().__init__(_wiring_without_nodes(f"push_{source.name}", path.graph_inputs), source, index, target)
        self.reactor_inputs = target.inputs
        self.inputs = self.bind_value("inputs", target.inputs)
        self.path = self.bind_value("path", path)
        self.dirty = self.unique_name("dirty")

    def write_function(self) -> GeneratedSource:
        """Write the whole function."""
        self.write_head()
        self._write_ingest()
        self._write_number(f"{self.bind_value('emit_slow', self.source.emit_slow)}({self.event}, {self.boundary})")
        self._write_arrival()
        if self.reactor_inputs.is_sequential:
            consume = self.bind_value("consume", self.reactor_inputs.consume)
            self.write_line(f"{consume}({self.index}, {self.boundary})")
        self._write_decision()
        self.write_tail()
        return self.build_source()

    def _unusual_test(self) -> str:
        return f"{super()._unusual_test()} or {self.cache}[{self.index}] is None"

    def _write_decision(self) -> None:
        flag, mask = 1 << self.index, self.reactor_inputs.criteria_mask
        self.write_line(f"{self.dirty} = {self.inputs}.dirty | {flag}")
        if not flag & mask:
            self.write_line(f"{self.inputs}.dirty = {self.dirty}")
        elif not self.reactor_inputs.needs_all or flag == mask:
            self.write_firing()
        else:
            self.write_line(f"if {self.dirty} & {mask} == {mask}:")
            self.depth += 1
            self.write_firing()
            self.depth -= 1
            self.write_line("else:")
            self.write_line(f"    {self.inputs}.dirty = {self.dirty}")

    def write_firing(self) -> None:
        """Write the call that fires."""
        self.write_line(self.firing_call())

    def firing_call(self) -> str:
        """Return the call that fires."""
        return f"{self.path}.fire({self.credit}, {self.dirty}, {self.started})"


class _BroadLoopWriter(PushLoopWriter, _BroadPushWriter):
    """Writes the same as the body of a loop over events."""

    def write_firing(self) -> None:
        self.write_line(f"if not {self.firing_call()}:")
        self.write_interrupted()


class _BroadFiringWriter(FiringWriter):
    """Writes the function that calls all graphs of a reactor on one snapshot, logs the firing, and what follows it."""

    def __init__(self, graphs: Sequence[CompiledGraph], broad: BroadPathTarget) -> None:
        super().__init__(_wiring_without_nodes(f"fire_{broad.host.definition.name}"), broad.target)
        self.graphs = graphs
        self.broad = broad
        self.namespace[self.failed] = _failure_handler(graphs, broad)
        self.namespace[FIRING_ON_STACK] = broad.target.describe_fast_firing
        self.inputs = self.bind_value("inputs", broad.target.inputs)
        self.dirty, self.snapshot = self.unique_name("dirty"), self.unique_name("snapshot")
        self.needs_consumed = broad.target.inputs.is_sequential or any(graph.needs_context for graph in graphs)
        self.consumed = self.unique_name("consumed") if self.needs_consumed else "None"
        self.values_names = [self.unique_name(f"{_to_identifier(graph.name)}_values") for graph in graphs]

    def write_function(self) -> GeneratedSource:
        """Write the whole function."""
        self.source_lines.append(f"def {self.function_name}({self.credit}, {self.dirty}, {self.started}):")
        self.write_line(f"{self.state}.credit = None")
        self.write_line(f"{self.inputs}.dirty = 0")
        self.write_line(f"{self.snapshot} = {self.cache}.copy()")
        if self.needs_consumed:
            take = self.bind_value("take_consumed", self.broad.target.inputs.take_consumed)
            self.write_line(f"{self.consumed} = {take}({self.snapshot}, {self.dirty})")
        self._write_calls()
        values = ", ".join(self.values_names)
        self.write_line(f"{self.entries}.append((None, {self.snapshot}, {self.started}, {self.now}(), {values}))")
        self._write_effects()
        self.write_credit_end()
        self.write_line("return True")
        return self.build_source()

    def _write_calls(self) -> None:
        """Write the calls of the graphs; the handler of an error calls those that are left."""
        self.write_line(f"{' = '.join(self.values_names)} = None")
        self.write_line("try:")
        for graph, values in zip(self.graphs, self.values_names, strict=True):
            call = self.bind_value(f"call_{_to_identifier(graph.name)}", graph.function)
            context = ""
            if graph.needs_context:
                make = self.bind_value(f"context_of_{_to_identifier(graph.name)}", self.broad.make_context(graph))
                context = f", {make}({self.consumed})"
            self.write_line(f"    {values} = {call}({self.snapshot}{context})")
        facts = f"{self.snapshot}, {self.dirty}, {self.consumed}, {self.started}, {self.error}"
        self.write_line(f"except {self.bind_once('BaseException', BaseException)} as {self.error}:")
        self.write_line(f"    return {self.failed}({facts}, {', '.join(self.values_names)})")

    def _write_effects(self) -> None:
        """Write what follows a firing, in the order in which `FiringResults` does it."""
        first_line = len(self.source_lines)
        self.depth += 1
        self._write_feeds()
        if self.broad.observe is not None:
            self.write_line(f"{self.bind_value('observe', self.broad.observe)}()")
        self._write_flush()
        self.depth -= 1
        if len(self.source_lines) == first_line:
            return
        self.source_lines.insert(first_line, "    try:")
        self.write_line(f"except {self.bind_once('BaseException', BaseException)} as {self.error}:")
        self.write_line(f"    return {self.bind_value('fail_effects', self.broad.fail_effects)}({self.error})")

    def _write_feeds(self) -> None:
        host = self.broad.host
        value = self.unique_name("value")
        pairs = list(zip(self.graphs, self.values_names, strict=True))
        for graph, values in pairs:
            for position, window in graph.window_feeds:
                feed = self.bind_value(f"feed_{window}", host.window_feed(window))
                self._write_feed(value, f"{values}[{position}]", f"{feed}({value})")
        push = self.bind_value("push_feed", host.push_feed)
        for graph, values in pairs:
            for one in graph.feeds:
                fed = f"{push}({graph.name!r}, {one.accumulator!r}, {value})"
                self._write_feed(value, f"{values}[{one.position}]", fed)

    def _write_feed(self, value: str, expression: str, fed: str) -> None:
        self.write_line(f"{value} = {expression}")
        self.write_line(f"if {value} is not {self.skipped_name} and {value} is not None:")
        self.write_line(f"    {fed}")

    def _write_flush(self) -> None:
        host = self.broad.host
        writes_each_firing = host.durability.writes_each_firing
        if not host.batches and not writes_each_firing:
            return
        flush = f"{self.bind_value('after_firing', host.after_firing)}(ok=True)"
        if writes_each_firing:  # also without batches: this requests the checkpoint, and a flush waits for it
            return self.write_line(flush)
        names = [self.bind_value(f"batch_{number}", batch) for number, batch in enumerate(host.batches)]
        self.write_line(f"if {' or '.join(f'{name}.buffered_count' for name in names)}:")
        self.write_line(f"    {flush}")


def _failure_handler(graphs: Sequence[CompiledGraph], broad: BroadPathTarget) -> Callable[..., None]:
    """Return the function that the generated one calls when a graph has raised."""
    inputs = broad.target.inputs

    def fail(
        snapshot: list[Any],
        flags: int,
        consumed: list[SourceBoundary] | None,
        started: float,
        error: BaseException,
        *values: tuple[Any, ...] | None,
    ) -> None:
        if consumed is None:
            consumed = inputs.take_consumed(snapshot, flags)
        taken = FiringInputs(snapshot, consumed, flags)
        broad.fail_firing(BroadFiringFailure(taken, started, error, graphs, values))

    return fail


def _to_identifier(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)
