"""Writing the source of a graph's function. See `compiler` for what the function promises."""

import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from tidemill.annotations.variants import NoneType
from tidemill.graphs.result import SKIPPED
from tidemill.graphs.result_layout import ResultLayout, unused_suffix
from tidemill.graphs.routes import AnyLive, Guard, GuardTest, Routes, RouteTest
from tidemill.graphs.topology import common_prefix_length, find_ancestors, has_parallel_waits, topological_order
from tidemill.graphs.wiring_model import Edge, GraphInput, Origin, WiredNode, Wiring
from tidemill.kernel.concurrency import FirstErrorGroup, call_in_thread

MAX_NESTING = 20


class GeneratedSource(msgspec.Struct, frozen=True, kw_only=True):
    """Written source: the function's name, what it refers to, and which node each line belongs to."""

    source: str
    function_name: str
    namespace: Mapping[str, Any]
    node_by_line: dict[int, str]
    layout: ResultLayout


def write_graph_function(wiring: Wiring) -> GeneratedSource:
    """Write the function that a reactor calls: a list of inputs in, what the shape asks for out."""
    return FunctionWriter(wiring, Routes.from_nodes(wiring.nodes)).write_function()


def write_direct_function(wiring: Wiring, hooks: "DirectCallHooks") -> GeneratedSource:
    """Write the function behind `graph(name=value, ...)`: keywords in, a GraphResult out."""
    return _DirectCallWriter(wiring, Routes.from_nodes(wiring.nodes), hooks).write_function()


class _Block(msgspec.Struct):
    """An open `if`: what it asked, and which classes its chain has dealt with."""

    test: GuardTest
    covered: set[type] = msgspec.field(default_factory=set)


class FunctionWriter:
    """The source being written: lines, names in use, and the blocks that are open."""

    def __init__(self, wiring: Wiring, routes: Routes) -> None:
        self.wiring = wiring
        self.routes = routes
        self.ordered_nodes = topological_order(wiring.nodes, routes.guards)
        self.source_lines: list[str] = []
        self.node_by_line: dict[int, str] = {}
        self.base_depth = self.depth = 1
        self.is_concurrent = False
        self.namespace: dict[str, Any] = {}
        self.used_names = {one.name for one in wiring.nodes} | {one.name for one in wiring.inputs}
        self.variant_suffix, self.task_suffix = (
            unused_suffix(self.used_names, "_is"),
            unused_suffix(self.used_names, "_strand"),
        )
        self.used_names |= {
            f"{name}{end}" for name in self.used_names for end in (self.variant_suffix, self.task_suffix)
        }
        self.function_name = self.unique_name(re.sub(r"\W", "_", wiring.name, flags=re.ASCII))
        self.inputs_name = self.unique_name("inputs")
        self.context_name = self.unique_name("context")
        self.skipped_name = self.bind_value("SKIPPED", SKIPPED)
        self.routed_names = {edge.source for one in wiring.nodes for edge in one.edges if edge.admitted is not None}
        self.layout = self._build_layout()
        self.sentinel_names = self._find_sentinel_names()
        self.class_names: dict[type, str] = {}
        self.call_names = {
            one.name: self.bind_value(f"call_{one.name}", one.node.function.call) for one in self.ordered_nodes
        }

    def _find_sentinel_names(self) -> set[str]:
        """Return the nodes whose not having run must be told from their having returned None."""
        tests = [test for guard in self.routes.guards.values() for test in guard if isinstance(test, AnyLive)]
        asked = {edge.source for test in tests for edge in test.edges}
        return asked | {
            edge.source for one in self.ordered_nodes for edge in one.upstream_edges() if edge.fallback is not None
        }

    def _build_layout(self) -> ResultLayout:
        asked = [
            one.name for one in self.ordered_nodes if one.name in self.wiring.terminals or one.node.feeds is not None
        ]
        return ResultLayout(
            names=tuple(one.name for one in self.ordered_nodes),
            returned=tuple(asked),
            routed=tuple(sorted(self.routed_names)),
            terminals=self.wiring.terminals,
            guards=self.routes.guards,
            variant_suffix=self.variant_suffix,
            task_suffix=self.task_suffix,
        )

    def write_function(self) -> GeneratedSource:
        """Write the whole function."""
        self.write_opening()
        if has_parallel_waits(self.wiring, self.routes):
            self.write_concurrent_body()
        else:
            self.write_sequential_body()
        self.write_ending()
        return self.build_source()

    # -- names

    def unique_name(self, wanted: str) -> str:
        """Return a name like this one that nothing else in the function has."""
        while wanted in self.used_names or keyword.iskeyword(wanted) or wanted[0].isdigit():
            wanted = f"_{wanted}" if wanted[0].isdigit() else f"{wanted}_"
        self.used_names.add(wanted)
        return wanted

    def bind_value(self, wanted: str, value: Any) -> str:
        """Return the name under which the function refers to a value."""
        name = self.unique_name(wanted)
        self.namespace[name] = value
        return name

    def bind_class(self, cls: type) -> str:
        """Return the name under which the function refers to a class."""
        if cls not in self.class_names:
            self.class_names[cls] = self.bind_value(re.sub(r"\W", "_", cls.__name__, flags=re.ASCII), cls)
        return self.class_names[cls]

    # -- lines

    def write_line(self, text: str, node: str | None = None) -> None:
        """Write a line; an error on it is an error of `node`."""
        self.source_lines.append("    " * self.depth + text if text else "")
        if node is not None:
            self.node_by_line[len(self.source_lines)] = node

    def write_opening(self) -> None:
        """Write the signature and read the inputs that some node takes."""
        define = "async def" if self.wiring.is_async else "def"
        parameters = f"{self.inputs_name}, {self.context_name}" if self.wiring.needs_context else self.inputs_name
        self.source_lines.append(f"{define} {self.function_name}({parameters}):")
        used = self.used_inputs()
        for index, one in enumerate(self.wiring.inputs):
            if one.name in used:
                self.write_input(one, f"{self.inputs_name}[{index}]")
        self.write_input_variants()

    def write_input(self, one: GraphInput, given: str) -> None:
        """Write where an input comes from, and how it becomes the graph's own if it is another package's."""
        value = given if one.convert is None else f"{self.bind_value(f'own_{one.name}', one.convert)}({given})"
        self.write_line(f"{one.name} = {value}")

    def write_ending(self) -> None:
        """Write the return."""
        self.write_line(f"return {self.result_expression()}")

    def used_inputs(self) -> set[str]:
        """Return the inputs that some node takes."""
        return {edge.source for one in self.ordered_nodes for edge in one.edges if edge.origin is Origin.INPUT}

    def write_input_variants(self) -> None:
        """Write which variants the routed inputs are."""
        for one in self.wiring.inputs:
            if one.name in self.routed_names:
                self._write_variant(one.name, self._known_classes(one.name), None)

    def result_expression(self) -> str:
        """Return the expression for the tuple of values that the shape asks for."""
        names = [*self.layout.returned, *(f"{name}{self.variant_suffix}" for name in self.layout.routed)]
        return f"{names[0]}," if len(names) == 1 else ", ".join(names)

    def build_source(self) -> GeneratedSource:
        """Return what was written."""
        return GeneratedSource(
            source="\n".join(self.source_lines) + "\n",
            function_name=self.function_name,
            namespace=self.namespace,
            node_by_line=self.node_by_line,
            layout=self.layout,
        )

    # -- the straight body

    def write_sequential_body(self) -> None:
        """Write all nodes one after the other, routes as nested blocks."""
        self._write_skipped_defaults()
        open_blocks: list[_Block] = []
        last: dict[int, _Block] = {}
        for one in self.ordered_nodes:
            self._switch_blocks(self._guard_to_nest(one.name), open_blocks, last)
            awaited = "await " if one.node.needs_await else ""
            self.write_line(f"{one.name} = {awaited}{self._call_expression(one)}", one.name)
            if one.name in self.routed_names:
                self._write_variant(one.name, one.classes or (), one.name)
            last.pop(len(open_blocks), None)
        self.depth = self.base_depth

    def _write_skipped_defaults(self) -> None:
        """Give the nodes behind routes a value for the case that they do not run, where somebody looks at it."""
        guarded = [one.name for one in self.ordered_nodes if self.routes.guards[one.name]]
        seen = {*self.layout.returned, *self.sentinel_names, *self._names_read_unconditionally()}
        marked = [name for name in guarded if name in self.sentinel_names]
        marked += [f"{name}{self.variant_suffix}" for name in guarded if name in self.routed_names]
        blank = [name for name in guarded if name in seen and name not in self.sentinel_names]
        for names, value in ((marked, self.skipped_name), (blank, "None")):
            if names:
                self.write_line(" = ".join([*names, value]))

    def _names_read_unconditionally(self) -> set[str]:
        """Return the nodes that some other node looks at whether or not they ran."""
        edges = ((edge, one.name) for one in self.ordered_nodes for edge in one.upstream_edges())
        return {edge.source for edge, taker in edges if not self.routes.is_always_live(edge, taker)}

    def _guard_to_nest(self, node: str) -> Guard:
        """Return the tests to nest around a node; Python nests no deeper than 100, so deep routes are asked flat."""
        guard = self.routes.guards[node]
        return guard if len(guard) <= MAX_NESTING else self.routes.minimal_guard(node)

    def _switch_blocks(self, guard: Guard, open_blocks: list[_Block], last_closed: dict[int, _Block]) -> None:
        """Close the blocks that a guard does not share with what is open, and open the rest."""
        common = common_prefix_length(tuple(block.test for block in open_blocks), guard)
        while len(open_blocks) > common:
            closed = open_blocks.pop()
            last_closed[len(open_blocks)] = closed
        for level in [level for level in last_closed if level > common]:
            del last_closed[level]
        for test in guard[common:]:
            self.depth = len(open_blocks) + self.base_depth
            before = last_closed.pop(len(open_blocks), None)
            certain = self._is_always_set(test, open_blocks)
            open_blocks.append(self._open_block(test, before, is_always_set=certain))
        self.depth = len(open_blocks) + self.base_depth

    def _is_always_set(self, test: GuardTest, open_blocks: list[_Block]) -> bool:
        """Return whether the value that a test asks about is there wherever the open blocks are entered."""
        if not isinstance(test, RouteTest):
            return False
        return set(self.routes.guards.get(test.source, ())) <= {block.test for block in open_blocks}

    def _open_block(self, test: GuardTest, previous: _Block | None, *, is_always_set: bool) -> _Block:
        block = _Block(test, set(test.classes) if isinstance(test, RouteTest) else set())
        if (
            not (previous and isinstance(test, RouteTest) and isinstance(previous.test, RouteTest))
            or previous.test.source != test.source
            or previous.covered & block.covered
        ):
            self.write_line(f"if {self._test_expression(test)}:")
        else:
            block.covered |= previous.covered
            rest = set(self._known_classes(test.source)) - block.covered
            self.write_line("else:" if is_always_set and not rest else f"elif {self._test_expression(test)}:")
        return block

    def _known_classes(self, source: str) -> tuple[type, ...]:
        if source in self.routes.nodes:
            return self.routes.nodes[source].classes or ()
        admitted = [edge.admitted for one in self.ordered_nodes for edge in one.edges if edge.source == source]
        return (*dict.fromkeys(cls for classes in admitted if classes for cls in classes), NoneType)

    def _write_variant(self, name: str, classes: tuple[type, ...], node: str | None) -> None:
        """Write which variant a routed value is: its class, or the declared class it is a kind of."""
        self.write_line(f"{name}{self.variant_suffix} = {name}.__class__")
        strange = " and ".join(f"{name}{self.variant_suffix} is not {self.bind_class(cls)}" for cls in classes)
        which = self.bind_value(f"variant_of_{name}", build_variant_classifier(name, classes, strict=node is not None))
        self.write_line(f"if {strange}:")
        self.depth += 1
        self.write_line(f"{name}{self.variant_suffix} = {which}({name})", node)
        self.depth -= 1

    def _test_expression(self, test: GuardTest) -> str:
        if isinstance(test, RouteTest):
            return " or ".join(f"{test.source}{self.variant_suffix} is {self.bind_class(cls)}" for cls in test.classes)
        return " or ".join(self._live_expression(edge) for edge in test.edges)

    def _live_expression(self, edge: Edge) -> str:
        if edge.admitted is None:
            return f"{edge.source} is not {self.skipped_name}"
        asked = " or ".join(f"{edge.source}{self.variant_suffix} is {self.bind_class(cls)}" for cls in edge.admitted)
        return f"({asked})" if len(edge.admitted) > 1 else asked

    def _call_expression(self, one: WiredNode) -> str:
        arguments = [self._argument_expression(one, edge) for edge in one.edges]
        if one.node.thread and not one.node.function.is_async:
            return (
                f"{self._bind_once('in_thread', call_in_thread)}({', '.join([self.call_names[one.name], *arguments])})"
            )
        return f"{self.call_names[one.name]}({', '.join(arguments)})"

    def _bind_once(self, name: str, value: Any) -> str:
        for known, held in self.namespace.items():
            if held is value:
                return known
        return self.bind_value(name, value)

    def _argument_expression(self, one: WiredNode, edge: Edge) -> str:
        value = self._value_expression(one, edge)
        return f"{edge.parameter.name}={value}" if edge.parameter.keyword_only else value

    def _value_expression(self, one: WiredNode, edge: Edge) -> str:
        if edge.origin is Origin.CONTEXT:
            return self.context_name
        fallback = "None"
        if edge.parameter.has_default and edge.parameter.default is not None:
            fallback = self.bind_value(f"default_{one.name}_{edge.parameter.name}", edge.parameter.default)
        if edge.origin is Origin.INPUT and self._is_window(edge.source):
            return f"{self._bind_once('fresh', list)}({edge.source})"
        if self.routes.is_always_live(edge, one.name):
            if edge.origin is Origin.INPUT and edge.optional and fallback != "None":
                return f"{fallback} if {edge.source} is None else {edge.source}"
            return edge.source
        if edge.admitted is None and edge.source not in self.sentinel_names and not self.is_concurrent:
            return edge.source
        return f"{edge.source} if {self._live_expression(edge)} else {fallback}"

    def _is_window(self, name: str) -> bool:
        return any(one.is_window for one in self.wiring.inputs if one.name == name)

    # -- the body of strands

    def write_concurrent_body(self) -> None:
        """Write nodes that nothing slow precedes in line, and every other as a strand of its own."""
        self.is_concurrent = True
        above = find_ancestors(self.wiring)
        slow = {one.name for one in self.ordered_nodes if one.node.needs_await}
        strands = [one for one in self.ordered_nodes if one.name in slow or above[one.name] & slow]
        woven = {one.name for one in strands}
        for one in self.ordered_nodes:
            if one.name not in woven:
                self._write_inline_node(one)
        for one in strands:
            self._write_task_function(one, woven)
        group = self.unique_name("strands")
        self.write_line(f"async with {self.bind_value('Strands', FirstErrorGroup)}() as {group}:")
        self.depth += 1
        for one in strands:
            self.write_line(
                f"{one.name}{self.task_suffix} = {group}.start({one.name!r}, {one.name}{self.task_suffix}())"
            )
        self.depth -= 1
        for one in strands:
            self.write_line(f"{one.name} = {one.name}{self.task_suffix}.result()")
            if one.name in self.routed_names:
                self._write_task_variant(one.name)

    def _write_inline_node(self, one: WiredNode) -> None:
        tests = [f"({self._test_expression(test)})" for test in self.routes.guards[one.name]]
        if tests:
            known = [
                one.name,
                *([f"{one.name}{self.variant_suffix}"] if one.name in self.routed_names else []),
                self.skipped_name,
            ]
            self.write_line(" = ".join(known))
            self.write_line(f"if {' and '.join(tests)}:")
            self.depth += 1
        self.write_line(f"{one.name} = {self._call_expression(one)}", one.name)
        if one.name in self.routed_names:
            self._write_variant(one.name, one.classes or (), one.name)
        self.depth = self.base_depth

    def _write_task_function(self, one: WiredNode, task_names: set[str]) -> None:
        """Write a coroutine that waits for what the node needs, runs it if its route was taken, and returns it."""
        self.write_line(f"async def {one.name}{self.task_suffix}():")
        self.depth += 1
        for source in self._sources_of_task(one):
            if source in task_names:
                self.write_line(f"{source} = await {source}{self.task_suffix}")
                if source in self.routed_names:
                    self._write_task_variant(source)
        for test in self.routes.guards[one.name]:
            self.write_line(f"if not ({self._test_expression(test)}):")
            self.depth += 1
            self.write_line(f"return {self.skipped_name}")
            self.depth -= 1
        awaited = "await " if one.node.needs_await else ""
        self.write_line(f"return {awaited}{self._call_expression(one)}", one.name)
        self.depth -= 1

    def _sources_of_task(self, one: WiredNode) -> list[str]:
        """Return the nodes whose values a strand looks at: its inputs, and what its guard asks about."""
        asked: list[str] = []
        for test in self.routes.guards[one.name]:
            asked += [test.source] if isinstance(test, RouteTest) else [edge.source for edge in test.edges]
        direct = [edge.source for edge in one.upstream_edges()]
        return [name for name in dict.fromkeys([*asked, *direct]) if name in self.routes.nodes]

    def _write_task_variant(self, source: str) -> None:
        classes = self.routes.nodes[source].classes or ()
        teller = self._bind_once(f"variant_of_{source}", self._task_variant_classifier(source, classes))
        self.write_line(f"{source}{self.variant_suffix} = {teller}({source})", source)

    def _task_variant_classifier(self, source: str, classes: tuple[type, ...]) -> Callable[[Any], type]:
        held = self.namespace.get(f"variant_of_{source}")
        return (
            held if held is not None else build_variant_classifier(source, (*classes, SKIPPED.__class__), strict=True)
        )


class DirectCallHooks(Protocol):
    """What a direct call needs beside the nodes: admission at the start, a result at the end."""

    def input_validator(self, name: str) -> tuple[type | None, Callable[[Any], Any]]:
        """Return the class that passes untouched for an input, and what to do with anything else."""

    def reject_unknown(self, unknown: dict[str, Any]) -> None:
        """Raise for keywords that name no input."""

    def make_context(self, consumed: list[tuple[str, Any]]) -> Any:
        """Return the context of a call."""

    def result_factory(self) -> tuple[Callable[..., Any], Any]:
        """Return what makes a result, and its first argument; the second are the values."""

    def failed_result(self, error: Exception) -> Any:
        """Return the result of a call that raised."""


class _DirectCallWriter(FunctionWriter):
    """The same body between another beginning and end."""

    def __init__(self, wiring: Wiring, routes: Routes, hooks: DirectCallHooks) -> None:
        super().__init__(wiring, routes)
        self.hooks = hooks

    def write_opening(self) -> None:
        """Write keywords as parameters, let their values in, and watch over the rest."""
        define = "async def" if self.wiring.is_async else "def"
        unknown = self.unique_name("unknown")
        keywords = ", ".join(f"{one.name}=None" for one in self.wiring.inputs)
        self.source_lines.append(
            f"{define} {self.function_name}({'*, ' + keywords + ', ' if keywords else ''}**{unknown}):"
        )
        self.write_line(f"if {unknown}:")
        self.write_line(f"    {self.bind_value('refuse', self.hooks.reject_unknown)}({unknown})")
        for one in self.wiring.inputs:
            expected, admit = self.hooks.input_validator(one.name)
            check = f"{one.name}.__class__ is not {self.bind_class(expected)}" if expected else "True"
            self.write_line(f"if {check}:")
            self.write_line(f"    {one.name} = {self.bind_value(f'admit_{one.name}', admit)}({one.name})")
        if self.wiring.needs_context:
            pairs = ", ".join(f"({one.name!r}, {one.name})" for one in self.wiring.inputs)
            self.write_line(
                f"{self.context_name} = {self.bind_value('make_context', self.hooks.make_context)}([{pairs}])"
            )
        self.write_line("try:")
        self.base_depth = self.depth = 2
        self.write_input_variants()

    def write_ending(self) -> None:
        """Write the result of the call, or of its failure."""
        make, shape = self.hooks.result_factory()
        self.write_line(
            f"return {self.bind_value('GraphResult', make)}({self.bind_value('shape', shape)}, "
            f"({self.result_expression()}))"
        )
        self.base_depth = self.depth = 1
        error = self.unique_name("error")
        self.write_line(f"except {self.bind_value('Exception', Exception)} as {error}:")
        self.write_line(f"    return {self.bind_value('failed', self.hooks.failed_result)}({error})")


def build_variant_classifier(name: str, classes: tuple[type, ...], *, strict: bool) -> Callable[[Any], type]:
    """Return a function that tells which declared class a value is a kind of."""

    def tell(value: Any) -> type:
        for cls in type(value).__mro__:
            if cls in classes:
                return cls
        if float in classes and type(value) is int:
            return float
        for cls in classes:
            if isinstance(value, cls):  # a virtual subclass: `list` is a Sequence, without inheriting from it
                return cls
        if not strict:
            return type(value)
        declared = " | ".join(
            "None" if cls is NoneType else cls.__name__ for cls in classes if cls is not SKIPPED.__class__
        )
        raise TypeError(f"node '{name}' returned {type(value).__name__}, which is none of {declared}")

    return tell
