"""The fast lane: what a generated push path looks at, in small objects, so that nothing else is read per event.

A push path (see `push_path`) may fire a boundary straight from where it was pushed as long as its reactor grants
`credit`: then the reactor is live, idle and complete, and nothing watches it. The path takes the credit away while the
graph runs (None), which keeps pushes from inside the graph out: they are noted, and fired after it. Whatever must stop
fast firings closes the lane.
"""

from collections.abc import Callable
from types import CodeType
from typing import Any, Protocol

from tidemill.annotations.validation import TypeValidator
from tidemill.graphs.codegen import FunctionWriter
from tidemill.graphs.compiler import CompiledGraph, GeneratedFunction
from tidemill.graphs.inputs import Inputs
from tidemill.graphs.routes import Routes
from tidemill.graphs.wiring_model import Wiring
from tidemill.kernel.author_errors import AUTHOR_ERRORS

FastEntry = tuple[Any, ...]
"""(index of the source, boundary, started, ended, then one value per node)"""

DIRTY, CLOSED, CHECKPOINTED = 1, 2, 4


class FastPathState:
    """One reactor's side of the fast lane."""

    __slots__ = ("arrivals", "cache", "credit", "entries", "flags", "now")

    credit: int | None
    """How many boundaries may still be fired straight from where they were pushed; None while one is."""
    flags: int
    """What whoever ends a firing must look at: NEWS that may make another due, a lane that was CLOSED. And SAVED, which
    a checkpoint leaves behind: the next change has to take the long way, where it is noted."""

    def __init__(self, cache: list[Any], now: Callable[[], float]) -> None:
        self.cache = cache
        self.arrivals: list[float | None] = [None] * len(cache)
        self.entries: list[FastEntry] = []
        self.now = now
        self.credit = 0
        self.flags = 0

    def close(self) -> None:
        """Send the next boundary the long way, also when a fast firing is running just now."""
        if self.credit is not None:
            self.credit = 0
        self.flags |= CLOSED


class SequenceCounter:
    """How many boundaries an accumulator has emitted."""

    __slots__ = ("sequence",)

    def __init__(self) -> None:
        self.sequence = 0


PushHandle = Callable[[Any], int | None]

BYTES_TYPES = frozenset([bytes, bytearray, memoryview])

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


class Accumulating(Protocol):
    """The accumulator at the start of a push path."""

    name: str
    call: Callable[..., Any]
    event_validator: TypeValidator
    boundary_validator: TypeValidator
    counter: SequenceCounter

    def push_slow(self, event: Any) -> int | None:
        """Take an event that is not plain, or came when the path was shut."""

    def dead_letter(self, event: Any, error: BaseException) -> None:
        """Put an event aside that the author's function could not digest."""

    def emit_slow(self, event: Any, boundary: Any) -> int | None:
        """Emit a boundary the long way."""


class Turning(Protocol):
    """The reactor at the end of a push path."""

    fast_path_state: FastPathState
    inputs: Inputs

    def fail_fast_firing(self, failure: "FastFiringFailure") -> None:
        """Deal with a fast firing that raised."""

    def finish_fast_firing(self) -> None:
        """Look at what is pending after a fast firing."""


class FastFiringFailure:
    """A fast firing that raised: which source, what it brought, when it began, and where to read the error."""

    __slots__ = ("boundary", "error", "index", "routine", "started")

    def __init__(
        self, index: int, boundary: Any, started: float, error: BaseException, routine: GeneratedFunction
    ) -> None:
        self.index = index
        self.boundary = boundary
        self.started = started
        self.error = error
        self.routine = routine


class FastPath:
    """The callable that users hold. It never changes; the code behind it does, when what it passes through does."""

    def __init__(self, push_slow: PushHandle) -> None:
        self._slow_namespace = {"push_slow": push_slow}
        self._namespace: dict[str, Any] = dict(self._slow_namespace)
        made: dict[str, Any] = {}
        exec("def push(event):\n    return push_slow(event)\n", self._namespace, made)
        self.call: PushHandle = made["push"]
        self._slow_code = self.call.__code__
        self.is_open = False

    def _switch_to(self, code: CodeType, namespace: dict[str, Any]) -> None:
        """Change what is behind the callable. Nothing of before stays: no name to mistake, no graph kept alive."""
        self._namespace.clear()
        self._namespace.update(namespace)
        self.call.__code__ = code

    def open_to_graph(self, accumulator: Accumulating, index: int, graph: CompiledGraph, firing_loop: Turning) -> None:
        """Run events straight through one graph from now on."""
        page = _FastPathWriter(graph.wiring, accumulator, index, firing_loop)
        routine = GeneratedFunction.build(page.write_function(), f"{graph.name} pushed by {accumulator.name}")

        def failed(boundary: Any, started: float, error: BaseException) -> None:
            firing_loop.fail_fast_firing(FastFiringFailure(index, boundary, started, error, routine))

        function = routine.function
        self._switch_to(function.__code__, function.__globals__ | {page.failed: failed})
        self.is_open = True

    def open_to_cache(self, accumulator: Accumulating, index: int, firing_loop: Turning) -> None:
        """Only replace the last value from now on, whenever somebody is going to look at it anyway."""
        state = firing_loop.fast_path_state
        namespace = {
            "AUTHOR_ERRORS": AUTHOR_ERRORS,
            "arrivals": state.arrivals,
            "cache": state.cache,
            "call": accumulator.call,
            "expected": accumulator.event_validator.exact_class,
            "flag": 1 << index,
            "emit_slow": accumulator.emit_slow,
            "index": index,
            "inputs": firing_loop.inputs,
            "state": state,
            "now": state.now,
            "promised": accumulator.boundary_validator.exact_class,
            "dead_letter": accumulator.dead_letter,
            "counter": accumulator.counter,
            "push_slow": accumulator.push_slow,
        }
        made: dict[str, Any] = {}
        exec(CACHE_ONLY_SOURCE, {}, made)
        self._switch_to(made["push"].__code__, namespace)
        self.is_open = True

    def close(self) -> None:
        """Take every event with care from now on."""
        self._switch_to(self._slow_code, self._slow_namespace)
        self.is_open = False


class _FastPathWriter(FunctionWriter):
    """The graph's body between taking an event in and noting the firing."""

    def __init__(self, wiring: Wiring, accumulator: Accumulating, index: int, firing_loop: Turning) -> None:
        super().__init__(wiring, Routes.from_nodes(wiring.nodes))
        self.accumulator = accumulator
        self.index = index
        self.push_slow = self.bind_value("push_slow", accumulator.push_slow)
        self.failed = self.bind_value("failed", None)
        self.finish_fast_firing = self.bind_value("finish_fast_firing", firing_loop.finish_fast_firing)
        self.state = self.bind_value("state", firing_loop.fast_path_state)
        self.cache = self.bind_value("cache", firing_loop.fast_path_state.cache)
        self.arrivals = self.bind_value("arrivals", firing_loop.fast_path_state.arrivals)
        self.entries = self.bind_value("entries", firing_loop.fast_path_state.entries)
        self.now = self.bind_value("now", firing_loop.fast_path_state.now)
        self.counter = self.bind_value("counter", accumulator.counter)
        self.event, self.credit, self.error = (
            self.unique_name("event"),
            self.unique_name("credit"),
            self.unique_name("error"),
        )
        self.sequence, self.started = self.unique_name("sequence"), self.unique_name("started")
        given = wiring.inputs[index]
        self.boundary = given.name if given.convert is None else self.unique_name(f"given_{given.name}")

    def write_opening(self) -> None:
        """Write everything before the nodes: take the event in, write the cache slot, read the other inputs."""
        self._write_ingest()
        self._write_claim()
        self.write_line("try:")
        self.base_depth = self.depth = 2
        used = self.used_inputs()
        for index, one in enumerate(self.wiring.inputs):
            given = self.boundary if index == self.index else f"{self.cache}[{index}]"
            if one.name in used and one.name != given:
                self.write_input(one, given)
        self.write_input_variants()

    def _write_ingest(self) -> None:
        source = self.accumulator
        self.source_lines.append(f"def {self.function_name}({self.event}):")
        expected = source.event_validator.exact_class
        bytes_types = "" if expected else self.bind_value("BYTES_TYPES", BYTES_TYPES)
        unusual = f"is not {self.bind_class(expected)}" if expected else f"in {bytes_types}"
        self.write_line(f"if {self.event}.__class__ {unusual}:")
        self.write_line(f"    return {self.push_slow}({self.event})")
        self.write_line("try:")
        self.write_line(f"    {self.boundary} = {self.bind_value(f'call_{source.name}', source.call)}({self.event})")
        self.write_line(f"except {self.bind_value('AuthorErrors', AUTHOR_ERRORS)} as {self.error}:")
        self.write_line(f"    return {self.bind_value('dead_letter', source.dead_letter)}({self.event}, {self.error})")

    def _write_claim(self) -> None:
        self.write_line(f"{self.credit} = {self.state}.credit")
        self.write_line(f"if not {self.credit} or {self._unusual_test()}:")
        self.write_line(
            f"    return {self.bind_value('emit_slow', self.accumulator.emit_slow)}({self.event}, {self.boundary})"
        )
        self.write_line(f"{self.counter}.sequence = {self.sequence} = {self.counter}.sequence + 1")
        self.write_line(f"{self.state}.credit = None")
        self.write_line(f"{self.cache}[{self.index}] = {self.boundary}")
        self.write_line(f"{self.arrivals}[{self.index}] = {self.started} = {self.now}()")

    def _unusual_test(self) -> str:
        promised = self.accumulator.boundary_validator
        if promised.exact_class:
            return f"{self.boundary}.__class__ is not {self.bind_class(promised.exact_class)}"
        if promised.classes is None:
            return f"{self.boundary} is None"
        return f"{self.boundary}.__class__ not in {self.bind_value('declared', frozenset(promised.classes))}"

    def write_ending(self) -> None:
        """Write everything after the nodes: note the firing, and see whether more is to do."""
        self.base_depth = self.depth = 1
        self.write_line(f"except {self.bind_value('BaseException', BaseException)} as {self.error}:")
        self.write_line(f"    {self.failed}({self.boundary}, {self.started}, {self.error})")
        self.write_line(f"    return {self.sequence}")
        entry = f"{self.index}, {self.boundary}, {self.started}, {self.now}(), {self.result_expression()}"
        self.write_line(f"{self.entries}.append(({entry}))")
        self.write_line(f"if {self.credit} == 1 or {self.state}.flags:")
        self.write_line(f"    {self.finish_fast_firing}()")
        self.write_line("else:")
        self.write_line(f"    {self.state}.credit = {self.credit} - 1")
        self.write_line(f"return {self.sequence}")
