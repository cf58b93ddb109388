"""The fast path: a function generated per accumulator that takes an event through its graph in one call.

The function reads only the small objects below, so that nothing else is touched per event. It may fire a boundary
straight from the push as long as the reactor grants `credit`: then the reactor is live, idle and complete, and no
observer waits. The path sets the credit to None while the graph runs, which keeps out pushes from inside the graph:
they are queued, and fired after it. A change that must stop fast firings closes the path.
"""

from collections.abc import Callable, Collection
from types import CodeType, FunctionType
from typing import Any

import msgspec

from tidemill.annotations.validation import TypeValidator
from tidemill.graphs.codegen import FunctionWriter, GeneratedSource
from tidemill.graphs.compiler import CompiledGraph, GeneratedFunction
from tidemill.graphs.inputs import Inputs
from tidemill.graphs.pushes import PushHandle
from tidemill.graphs.routes import Routes
from tidemill.graphs.wiring_model import Wiring
from tidemill.kernel.author_errors import AUTHOR_ERRORS
from tidemill.telemetry.log_context import FIRING_ON_STACK, ReadFiringOnStack

FastEntry = tuple[Any, ...]
"""(index of the source, boundary, started, ended, then one value per node)"""

DIRTY, CLOSED, CHECKPOINTED = 1, 2, 4


class FastPathState:
    """One reactor's side of the fast path."""

    __slots__ = ("arrivals", "cache", "credit", "entries", "flags", "now")

    credit: int | None
    """How many more boundaries may be fired straight from their push; None while one is being fired."""
    flags: int
    """What the end of a firing must check: DIRTY inputs that may make another one due, a path that was CLOSED. And
    CHECKPOINTED, which a checkpoint leaves: the next change takes the slow path, which requests another checkpoint."""

    def __init__(self, cache: list[Any], now: Callable[[], float]) -> None:
        self.cache = cache
        self.arrivals: list[float | None] = [None] * len(cache)
        self.entries: list[FastEntry] = []
        self.now = now
        self.credit = 0
        self.flags = 0

    def close(self) -> None:
        """Send the next boundary down the slow path, even while a fast firing is running."""
        if self.credit is not None:
            self.credit = 0
        self.flags |= CLOSED


class SequenceCounter:
    """Counts the boundaries that an accumulator has emitted."""

    __slots__ = ("sequence",)

    def __init__(self) -> None:
        self.sequence = 0


PushEvent = Callable[[Any], int | None]
"""Pushes an event; returns the number of the boundary that it emitted, or None."""

BYTES_CLASSES = (bytes, bytearray, memoryview)
BYTES_TYPES = frozenset(BYTES_CLASSES)

CACHE_ONLY_SOURCE = f"""
def push(event):
    if event.__class__ is not expected:
        return push_slow(event)
    try:
        boundary = call(event)
    except AUTHOR_ERRORS as error:
        return dead_letter(event, error)
    if state.flags & {DIRTY | CHECKPOINTED} != {DIRTY} or boundary.__class__ is not promised:
        return emit_slow(event, boundary)
    counter.sequence = sequence = counter.sequence + 1
    arrivals[index] = now()
    cache[index] = boundary
    inputs.dirty |= flag
    return sequence
"""


class FastPathSource(msgspec.Struct, frozen=True):
    """The accumulator at the start of a fast path."""

    name: str
    call: Callable[..., Any]
    """The author's function."""
    event_validator: TypeValidator
    boundary_validator: TypeValidator
    counter: SequenceCounter
    push_slow: PushEvent
    """Takes an event of another class than declared, and one for which there may be no queue space."""
    dead_letter: Callable[[Any, BaseException], None]
    """Takes an event for which the author's function raised."""
    emit_slow: Callable[[Any, Any], int | None]
    """Emits a boundary that the fast path cannot take, with its event."""


class FastPathTarget(msgspec.Struct, frozen=True):
    """The reactor at the end of a fast path."""

    state: FastPathState
    inputs: Inputs
    finish_fast_firing: Callable[[], None]
    fail_fast_firing: Callable[["FastFiringFailure"], None]
    describe_fast_firing: ReadFiringOnStack
    """Returns the fields of log records about the fast firing that runs now."""


class FastFiringFailure:
    """A fast firing that raised: its source and boundary, when it started, and the function to read the error from."""

    __slots__ = ("boundary", "error", "generated", "index", "started")

    key_state: Any = None  # of a keyed reactor: of the key that it fired

    def __init__(
        self, index: int, boundary: Any, started: float, error: BaseException, generated: GeneratedFunction
    ) -> None:
        self.index = index
        self.boundary = boundary
        self.started = started
        self.error = error
        self.generated = generated


class FastPath:
    """The callable that users hold. It never changes; its code does, when the graph or the reactor behind it does."""

    def __init__(self, push_slow: PushEvent) -> None:
        self._slow_namespace = {"push_slow": push_slow}
        self._namespace: dict[str, Any] = dict(self._slow_namespace)
        defined: dict[str, Any] = {}
        exec("def push(event):\n    return push_slow(event)\n", self._namespace, defined)
        self._function: FunctionType = defined["push"]
        self.call: PushHandle = defined["push"]
        self._slow_code = self._function.__code__
        self.is_open = False
        self.graph: CompiledGraph | None = None  # the one that it leads to, if it leads to one

    def _switch_to(self, code: CodeType, namespace: dict[str, Any]) -> None:
        """Replace the code behind the callable. No name of the old code stays, so that no old graph is kept alive."""
        self.graph = None
        self._namespace.clear()
        self._namespace.update(namespace)
        self._function.__code__ = code

    def open(
        self,
        source: FastPathSource,
        index: int,
        target: FastPathTarget,
        graph: CompiledGraph | None,
        *,
        accepts_all: bool,
    ) -> None:
        """Open the path to the reactor's graph, or to its cache if the graph does not fire on this source alone."""
        decides = not target.inputs.needs_all and bool(target.inputs.criteria_mask >> index & 1)
        if decides and graph is not None:
            self._open_to_graph(source, index, graph, target)
        elif accepts_all and source.event_validator.exact_class and source.boundary_validator.exact_class:
            self._open_to_cache(source, index, target)

    def _open_to_graph(self, source: FastPathSource, index: int, graph: CompiledGraph, target: FastPathTarget) -> None:
        """Run events straight through one graph from now on."""
        writer = PushWriter(graph.wiring, source, index, target, OneEvent)
        self.open_to_function(build_plain(writer, f"{graph.name} pushed by {source.name}", target))
        self.graph = graph

    def open_to_function(self, generated: GeneratedFunction) -> None:
        """Run events through this function from now on."""
        function = generated.function
        self._switch_to(function.__code__, function.__globals__)
        self.is_open = True

    def _open_to_cache(self, source: FastPathSource, index: int, target: FastPathTarget) -> None:
        """Only replace the cached value from now on, whenever the criteria are going to be evaluated anyway."""
        state = target.state
        namespace = {
            "AUTHOR_ERRORS": AUTHOR_ERRORS,
            "arrivals": state.arrivals,
            "cache": state.cache,
            "call": source.call,
            "expected": source.event_validator.exact_class,
            "flag": 1 << index,
            "emit_slow": source.emit_slow,
            "index": index,
            "inputs": target.inputs,
            "state": state,
            "now": state.now,
            "promised": source.boundary_validator.exact_class,
            "dead_letter": source.dead_letter,
            "counter": source.counter,
            "push_slow": source.push_slow,
        }
        defined: dict[str, Any] = {}
        exec(CACHE_ONLY_SOURCE, {}, defined)
        self._switch_to(defined["push"].__code__, namespace)
        self.is_open = True

    def close(self) -> None:
        """Send every event down the slow path from now on."""
        self._switch_to(self._slow_code, self._slow_namespace)
        self.is_open = False


def find_fast_graph(graphs: Collection[CompiledGraph]) -> CompiledGraph | None:
    """Return the graph that fast paths may run: the only one, synchronous, and it feeds no accumulators."""
    if len(graphs) != 1:
        return None
    (graph,) = graphs
    is_plain = not (graph.is_async or graph.needs_context or graph.window_feeds or graph.feeds)
    return graph if is_plain else None


def build_plain(writer: "PushWriter", title: str, target: FastPathTarget) -> GeneratedFunction:
    """Write and compile a path through one graph, and bind what it calls when a firing fails."""
    generated, index = GeneratedFunction.build(writer.write_function(), title), writer.index

    def failed(boundary: Any, started: float, error: BaseException) -> None:
        target.fail_fast_firing(FastFiringFailure(index, boundary, started, error, generated))

    generated.function.__globals__.update({writer.firing.failed: failed, FIRING_ON_STACK: target.describe_fast_firing})
    return generated


class FiringWriter:
    """Writes the end of a firing, and has the names of the reactor's side of the fast path in a function that fires."""

    def __init__(self, code: FunctionWriter, target: FastPathTarget) -> None:
        self.code = code
        self.failed = code.bind_value("failed", None)
        self.finish_fast_firing = code.bind_value("finish_fast_firing", target.finish_fast_firing)
        self.state = code.bind_value("state", target.state)
        self.cache = code.bind_value("cache", target.state.cache)
        self.entries = code.bind_value("entries", target.state.entries)
        self.now = code.bind_value("now", target.state.now)
        self.credit, self.error = code.unique_name("credit"), code.unique_name("error")
        self.started = code.unique_name("started")

    def write_credit_end(self, write_interrupted: Callable[[str], None]) -> None:
        """Write the end of a firing: fire what is pending, or let the next boundary be fired."""
        self.code.write_line(f"if {self.credit} == 1 or {self.state}.flags:")
        write_interrupted(f"{self.finish_fast_firing}()")
        self.code.write_line(f"{self.state}.credit = {self.credit} - 1")


class OneEvent:
    """The shape of a function that takes one event: how it begins, and how it ends.

    `push_loop.EventLoop` is the other shape: the body of a loop over events.
    """

    is_loop = False

    def __init__(self, code: FunctionWriter, counter: str, push_slow: str) -> None:
        self.code = code
        self.counter = counter
        self.push_slow = push_slow
        self.event, self.sequence = code.unique_name("event"), code.unique_name("sequence")

    def write_head(self) -> None:
        """Write everything before the event is there."""
        self.code.source_lines.append(f"def {self.code.function_name}({self.event}):")

    def write_declined(self) -> None:
        """Write the block for an event that this path cannot take."""
        self.code.write_line(f"    return {self.push_slow}({self.event})")

    def write_answered(self, action: str) -> None:
        """Write the block for an event that leaves the path by a call, which returns the number of its boundary."""
        self.code.write_line(f"    return {action}")

    def write_interrupted(self, action: str) -> None:
        """Write the block for a firing that leads to others, or that has failed."""
        self.code.write_line(f"    {action}")
        self.code.write_line(f"    return {self.sequence}")

    def write_numbering(self) -> None:
        """Write the lines that give the boundary its number."""
        self.code.write_line(f"{self.counter}.sequence = {self.sequence} = {self.counter}.sequence + 1")

    def write_tail(self) -> None:
        """Write the end for an event that was fired."""
        self.code.write_line(f"return {self.sequence}")


class PushWriter:
    """Writes the graph's body between the code that takes the event and the code that logs the firing.

    It has the writer of the function itself, that of the firing's end, and the shape of the function. Subclasses take
    the event another way, or write another body.
    """

    def __init__(
        self, wiring: Wiring, source: FastPathSource, index: int, target: FastPathTarget, shape: type[OneEvent]
    ) -> None:
        self.code = code = FunctionWriter(wiring, Routes.from_nodes(wiring.nodes))
        self.firing = FiringWriter(code, target)
        self.source = source
        self.index = index
        self.queues_boundaries = target.inputs.is_sequential
        push_slow = code.bind_value("push_slow", source.push_slow)
        self.arrivals = code.bind_value("arrivals", target.state.arrivals)
        counter = code.bind_value("counter", source.counter)
        self.author_errors = code.bind_value("AuthorErrors", AUTHOR_ERRORS)
        self.shape = shape(code, counter, push_slow)
        self.event = self.shape.event
        self.cache = self.firing.cache
        given = wiring.inputs[index]
        self.boundary = given.name if given.convert is None else code.unique_name(f"given_{given.name}")

    def write_function(self) -> GeneratedSource:
        """Write the whole function."""
        self.shape.write_head()
        self.write_ingest()
        self.write_claim()
        self._write_inputs()
        self.code.write_sequential_body()
        self._write_ending()
        return self.code.build_source()

    # -- taking the event

    def write_ingest(self) -> None:
        """Write the lines that find an unusual event, and call the author's function on any other."""
        self.code.write_line(f"if {self.unusual_event_test()}:")
        self.shape.write_declined()
        dead_letter = self.code.bind_value("dead_letter", self.source.dead_letter)
        self.write_author_call(f"{dead_letter}({self.event}, {self.firing.error})")

    def unusual_event_test(self) -> str:
        """Return the test for an event that this path cannot take."""
        expected = self.source.event_validator.exact_class
        if expected is None:
            test = f"{self.event}.__class__ in {self.code.bind_value('BYTES_TYPES', BYTES_TYPES)}"
        else:
            test = f"{self.event}.__class__ is not {self.code.bind_class(expected)}"
        # without credit, a queue may be full: then the function is not called, and the event is rejected or waits
        return f"{test} or not {self.firing.state}.credit" if self.queues_boundaries else test

    def write_author_call(self, dead_letter: str) -> None:
        """Write the call of the author's function, and that of `dead_letter` if it raises."""
        call = self.code.bind_value(f"call_{self.source.name}", self.source.call)
        self.code.write_line("try:")
        self.code.write_line(f"    {self.boundary} = {call}({self.event})")
        self.code.write_line(f"except {self.author_errors} as {self.firing.error}:")
        self.shape.write_answered(dead_letter)

    def write_claim(self) -> None:
        """Write the lines that number the boundary, and put it into the cache."""
        self.write_number(f"{self.code.bind_value('emit_slow', self.source.emit_slow)}({self.event}, {self.boundary})")
        self.code.write_line(f"{self.firing.state}.credit = None")
        self.write_arrival()

    def write_number(self, emit_slow: str) -> None:
        """Write the lines that number the boundary, unless it must be emitted the slow way."""
        self.code.write_line(f"{self.firing.credit} = {self.firing.state}.credit")
        self.code.write_line(f"if not {self.firing.credit} or {self.unusual_boundary_test()}:")
        self.shape.write_answered(emit_slow)
        self.shape.write_numbering()

    def write_arrival(self) -> None:
        """Write the lines that put the boundary into the cache."""
        self.code.write_line(f"{self.cache}[{self.index}] = {self.boundary}")
        self.code.write_line(f"{self.arrivals}[{self.index}] = {self.firing.started} = {self.firing.now}()")

    def unusual_boundary_test(self) -> str:
        """Return the test for a boundary that must be emitted the slow way."""
        promised = self.source.boundary_validator
        if promised.exact_class:
            return f"{self.boundary}.__class__ is not {self.code.bind_class(promised.exact_class)}"
        if promised.classes is None:
            return f"{self.boundary} is None"
        return f"{self.boundary}.__class__ not in {self.code.bind_value('declared', frozenset(promised.classes))}"

    # -- the nodes, and what follows them

    def _write_inputs(self) -> None:
        """Open the block of the nodes, and read the other inputs."""
        code = self.code
        code.write_line("try:")
        code.depth += 1
        code.base_depth = code.depth
        used = code.used_inputs()
        for index, one in enumerate(code.wiring.inputs):
            given = self.boundary if index == self.index else f"{self.cache}[{index}]"
            if one.name in used and one.name != given:
                code.write_input(one, given)
        code.write_input_variants()

    def _write_ending(self) -> None:
        """Write everything after the nodes: log the firing, and check for pending work."""
        code, firing = self.code, self.firing
        code.base_depth = code.depth = code.depth - 1
        code.write_line(f"except {code.bind_value('BaseException', BaseException)} as {firing.error}:")
        self.shape.write_interrupted(f"{firing.failed}({self.failed_arguments()})")
        entry = f"{self.entry_facts()}, {firing.started}, {firing.now}(), {code.result_expression()}"
        code.write_line(f"{firing.entries}.append(({entry}))")
        firing.write_credit_end(self.shape.write_interrupted)
        self.shape.write_tail()

    def failed_arguments(self) -> str:
        """Return what the handler of a failed firing is called with."""
        return f"{self.boundary}, {self.firing.started}, {self.firing.error}"

    def entry_facts(self) -> str:
        """Return what a log entry begins with."""
        return f"{self.index}, {self.boundary}"
