"""Push paths: everything that an event of one accumulator needs, as one function.

Through a synchronous graph: admission, the author's function, the cache slot, the nodes and the log entry stand in one
generated body, written by the same writer as the graph's own function. Into a reactor that somebody will look at
anyway, such as one whose asynchronous graph is running: only the cache slot and the flag. Whatever is not plain goes to
`with_care`, `hand_on` or `failed`, which know all cases.
"""

from collections.abc import Callable
from types import CodeType
from typing import Any, Protocol

from tidemill.annotations.admission import Admission
from tidemill.engine.graphs.lane import NEWS, SAVED, Lane, Tally
from tidemill.graphs.compiler import Compiled, Routine
from tidemill.graphs.emission import Page
from tidemill.graphs.inputs import Inputs
from tidemill.graphs.routes import Routes
from tidemill.graphs.wired import Wiring
from tidemill.kernel.author_errors import AUTHOR_ERRORS

Handle = Callable[[Any], int | None]

BYTES = frozenset([bytes, bytearray, memoryview])

ABSORB = f"""
def push(event):
    if event.__class__ is not expected:
        return with_care(event)
    try:
        boundary = call(event)
    except AUTHOR_ERRORS as error:
        return spoiled(event, error)
    if lane.pending & {NEWS | SAVED} != {NEWS} or boundary.__class__ is not promised:
        return hand_on(event, boundary)
    tally.sequence = sequence = tally.sequence + 1
    arrivals[index] = now()
    cache[index] = boundary
    inputs.dirty |= flag
    return sequence
"""


class Accumulating(Protocol):
    """The accumulator at the start of a push path."""

    name: str
    call: Callable[..., Any]
    admission: Admission
    boundary: Admission
    tally: Tally

    def with_care(self, event: Any) -> int | None:
        """Take an event that is not plain, or came when the path was shut."""

    def spoiled(self, event: Any, error: BaseException) -> None:
        """Put an event aside that the author's function could not digest."""

    def hand_on(self, event: Any, boundary: Any) -> int | None:
        """Emit a boundary the long way."""


class Turning(Protocol):
    """The reactor at the end of a push path."""

    lane: Lane
    inputs: Inputs

    def failed_fast(self, failure: "FastFailure") -> None:
        """Deal with a fast firing that raised."""

    def end_fast(self) -> None:
        """Look at what is pending after a fast firing."""


class FastFailure:
    """A fast firing that raised: which source, what it brought, when it began, and where to read the error."""

    __slots__ = ("boundary", "error", "index", "routine", "started")

    def __init__(self, index: int, boundary: Any, started: float, error: BaseException, routine: Routine) -> None:
        self.index = index
        self.boundary = boundary
        self.started = started
        self.error = error
        self.routine = routine


class PushPath:
    """The callable that users hold. It never changes; the code behind it does, when what it passes through does."""

    def __init__(self, with_care: Handle) -> None:
        self._when_shut = {"with_care": with_care}
        self._namespace: dict[str, Any] = dict(self._when_shut)
        made: dict[str, Any] = {}
        exec("def push(event):\n    return with_care(event)\n", self._namespace, made)
        self.call: Handle = made["push"]
        self._shut = self.call.__code__
        self.is_open = False

    def _pass_through(self, code: CodeType, namespace: dict[str, Any]) -> None:
        """Change what is behind the callable. Nothing of before stays: no name to mistake, no graph kept alive."""
        self._namespace.clear()
        self._namespace.update(namespace)
        self.call.__code__ = code

    def open(self, source: Accumulating, index: int, graph: Compiled, reactor: Turning) -> None:
        """Run events straight through one graph from now on."""
        page = _PushPage(graph.wiring, source, index, reactor)
        routine = Routine.build(page.filled(), f"{graph.name} pushed by {source.name}")

        def failed(boundary: Any, started: float, error: BaseException) -> None:
            reactor.failed_fast(FastFailure(index, boundary, started, error, routine))

        function = routine.function
        self._pass_through(function.__code__, function.__globals__ | {page.failed: failed})
        self.is_open = True

    def absorb(self, source: Accumulating, index: int, reactor: Turning) -> None:
        """Only replace the last value from now on, whenever somebody is going to look at it anyway."""
        lane = reactor.lane
        namespace = {
            "AUTHOR_ERRORS": AUTHOR_ERRORS,
            "arrivals": lane.arrivals,
            "cache": lane.cache,
            "call": source.call,
            "expected": source.admission.expected,
            "flag": 1 << index,
            "hand_on": source.hand_on,
            "index": index,
            "inputs": reactor.inputs,
            "lane": lane,
            "now": lane.now,
            "promised": source.boundary.expected,
            "spoiled": source.spoiled,
            "tally": source.tally,
            "with_care": source.with_care,
        }
        made: dict[str, Any] = {}
        exec(ABSORB, {}, made)
        self._pass_through(made["push"].__code__, namespace)
        self.is_open = True

    def shut(self) -> None:
        """Take every event with care from now on."""
        self._pass_through(self._shut, self._when_shut)
        self.is_open = False


class _PushPage(Page):
    """The graph's body between taking an event in and noting the firing."""

    def __init__(self, wiring: Wiring, source: Accumulating, index: int, reactor: Turning) -> None:
        super().__init__(wiring, Routes.of(wiring.nodes))
        self.source = source
        self.index = index
        self.with_care = self.refer("with_care", source.with_care)
        self.failed = self.refer("failed", None)
        self.end_fast = self.refer("end_fast", reactor.end_fast)
        self.lane = self.refer("lane", reactor.lane)
        self.cache = self.refer("cache", reactor.lane.cache)
        self.arrivals = self.refer("arrivals", reactor.lane.arrivals)
        self.entries = self.refer("entries", reactor.lane.entries)
        self.now = self.refer("now", reactor.lane.now)
        self.tally = self.refer("tally", source.tally)
        self.event, self.credit, self.error = self.name("event"), self.name("credit"), self.name("error")
        self.sequence, self.started = self.name("sequence"), self.name("started")
        given = wiring.inputs[index]
        self.boundary = given.name if given.own is None else self.name(f"given_{given.name}")

    def open(self) -> None:
        """Write everything before the nodes: take the event in, write the cache slot, read the other inputs."""
        self._take_in()
        self._claim()
        self.line("try:")
        self.margin = self.depth = 2
        used = self.used_inputs()
        for index, one in enumerate(self.wiring.inputs):
            given = self.boundary if index == self.index else f"{self.cache}[{index}]"
            if one.name in used and one.name != given:
                self.read(one, given)
        self.tell_input_variants()

    def _take_in(self) -> None:
        source = self.source
        self.text.append(f"def {self.function}({self.event}):")
        expected = source.admission.expected
        unusual = f"is not {self.class_(expected)}" if expected else f"in {self.refer('BYTES', BYTES)}"
        self.line(f"if {self.event}.__class__ {unusual}:")
        self.line(f"    return {self.with_care}({self.event})")
        self.line("try:")
        self.line(f"    {self.boundary} = {self.refer(f'call_{source.name}', source.call)}({self.event})")
        self.line(f"except {self.refer('AuthorErrors', AUTHOR_ERRORS)} as {self.error}:")
        self.line(f"    return {self.refer('spoiled', source.spoiled)}({self.event}, {self.error})")

    def _claim(self) -> None:
        self.line(f"{self.credit} = {self.lane}.credit")
        self.line(f"if not {self.credit} or {self._is_unusual()}:")
        self.line(f"    return {self.refer('hand_on', self.source.hand_on)}({self.event}, {self.boundary})")
        self.line(f"{self.tally}.sequence = {self.sequence} = {self.tally}.sequence + 1")
        self.line(f"{self.lane}.credit = None")
        self.line(f"{self.cache}[{self.index}] = {self.boundary}")
        self.line(f"{self.arrivals}[{self.index}] = {self.started} = {self.now}()")

    def _is_unusual(self) -> str:
        promised = self.source.boundary
        if promised.expected:
            return f"{self.boundary}.__class__ is not {self.class_(promised.expected)}"
        if promised.classes is None:
            return f"{self.boundary} is None"
        return f"{self.boundary}.__class__ not in {self.refer('declared', frozenset(promised.classes))}"

    def close(self) -> None:
        """Write everything after the nodes: note the firing, and see whether more is to do."""
        self.margin = self.depth = 1
        self.line(f"except {self.refer('BaseException', BaseException)} as {self.error}:")
        self.line(f"    {self.failed}({self.boundary}, {self.started}, {self.error})")
        self.line(f"    return {self.sequence}")
        entry = f"{self.index}, {self.boundary}, {self.started}, {self.now}(), {self.values()}"
        self.line(f"{self.entries}.append(({entry}))")
        self.line(f"if {self.credit} == 1 or {self.lane}.pending:")
        self.line(f"    {self.end_fast}()")
        self.line("else:")
        self.line(f"    {self.lane}.credit = {self.credit} - 1")
        self.line(f"return {self.sequence}")
