"""The fast path of a keyed accumulator: the generated function looks the key up, and runs the graph on its cache."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidemill.engine.graphs.push_paths.loop import EventLoop, PushLoop
from tidemill.engine.graphs.push_paths.one_graph import (
    FastFiringFailure,
    FastPath,
    FastPathSource,
    FastPathTarget,
    OneEvent,
    PushWriter,
)
from tidemill.graphs.compiler import CompiledGraph, GeneratedFunction
from tidemill.graphs.keys import PLAIN_CLASSES, Key, KeyReader, is_plain_tuple
from tidemill.telemetry.log_context import FIRING_ON_STACK


class KeyedFiringFailure(FastFiringFailure):
    """A fast firing of a keyed reactor that raised."""

    __slots__ = ("key_state",)

    key_state: Any


class KeyedTarget(msgspec.Struct, frozen=True):
    """A keyed reactor at the end of a fast path."""

    target: FastPathTarget
    active: Mapping[Key, Any]
    """The states of the keys that are in memory. The generated function reads `cache` and `is_fast` of one."""


class KeyedSource(msgspec.Struct, frozen=True):
    """A keyed accumulator at the start of a fast path."""

    source: FastPathSource
    read_key: KeyReader
    """Called unchecked: an event whose key is not active takes the slow path, which checks it."""
    dead_letter: Callable[[Any, Any, BaseException], None]
    emit_slow: Callable[[Any, Any, Any], int | None]


class KeyedFastPath(FastPath):
    """The callable that users hold of a keyed accumulator."""

    def open_to_keys(self, keyed: KeyedSource, index: int, target: KeyedTarget, graph: CompiledGraph) -> None:
        """Run events of active keys straight through one graph from now on."""
        writer = _KeyedPushWriter(graph, keyed, index, target, OneEvent)
        self.open_to_function(_build(writer, f"{graph.name} pushed by {keyed.source.name}"))
        self.graph = graph


def build_keyed_loop(keyed: KeyedSource, index: int, target: KeyedTarget, graph: CompiledGraph) -> PushLoop:
    """Write and compile the push loop from a keyed accumulator through one graph."""
    writer = _KeyedPushWriter(graph, keyed, index, target, EventLoop)
    return _build(writer, f"{graph.name} pushed many times by {keyed.source.name}").function


class _KeyedPushWriter(PushWriter):
    """Writes the graph's body between the code that looks the key up and the code that logs the firing."""

    def __init__(
        self, graph: CompiledGraph, keyed: KeyedSource, index: int, target: KeyedTarget, shape: type[OneEvent]
    ) -> None:
        super().__init__(graph.wiring, keyed.source, index, target.target, shape)
        self.keyed = keyed
        self.target = target.target
        code = self.code
        self.active = code.bind_value("active", target.active)
        self.cache = code.unique_name("cache")
        self.key, self.key_state = code.unique_name("key"), code.unique_name("key_state")

    def write_ingest(self) -> None:
        code, shape = self.code, self.shape
        code.write_line(f"if {self.unusual_event_test()}:")
        shape.write_declined()
        code.write_line("try:")
        code.write_line(f"    {self.key} = {self._key_expression()}")
        code.write_line(f"    {self.key_state} = {self.active}.get({self.key})")
        code.write_line(f"except {self.author_errors}:")
        shape.write_declined()
        code.write_line(f"if {self._unusual_key_test()}:")
        shape.write_declined()
        dead_letter = code.bind_value("dead_letter", self.keyed.dead_letter)
        self.write_author_call(f"{dead_letter}({self.key_state}, {self.event}, {self.firing.error})")

    def _unusual_key_test(self) -> str:
        code = self.code
        plain, is_tuple = code.bind_value("plain", PLAIN_CLASSES), code.bind_value("is_tuple", is_plain_tuple)
        is_other = f"{self.key}.__class__ not in {plain} and not {is_tuple}({self.key})"  # True would find 1
        test = f"{self.key_state} is None or {is_other}"
        if self.queues_boundaries:  # its queue may be full
            return f"{test} or not {self.key_state}.is_fast"
        if self.shape.is_loop:  # a key that has to wait, or to be read from the store, takes another way
            return f"{test} or not {self.key_state}.is_fast or not {self.firing.state}.credit"
        return test

    def _key_expression(self) -> str:
        read_key = self.keyed.read_key
        if read_key.attribute is not None:
            return f"{self.event}.{read_key.attribute}"
        return f"{self.code.bind_value('read_key', read_key.unchecked)}({self.event})"

    def write_claim(self) -> None:
        emit_slow = self.code.bind_value("emit_slow", self.keyed.emit_slow)
        self.write_number(f"{emit_slow}({self.key_state}, {self.event}, {self.boundary})")
        self.code.write_line(f"{self.firing.state}.credit = None")
        self.code.write_line(f"{self.cache} = {self.key_state}.cache")
        self.write_arrival()

    def unusual_boundary_test(self) -> str:
        return f"not {self.key_state}.is_fast or {super().unusual_boundary_test()}"

    def failed_arguments(self) -> str:
        return f"{self.key_state}, {super().failed_arguments()}"

    def entry_facts(self) -> str:
        return f"{self.key}, {self.cache}.copy()"


def _build(writer: _KeyedPushWriter, title: str) -> GeneratedFunction:
    """Write and compile a function, and bind what it calls when a firing fails."""
    generated = GeneratedFunction.build(writer.write_function(), title)
    index, target = writer.index, writer.target

    def failed(key_state: Any, boundary: Any, started: float, error: BaseException) -> None:
        failure = KeyedFiringFailure(index, boundary, started, error, generated)
        failure.key_state = key_state
        target.fail_fast_firing(failure)

    describe = target.describe_fast_firing
    generated.function.__globals__.update({writer.firing.failed: failed, FIRING_ON_STACK: describe})
    return generated
