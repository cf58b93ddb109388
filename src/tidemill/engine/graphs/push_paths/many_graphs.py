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

from tidemill.engine.graphs.host import FiringHost
from tidemill.engine.graphs.push_paths.loop import EventLoop, PushLoop
from tidemill.engine.graphs.push_paths.one_graph import (
    FastPathSource,
    FastPathTarget,
    FiringWriter,
    OneEvent,
    PushWriter,
)
from tidemill.graphs.codegen import FunctionWriter, GeneratedSource
from tidemill.graphs.compiler import CompiledGraph, GeneratedFunction
from tidemill.graphs.context import FiringContext
from tidemill.graphs.inputs import FiringInputs, SourceBoundary
from tidemill.graphs.routes import Routes
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
        writer = _BroadPushWriter(source, index, self, self._broad.target, OneEvent)
        return GeneratedFunction.build(writer.write_function(), f"{source.name} pushes")

    def build_push_loop(self, source: FastPathSource, index: int) -> PushLoop:
        """Build the function that does the same for many events."""
        writer = _BroadPushWriter(source, index, self, self._broad.target, EventLoop)
        return GeneratedFunction.build(writer.write_function(), f"{source.name} pushes many").function


def may_fire_broadly(graphs: Sequence[CompiledGraph]) -> bool:
    """Return whether a broad path can fire these graphs: there are some, and all are synchronous."""
    return bool(graphs) and not any(graph.is_async for graph in graphs)


def _wiring_without_nodes(name: str, inputs: tuple[GraphInput, ...] = ()) -> Wiring:
    return Wiring(name=name, nodes=(), inputs=inputs, terminals=frozenset())


class _BroadPushWriter(PushWriter):
    """Writes the function of one accumulator: it takes the event, evaluates the criteria, and fires."""

    def __init__(
        self, source: FastPathSource, index: int, path: "BroadPath", target: FastPathTarget, shape: type[OneEvent]
    ) -> None:
        super().__init__(_wiring_without_nodes(f"push_{source.name}", path.graph_inputs), source, index, target, shape)
        self.reactor_inputs = target.inputs
        self.inputs = self.code.bind_value("inputs", target.inputs)
        self.path = self.code.bind_value("path", path)
        self.dirty = self.code.unique_name("dirty")

    def write_function(self) -> GeneratedSource:
        """Write the whole function."""
        code = self.code
        self.shape.write_head()
        self.write_ingest()
        self.write_number(f"{code.bind_value('emit_slow', self.source.emit_slow)}({self.event}, {self.boundary})")
        self.write_arrival()
        if self.reactor_inputs.is_sequential:
            consume = code.bind_value("consume", self.reactor_inputs.consume)
            code.write_line(f"{consume}({self.index}, {self.boundary})")
        self._write_decision()
        self.shape.write_tail()
        return code.build_source()

    def unusual_boundary_test(self) -> str:
        return f"{super().unusual_boundary_test()} or {self.cache}[{self.index}] is None"

    def _write_decision(self) -> None:
        code, flag, mask = self.code, 1 << self.index, self.reactor_inputs.criteria_mask
        code.write_line(f"{self.dirty} = {self.inputs}.dirty | {flag}")
        if not flag & mask:
            code.write_line(f"{self.inputs}.dirty = {self.dirty}")
        elif not self.reactor_inputs.needs_all or flag == mask:
            self._write_firing()
        else:
            code.write_line(f"if {self.dirty} & {mask} == {mask}:")
            code.depth += 1
            self._write_firing()
            code.depth -= 1
            code.write_line("else:")
            code.write_line(f"    {self.inputs}.dirty = {self.dirty}")

    def _write_firing(self) -> None:
        fire = f"{self.path}.fire({self.firing.credit}, {self.dirty}, {self.firing.started})"
        if isinstance(self.shape, EventLoop):
            self.code.write_line(f"if not {fire}:")
            self.shape.write_interrupted()
        else:
            self.code.write_line(fire)


class _BroadFiringWriter:
    """Writes the function that calls all graphs of a reactor on one snapshot, logs the firing, and what follows it."""

    def __init__(self, graphs: Sequence[CompiledGraph], broad: BroadPathTarget) -> None:
        wiring = _wiring_without_nodes(f"fire_{broad.host.definition.name}")
        self.code = code = FunctionWriter(wiring, Routes.from_nodes(wiring.nodes))
        self.firing = FiringWriter(code, broad.target)
        self.graphs = graphs
        self.broad = broad
        code.namespace[self.firing.failed] = _failure_handler(graphs, broad)
        code.namespace[FIRING_ON_STACK] = broad.target.describe_fast_firing
        self.inputs = code.bind_value("inputs", broad.target.inputs)
        self.dirty, self.snapshot = code.unique_name("dirty"), code.unique_name("snapshot")
        self.needs_consumed = broad.target.inputs.is_sequential or any(graph.needs_context for graph in graphs)
        self.consumed = code.unique_name("consumed") if self.needs_consumed else "None"
        self.values_names = [code.unique_name(f"{_to_identifier(graph.name)}_values") for graph in graphs]

    def write_function(self) -> GeneratedSource:
        """Write the whole function."""
        code, firing, started = self.code, self.firing, self.firing.started
        code.source_lines.append(f"def {code.function_name}({firing.credit}, {self.dirty}, {started}):")
        code.write_line(f"{firing.state}.credit = None")
        code.write_line(f"{self.inputs}.dirty = 0")
        code.write_line(f"{self.snapshot} = {firing.cache}.copy()")
        if self.needs_consumed:
            take = code.bind_value("take_consumed", self.broad.target.inputs.take_consumed)
            code.write_line(f"{self.consumed} = {take}({self.snapshot}, {self.dirty})")
        self._write_calls()
        values = ", ".join(self.values_names)
        code.write_line(f"{firing.entries}.append((None, {self.snapshot}, {started}, {firing.now}(), {values}))")
        self._write_effects()
        firing.write_credit_end(self._write_interrupted)
        code.write_line("return True")
        return code.build_source()

    def _write_interrupted(self, action: str) -> None:
        """Write the block for a firing that leads to others."""
        self.code.write_line(f"    {action}")
        self.code.write_line("    return None")

    def _write_calls(self) -> None:
        """Write the calls of the graphs; the handler of an error calls those that are left."""
        code, error = self.code, self.firing.error
        code.write_line(f"{' = '.join(self.values_names)} = None")
        code.write_line("try:")
        for graph, values in zip(self.graphs, self.values_names, strict=True):
            call = code.bind_value(f"call_{_to_identifier(graph.name)}", graph.function)
            context = ""
            if graph.needs_context:
                make = code.bind_value(f"context_of_{_to_identifier(graph.name)}", self.broad.make_context(graph))
                context = f", {make}({self.consumed})"
            code.write_line(f"    {values} = {call}({self.snapshot}{context})")
        facts = f"{self.snapshot}, {self.dirty}, {self.consumed}, {self.firing.started}, {error}"
        code.write_line(f"except {code.bind_once('BaseException', BaseException)} as {error}:")
        code.write_line(f"    return {self.firing.failed}({facts}, {', '.join(self.values_names)})")

    def _write_effects(self) -> None:
        """Write what follows a firing, in the order in which `FiringResults` does it."""
        first_line = len(self.code.source_lines)
        self.code.depth += 1
        self._write_feeds()
        if self.broad.observe is not None:
            self.code.write_line(f"{self.code.bind_value('observe', self.broad.observe)}()")
        self._write_flush()
        self.code.depth -= 1
        if len(self.code.source_lines) == first_line:
            return
        self.code.source_lines.insert(first_line, "    try:")
        self.code.write_line(f"except {self.code.bind_once('BaseException', BaseException)} as {self.firing.error}:")
        self.code.write_line(
            f"    return {self.code.bind_value('fail_effects', self.broad.fail_effects)}({self.firing.error})"
        )

    def _write_feeds(self) -> None:
        host = self.broad.host
        value = self.code.unique_name("value")
        pairs = list(zip(self.graphs, self.values_names, strict=True))
        for graph, values in pairs:
            for position, window in graph.window_feeds:
                feed = self.code.bind_value(f"feed_{window}", host.window_feed(window))
                self._write_feed(value, f"{values}[{position}]", f"{feed}({value})")
        push = self.code.bind_value("push_feed", host.push_feed)
        for graph, values in pairs:
            for one in graph.feeds:
                fed = f"{push}({graph.name!r}, {one.accumulator!r}, {value})"
                self._write_feed(value, f"{values}[{one.position}]", fed)

    def _write_feed(self, value: str, expression: str, fed: str) -> None:
        self.code.write_line(f"{value} = {expression}")
        self.code.write_line(f"if {value} is not {self.code.skipped_name} and {value} is not None:")
        self.code.write_line(f"    {fed}")

    def _write_flush(self) -> None:
        host = self.broad.host
        writes_each_firing = host.durability.writes_each_firing
        if not host.batches and not writes_each_firing:
            return
        flush = f"{self.code.bind_value('after_firing', host.after_firing)}(ok=True)"
        if writes_each_firing:  # also without batches: this requests the checkpoint, and a flush waits for it
            return self.code.write_line(flush)
        names = [self.code.bind_value(f"batch_{number}", batch) for number, batch in enumerate(host.batches)]
        self.code.write_line(f"if {' or '.join(f'{name}.buffered_count' for name in names)}:")
        self.code.write_line(f"    {flush}")


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
