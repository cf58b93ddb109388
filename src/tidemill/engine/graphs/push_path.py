"""Push paths: for an accumulator that feeds one synchronous graph, everything an event needs as one function.

Admission, the author's function, the cache slot, the nodes and the log entry stand in one generated body, written by
the same writer as the graph's own function. Whatever is not plain goes to `with_care`, `hand_on` or `failed`, which
know all cases.
"""

from collections.abc import Callable
from typing import Any, Protocol

from tidemill.engine.graphs.lane import Lane, Tally
from tidemill.graphs.compiler import Compiled, Routine
from tidemill.graphs.emission import Page
from tidemill.graphs.routes import Routes
from tidemill.graphs.wired import Wiring

Handle = Callable[[Any], int | None]


class Accumulating(Protocol):
    """The accumulator at the start of a push path."""

    name: str
    call: Callable[..., Any]
    expected: type | None
    promised: type | None
    tally: Tally

    def with_care(self, event: Any) -> int | None:
        """Take an event that is not plain, or came when the path was shut."""

    def spoiled(self, event: Any, error: BaseException) -> None:
        """Put an event aside that the author's function could not digest."""

    def hand_on(self, event: Any, boundary: Any) -> int | None:
        """Emit a boundary the long way."""


class Firing(Protocol):
    """The reactor at the end of a push path."""

    lane: Lane

    def failed_fast(self, failure: "FastFailure") -> None:
        """Deal with a fast firing that raised."""

    def go_on(self) -> None:
        """Look at what is pending."""


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
        self._namespace: dict[str, Any] = {"with_care": with_care}
        exec("def push(event):\n    return with_care(event)\n", self._namespace)
        self.call: Handle = self._namespace["push"]
        self._shut = self.call.__code__
        self.is_open = False

    def open(self, source: Accumulating, index: int, graph: Compiled, reactor: Firing) -> None:
        """Run events straight through one graph from now on."""
        page = _PushPage(graph.wiring, source, index, reactor)
        routine = Routine.build(page.filled(), f"{graph.name} pushed by {source.name}")

        def failed(boundary: Any, started: float, error: BaseException) -> None:
            reactor.failed_fast(FastFailure(index, boundary, started, error, routine))

        self._namespace |= routine.function.__globals__
        self._namespace[page.failed] = failed
        self.call.__code__ = routine.function.__code__
        self.is_open = True

    def shut(self) -> None:
        """Take every event with care from now on."""
        self.call.__code__ = self._shut
        self.is_open = False


class _PushPage(Page):
    """The graph's body between taking an event in and noting the firing."""

    def __init__(self, wiring: Wiring, source: Accumulating, index: int, reactor: Firing) -> None:
        super().__init__(wiring, Routes.of(wiring.nodes))
        self.source = source
        self.index = index
        self.with_care = self.refer("with_care", source.with_care)
        self.failed = self.refer("failed", None)
        self.go_on = self.refer("go_on", reactor.go_on)
        self.lane = self.refer("lane", reactor.lane)
        self.cache = self.refer("cache", reactor.lane.cache)
        self.arrivals = self.refer("arrivals", reactor.lane.arrivals)
        self.entries = self.refer("entries", reactor.lane.entries)
        self.now = self.refer("now", reactor.lane.now)
        self.tally = self.refer("tally", source.tally)
        self.event, self.credit, self.error = self.name("event"), self.name("credit"), self.name("error")
        self.sequence, self.started = self.name("sequence"), self.name("started")
        self.boundary = wiring.inputs[index].name

    def open(self) -> None:
        """Write everything before the nodes: take the event in, write the cache slot, read the other inputs."""
        self._take_in()
        self._claim()
        self.line("try:")
        self.margin = self.depth = 2
        used = self.used_inputs()
        for index, one in enumerate(self.wiring.inputs):
            if one.name in used and index != self.index:
                self.line(f"{one.name} = {self.cache}[{index}]")
        self.tell_input_variants()

    def _take_in(self) -> None:
        source = self.source
        self.text.append(f"def {self.function}({self.event}):")
        if source.expected:
            self.line(f"if {self.event}.__class__ is not {self.class_(source.expected)}:")
            self.line(f"    return {self.with_care}({self.event})")
        self.line("try:")
        self.line(f"    {self.boundary} = {self.refer(f'call_{source.name}', source.call)}({self.event})")
        self.line(f"except {self.refer('AuthorErrors', (Exception, SystemExit))} as {self.error}:")
        self.line(f"    return {self.refer('spoiled', source.spoiled)}({self.event}, {self.error})")

    def _claim(self) -> None:
        promised = self.source.promised
        unusual = (
            f"{self.boundary}.__class__ is not {self.class_(promised)}" if promised else f"{self.boundary} is None"
        )
        self.line(f"{self.credit} = {self.lane}.credit")
        self.line(f"if not {self.credit} or {unusual}:")
        self.line(f"    return {self.refer('hand_on', self.source.hand_on)}({self.event}, {self.boundary})")
        self.line(f"{self.tally}.sequence = {self.sequence} = {self.tally}.sequence + 1")
        self.line(f"{self.lane}.credit = 0")
        self.line(f"{self.cache}[{self.index}] = {self.boundary}")
        self.line(f"{self.arrivals}[{self.index}] = {self.started} = {self.now}()")

    def close(self) -> None:
        """Write everything after the nodes: note the firing, and see whether more is to do."""
        self.margin = self.depth = 1
        self.line(f"except {self.refer('BaseException', BaseException)} as {self.error}:")
        self.line(f"    {self.failed}({self.boundary}, {self.started}, {self.error})")
        self.line(f"    return {self.sequence}")
        entry = f"{self.index}, {self.boundary}, {self.started}, {self.now}(), {self.values()}"
        self.line(f"{self.entries}.append(({entry}))")
        self.line(f"if {self.credit} == 1 or {self.lane}.pending:")
        self.line(f"    {self.go_on}()")
        self.line("else:")
        self.line(f"    {self.lane}.credit = {self.credit} - 1")
        self.line(f"return {self.sequence}")
