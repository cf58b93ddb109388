"""Writes the source of a graph's function. See `compiler` for what the function does."""

import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidemill.annotations.variants import NoneType
from tidemill.graphs.result import SKIPPED
from tidemill.graphs.result_layout import ResultLayout, unused_suffix
from tidemill.graphs.routes import AnyLive, Guard, GuardTest, Routes, RouteTest
from tidemill.graphs.topology import common_prefix_length, find_ancestors, has_parallel_waits, topological_order
from tidemill.graphs.wiring_model import Edge, GraphInput, InputOrigin, WiredNode, Wiring
from tidemill.kernel.concurrency import FirstErrorGroup, call_in_thread

MAX_NESTING = 20


class GeneratedSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source of one function: its name, the values it refers to, and the node that each line belongs to."""

    source: str
    function_name: str
    namespace: Mapping[str, Any]
    node_by_line: dict[int, str]
    layout: ResultLayout


def write_graph_function(wiring: Wiring) -> GeneratedSource:
    """Write the function that a reactor calls: it takes a list of inputs and returns the values of the layout."""
    return FunctionWriter(wiring, Routes.from_nodes(wiring.nodes)).write_function()


class _Block(msgspec.Struct):
    """An open `if`: its test, and the classes that its if/elif chain has covered."""

    test: GuardTest
    covered: set[type] = msgspec.field(default_factory=set)


class FunctionWriter:
    """Writes one function: keeps its lines, the names in use and the open blocks."""

    def __init__(self, wiring: Wiring, routes: Routes) -> None:
        self.wiring = wiring
        self.routes = routes
        self.ordered_nodes = topological_order(wiring.nodes, routes.guards)
        self.source_lines: list[str] = []
        self.node_by_line: dict[int, str] = {}
        self.base_depth = self.depth = 1
        self.is_concurrent = has_parallel_waits(wiring, routes)
        self.namespace: dict[str, Any] = {}
        self._names_by_id: dict[int, str] = {}
        self._task_classifier_names: dict[str, str] = {}
        self.used_names = {one.name for one in wiring.nodes} | {one.name for one in wiring.inputs}
        self.variant_suffix = unused_suffix(self.used_names, "_is")
        self.task_suffix = unused_suffix(self.used_names, "_task")
        suffixes = self.variant_suffix, self.task_suffix
        self.used_names |= {f"{name}{suffix}" for name in self.used_names for suffix in suffixes}
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
        """Return the nodes that need SKIPPED as their value if they do not run, to distinguish it from None."""
        tests = [test for guard in self.routes.guards.values() for test in guard if isinstance(test, AnyLive)]
        tested = {edge.source for test in tests for edge in test.edges}
        return tested | {
            edge.source for one in self.ordered_nodes for edge in one.upstream_edges() if edge.fallback is not None
        }

    def _build_layout(self) -> ResultLayout:
        returned = [
            one.name for one in self.ordered_nodes if one.name in self.wiring.terminals or one.node.feeds is not None
        ]
        return ResultLayout(
            names=tuple(one.name for one in self.ordered_nodes),
            returned=tuple(returned),
            routed=tuple(sorted(self.routed_names)),
            terminals=self.wiring.terminals,
            guards=self.routes.guards,
            variant_suffix=self.variant_suffix,
            task_suffix=self.task_suffix,
        )

    def write_function(self) -> GeneratedSource:
        """Write the whole function."""
        self.write_opening()
        if self.is_concurrent:
            self.write_concurrent_body()
        else:
            self.write_sequential_body()
        self.write_ending()
        return self.build_source()

    # -- names

    def unique_name(self, preferred: str) -> str:
        """Return the preferred name, changed as far as needed to be unused in the function."""
        while preferred in self.used_names or keyword.iskeyword(preferred) or preferred[0].isdigit():
            preferred = f"_{preferred}" if preferred[0].isdigit() else f"{preferred}_"
        self.used_names.add(preferred)
        return preferred

    def bind_value(self, preferred: str, value: Any) -> str:
        """Bind a value to a new global name of the function, and return that name."""
        name = self.unique_name(preferred)
        self.namespace[name] = value
        self._names_by_id.setdefault(id(value), name)
        return name

    def bind_once(self, preferred: str, value: Any) -> str:
        """Return the name that a value is bound to, binding it if needed."""
        return self._names_by_id.get(id(value)) or self.bind_value(preferred, value)

    def bind_class(self, cls: type) -> str:
        """Return the name that a class is bound to, binding it if needed."""
        if cls not in self.class_names:
            self.class_names[cls] = self.bind_value(re.sub(r"\W", "_", cls.__name__, flags=re.ASCII), cls)
        return self.class_names[cls]

    # -- lines

    def write_line(self, text: str, node: str | None = None) -> None:
        """Write a line; an error raised on it is attributed to `node`."""
        self.source_lines.append("    " * self.depth + text if text else "")
        if node is not None:
            self.node_by_line[len(self.source_lines)] = node

    def write_opening(self) -> None:
        """Write the signature, and read the inputs that some node takes."""
        define = "async def" if self.wiring.is_async else "def"
        parameters = f"{self.inputs_name}, {self.context_name}" if self.wiring.needs_context else self.inputs_name
        self.source_lines.append(f"{define} {self.function_name}({parameters}):")
        used = self.used_inputs()
        for index, one in enumerate(self.wiring.inputs):
            if one.name in used:
                self.write_input(one, f"{self.inputs_name}[{index}]")
        self.write_input_variants()

    def write_input(self, graph_input: GraphInput, expression: str) -> None:
        """Assign an input, converted to the graph's own class if it comes from another package."""
        name, convert = graph_input.name, graph_input.convert
        value = expression if convert is None else f"{self.bind_value(f'own_{name}', convert)}({expression})"
        self.write_line(f"{name} = {value}")

    def write_ending(self) -> None:
        """Write the return."""
        self.write_line(f"return {self.result_expression()}")

    def used_inputs(self) -> set[str]:
        """Return the inputs that some node takes."""
        return {edge.source for one in self.ordered_nodes for edge in one.edges if edge.origin is InputOrigin.INPUT}

    def write_input_variants(self) -> None:
        """Write the variants of the routed inputs."""
        for one in self.wiring.inputs:
            if one.name in self.routed_names:
                self._write_variant(one.name, self._known_classes(one.name), None)

    def result_expression(self) -> str:
        """Return the expression for the tuple of values in the layout."""
        names = [*self.layout.returned, *(f"{name}{self.variant_suffix}" for name in self.layout.routed)]
        return f"{names[0]}," if len(names) == 1 else ", ".join(names)

    def build_source(self) -> GeneratedSource:
        """Return the written source."""
        return GeneratedSource(
            source="\n".join(self.source_lines) + "\n",
            function_name=self.function_name,
            namespace=self.namespace,
            node_by_line=self.node_by_line,
            layout=self.layout,
        )

    # -- the sequential body

    def write_sequential_body(self) -> None:
        """Write all nodes one after the other, with routes as nested blocks."""
        self._write_skipped_defaults()
        open_blocks: list[_Block] = []
        last_closed: dict[int, _Block] = {}
        for one in self.ordered_nodes:
            self._switch_blocks(self._guard_to_nest(one.name), open_blocks, last_closed)
            awaited = "await " if one.node.needs_await else ""
            self.write_line(f"{one.name} = {awaited}{self._call_expression(one)}", one.name)
            if one.name in self.routed_names:
                self._write_variant(one.name, one.classes or (), one.name)
            last_closed.pop(len(open_blocks), None)
        self.depth = self.base_depth

    def _write_skipped_defaults(self) -> None:
        """Assign a default to every node behind a route whose value is read even if the node does not run."""
        guarded = [one.name for one in self.ordered_nodes if self.routes.guards[one.name]]
        read = {*self.layout.returned, *self.sentinel_names, *self._names_read_unconditionally()}
        skipped = [name for name in guarded if name in self.sentinel_names]
        skipped += [f"{name}{self.variant_suffix}" for name in guarded if name in self.routed_names]
        none = [name for name in guarded if name in read and name not in self.sentinel_names]
        for names, value in ((skipped, self.skipped_name), (none, "None")):
            if names:
                self.write_line(" = ".join([*names, value]))

    def _names_read_unconditionally(self) -> set[str]:
        """Return the nodes that some other node reads whether or not they ran."""
        edges = ((edge, one.name) for one in self.ordered_nodes for edge in one.upstream_edges())
        return {edge.source for edge, reader in edges if not self.routes.is_always_live(edge, reader)}

    def _guard_to_nest(self, node: str) -> Guard:
        """Return the tests to nest around a node. Python nests at most 100 blocks, so deep routes are tested flat."""
        guard = self.routes.guards[node]
        return guard if len(guard) <= MAX_NESTING else self.routes.minimal_guard(node)

    def _switch_blocks(self, guard: Guard, open_blocks: list[_Block], last_closed: dict[int, _Block]) -> None:
        """Close the open blocks that a guard does not share, and open the missing ones."""
        common = common_prefix_length(tuple(block.test for block in open_blocks), guard)
        while len(open_blocks) > common:
            closed = open_blocks.pop()
            last_closed[len(open_blocks)] = closed
        for level in [level for level in last_closed if level > common]:
            del last_closed[level]
        for test in guard[common:]:
            self.depth = len(open_blocks) + self.base_depth
            previous = last_closed.pop(len(open_blocks), None)
            is_always_set = self._is_always_set(test, open_blocks)
            open_blocks.append(self._open_block(test, previous, is_always_set=is_always_set))
        self.depth = len(open_blocks) + self.base_depth

    def _is_always_set(self, test: GuardTest, open_blocks: list[_Block]) -> bool:
        """Return whether the tested value is assigned on every path into the open blocks."""
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
        """Write the variant of a routed value: its class, or the declared class that it is an instance of."""
        self.write_line(f"{name}{self.variant_suffix} = {name}.__class__")
        undeclared = " and ".join(f"{name}{self.variant_suffix} is not {self.bind_class(cls)}" for cls in classes)
        classifier = build_variant_classifier(name, classes, strict=node is not None)
        classify = self.bind_value(f"variant_of_{name}", classifier)
        self.write_line(f"if {undeclared}:")
        self.depth += 1
        self.write_line(f"{name}{self.variant_suffix} = {classify}({name})", node)
        self.depth -= 1

    def _test_expression(self, test: GuardTest) -> str:
        if isinstance(test, RouteTest):
            return " or ".join(f"{test.source}{self.variant_suffix} is {self.bind_class(cls)}" for cls in test.classes)
        return " or ".join(self._live_expression(edge) for edge in test.edges)

    def _live_expression(self, edge: Edge) -> str:
        if edge.admitted is None:
            return f"{edge.source} is not {self.skipped_name}"
        tests = " or ".join(f"{edge.source}{self.variant_suffix} is {self.bind_class(cls)}" for cls in edge.admitted)
        return f"({tests})" if len(edge.admitted) > 1 else tests

    def _call_expression(self, one: WiredNode) -> str:
        arguments = [self._argument_expression(one, edge) for edge in one.edges]
        if one.node.thread and not one.node.function.is_async:
            in_thread = self.bind_once("in_thread", call_in_thread)
            return f"{in_thread}({', '.join([self.call_names[one.name], *arguments])})"
        return f"{self.call_names[one.name]}({', '.join(arguments)})"

    def _argument_expression(self, one: WiredNode, edge: Edge) -> str:
        value = self._value_expression(one, edge)
        return f"{edge.parameter.name}={value}" if edge.parameter.keyword_only else value

    def _value_expression(self, one: WiredNode, edge: Edge) -> str:
        if edge.origin is InputOrigin.CONTEXT:
            return self.context_name
        fallback = "None"
        if edge.parameter.has_default and edge.parameter.default is not None:
            fallback = self.bind_value(f"default_{one.name}_{edge.parameter.name}", edge.parameter.default)
        if edge.origin is InputOrigin.INPUT and self._is_window(edge.source):
            return f"{self.bind_once('fresh', list)}({edge.source})"
        if self.routes.is_always_live(edge, one.name):
            if edge.origin is InputOrigin.INPUT and edge.optional and fallback != "None":
                return f"{fallback} if {edge.source} is None else {edge.source}"
            return edge.source
        if edge.admitted is None and edge.source not in self.sentinel_names and not self.is_concurrent:
            return edge.source
        return f"{edge.source} if {self._live_expression(edge)} else {fallback}"

    def _is_window(self, name: str) -> bool:
        return any(one.is_window for one in self.wiring.inputs if one.name == name)

    # -- the concurrent body

    def write_concurrent_body(self) -> None:
        """Write awaited nodes and all behind them as tasks, and the other nodes in line before them."""
        ancestors = find_ancestors(self.wiring)
        awaited = {one.name for one in self.ordered_nodes if one.node.needs_await}
        tasks = [one for one in self.ordered_nodes if one.name in awaited or ancestors[one.name] & awaited]
        task_names = {one.name for one in tasks}
        for one in self.ordered_nodes:
            if one.name not in task_names:
                self._write_inline_node(one)
        for one in tasks:
            self._write_task_function(one, task_names)
        group = self.unique_name("tasks")
        self.write_line(f"async with {self.bind_value('FirstErrorGroup', FirstErrorGroup)}() as {group}:")
        self.depth += 1
        for one in tasks:
            self.write_line(
                f"{one.name}{self.task_suffix} = {group}.start({one.name!r}, {one.name}{self.task_suffix}())"
            )
        self.depth -= 1
        for one in tasks:
            self.write_line(f"{one.name} = {one.name}{self.task_suffix}.result()")
            if one.name in self.routed_names:
                self._write_task_variant(one.name)

    def _write_inline_node(self, one: WiredNode) -> None:
        tests = [f"({self._test_expression(test)})" for test in self.routes.guards[one.name]]
        if tests:
            variant = [f"{one.name}{self.variant_suffix}"] if one.name in self.routed_names else []
            self.write_line(" = ".join([one.name, *variant, self.skipped_name]))
            self.write_line(f"if {' and '.join(tests)}:")
            self.depth += 1
        self.write_line(f"{one.name} = {self._call_expression(one)}", one.name)
        if one.name in self.routed_names:
            self._write_variant(one.name, one.classes or (), one.name)
        self.depth = self.base_depth

    def _write_task_function(self, one: WiredNode, task_names: set[str]) -> None:
        """Write a coroutine that awaits the node's sources and, if its route was taken, runs the node."""
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
        """Return the nodes whose values a task reads: those that its guard tests, and those that feed it."""
        tested: list[str] = []
        for test in self.routes.guards[one.name]:
            tested += [test.source] if isinstance(test, RouteTest) else [edge.source for edge in test.edges]
        upstream = [edge.source for edge in one.upstream_edges()]
        return [name for name in dict.fromkeys([*tested, *upstream]) if name in self.routes.nodes]

    def _write_task_variant(self, source: str) -> None:
        if source not in self._task_classifier_names:
            classes = (*(self.routes.nodes[source].classes or ()), SKIPPED.__class__)
            classifier = build_variant_classifier(source, classes, strict=True)
            self._task_classifier_names[source] = self.bind_value(f"variant_of_{source}", classifier)
        classify = self._task_classifier_names[source]
        self.write_line(f"{source}{self.variant_suffix} = {classify}({source})", source)


def build_variant_classifier(name: str, classes: tuple[type, ...], *, strict: bool) -> Callable[[Any], type]:
    """Return a function that returns the declared class of a value: its own, or one that it is an instance of."""

    def classify(value: Any) -> type:
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

    return classify
