"""Writing the source of a graph's function. See `compiler` for what the function promises."""

import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from tidemill.annotations.variants import NoneType
from tidemill.graphs.ordering import ancestors, has_parallel_waits, in_order, shared
from tidemill.graphs.result import SKIPPED
from tidemill.graphs.routes import AnyLive, Guard, Routes, RouteTest, Test
from tidemill.graphs.shape import Shape, free_ending
from tidemill.graphs.wired import Edge, Input, Origin, WiredNode, Wiring
from tidemill.kernel.concurrency import Strands, in_thread

DEEPEST = 20


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """Written source: the function's name, what it refers to, and which node each line belongs to."""

    source: str
    function: str
    namespace: Mapping[str, Any]
    lines: dict[int, str]
    shape: Shape


def write(wiring: Wiring) -> Draft:
    """Write the function that a reactor calls: a list of inputs in, what the shape asks for out."""
    return Page(wiring, Routes.of(wiring.nodes)).filled()


def write_direct(wiring: Wiring, desk: "Desk") -> Draft:
    """Write the function behind `graph(name=value, ...)`: keywords in, a GraphResult out."""
    return _DirectPage(wiring, Routes.of(wiring.nodes), desk).filled()


class _Block(msgspec.Struct):
    """An open `if`: what it asked, and which classes its chain has dealt with."""

    test: Test
    covered: set[type] = msgspec.field(default_factory=set)


class Page:
    """The source being written: lines, names in use, and the blocks that are open."""

    def __init__(self, wiring: Wiring, routes: Routes) -> None:
        self.wiring = wiring
        self.routes = routes
        self.order = in_order(wiring.nodes, routes.guards)
        self.text: list[str] = []
        self.lines: dict[int, str] = {}
        self.margin = self.depth = 1
        self.is_woven = False
        self.namespace: dict[str, Any] = {}
        self.taken = {one.name for one in wiring.nodes} | {one.name for one in wiring.inputs}
        self.kind, self.strand = free_ending(self.taken, "_is"), free_ending(self.taken, "_strand")
        self.taken |= {f"{name}{end}" for name in self.taken for end in (self.kind, self.strand)}
        self.function = self.name(re.sub(r"\W", "_", wiring.name, flags=re.ASCII))
        self.inputs = self.name("inputs")
        self.context = self.name("context")
        self.skipped = self.refer("SKIPPED", SKIPPED)
        self.routed = {edge.source for one in wiring.nodes for edge in one.edges if edge.admitted is not None}
        self.shape = self._shape()
        self.marked = self._marked()
        self.classes: dict[type, str] = {}
        self.calls = {one.name: self.refer(f"call_{one.name}", one.node.function.call) for one in self.order}

    def _marked(self) -> set[str]:
        """Return the nodes whose not having run must be told from their having returned None."""
        tests = [test for guard in self.routes.guards.values() for test in guard if isinstance(test, AnyLive)]
        asked = {edge.source for test in tests for edge in test.edges}
        return asked | {edge.source for one in self.order for edge in one.upstream() if edge.fallback is not None}

    def _shape(self) -> Shape:
        asked = [one.name for one in self.order if one.name in self.wiring.terminals or one.node.feeds is not None]
        return Shape(
            names=tuple(one.name for one in self.order),
            kept=tuple(asked),
            routed=tuple(sorted(self.routed)),
            terminals=self.wiring.terminals,
            guards=self.routes.guards,
            kind=self.kind,
            strand=self.strand,
        )

    def filled(self) -> Draft:
        """Write the whole function."""
        self.open()
        if has_parallel_waits(self.wiring, self.routes):
            self.strands()
        else:
            self.straight()
        self.close()
        return self.draft()

    # -- names

    def name(self, wanted: str) -> str:
        """Return a name like this one that nothing else in the function has."""
        while wanted in self.taken or keyword.iskeyword(wanted) or wanted[0].isdigit():
            wanted = f"_{wanted}" if wanted[0].isdigit() else f"{wanted}_"
        self.taken.add(wanted)
        return wanted

    def refer(self, wanted: str, value: Any) -> str:
        """Return the name under which the function refers to a value."""
        name = self.name(wanted)
        self.namespace[name] = value
        return name

    def class_(self, cls: type) -> str:
        """Return the name under which the function refers to a class."""
        if cls not in self.classes:
            self.classes[cls] = self.refer(re.sub(r"\W", "_", cls.__name__, flags=re.ASCII), cls)
        return self.classes[cls]

    # -- lines

    def line(self, text: str, node: str | None = None) -> None:
        """Write a line; an error on it is an error of `node`."""
        self.text.append("    " * self.depth + text if text else "")
        if node is not None:
            self.lines[len(self.text)] = node

    def open(self) -> None:
        """Write the signature and read the inputs that some node takes."""
        define = "async def" if self.wiring.is_async else "def"
        parameters = f"{self.inputs}, {self.context}" if self.wiring.needs_context else self.inputs
        self.text.append(f"{define} {self.function}({parameters}):")
        used = self.used_inputs()
        for index, one in enumerate(self.wiring.inputs):
            if one.name in used:
                self.read(one, f"{self.inputs}[{index}]")
        self.tell_input_variants()

    def read(self, one: Input, given: str) -> None:
        """Write where an input comes from, and how it becomes the graph's own if it is another package's."""
        value = given if one.own is None else f"{self.refer(f'own_{one.name}', one.own)}({given})"
        self.line(f"{one.name} = {value}")

    def close(self) -> None:
        """Write the return."""
        self.line(f"return {self.values()}")

    def used_inputs(self) -> set[str]:
        """Return the inputs that some node takes."""
        return {edge.source for one in self.order for edge in one.edges if edge.origin is Origin.INPUT}

    def tell_input_variants(self) -> None:
        """Write which variants the routed inputs are."""
        for one in self.wiring.inputs:
            if one.name in self.routed:
                self._tell_variant(one.name, self._known_classes(one.name), None)

    def values(self) -> str:
        """Return the expression for the tuple of values that the shape asks for."""
        names = [*self.shape.kept, *(f"{name}{self.kind}" for name in self.shape.routed)]
        return f"{names[0]}," if len(names) == 1 else ", ".join(names)

    def draft(self) -> Draft:
        """Return what was written."""
        return Draft(
            source="\n".join(self.text) + "\n",
            function=self.function,
            namespace=self.namespace,
            lines=self.lines,
            shape=self.shape,
        )

    # -- the straight body

    def straight(self) -> None:
        """Write all nodes one after the other, routes as nested blocks."""
        self._write_blanks()
        open_blocks: list[_Block] = []
        last: dict[int, _Block] = {}
        for one in self.order:
            self._enter(self._guard(one.name), open_blocks, last)
            awaited = "await " if one.node.is_slow else ""
            self.line(f"{one.name} = {awaited}{self._call(one)}", one.name)
            if one.name in self.routed:
                self._tell_variant(one.name, one.classes or (), one.name)
            last.pop(len(open_blocks), None)
        self.depth = self.margin

    def _write_blanks(self) -> None:
        """Give the nodes behind routes a value for the case that they do not run, where somebody looks at it."""
        guarded = [one.name for one in self.order if self.routes.guards[one.name]]
        seen = {*self.shape.kept, *self.marked, *self._seen_from_outside()}
        marked = [name for name in guarded if name in self.marked]
        marked += [f"{name}{self.kind}" for name in guarded if name in self.routed]
        blank = [name for name in guarded if name in seen and name not in self.marked]
        for names, value in ((marked, self.skipped), (blank, "None")):
            if names:
                self.line(" = ".join([*names, value]))

    def _seen_from_outside(self) -> set[str]:
        """Return the nodes that some other node looks at whether or not they ran."""
        edges = ((edge, one.name) for one in self.order for edge in one.upstream())
        return {edge.source for edge, taker in edges if not self.routes.is_certain(edge, taker)}

    def _guard(self, node: str) -> Guard:
        """Return the tests to nest around a node; Python nests no deeper than 100, so deep routes are asked flat."""
        guard = self.routes.guards[node]
        return guard if len(guard) <= DEEPEST else self.routes.essential(node)

    def _enter(self, guard: Guard, open_blocks: list[_Block], last: dict[int, _Block]) -> None:
        """Close the blocks that a guard does not share with what is open, and open the rest."""
        common = shared(tuple(block.test for block in open_blocks), guard)
        while len(open_blocks) > common:
            closed = open_blocks.pop()
            last[len(open_blocks)] = closed
        for level in [level for level in last if level > common]:
            del last[level]
        for test in guard[common:]:
            self.depth = len(open_blocks) + self.margin
            before = last.pop(len(open_blocks), None)
            certain = self._is_certain(test, open_blocks)
            open_blocks.append(self._open_block(test, before, certain=certain))
        self.depth = len(open_blocks) + self.margin

    def _is_certain(self, test: Test, open_blocks: list[_Block]) -> bool:
        """Return whether the value that a test asks about is there wherever the open blocks are entered."""
        if not isinstance(test, RouteTest):
            return False
        return set(self.routes.guards.get(test.source, ())) <= {block.test for block in open_blocks}

    def _open_block(self, test: Test, before: _Block | None, *, certain: bool) -> _Block:
        block = _Block(test, set(test.classes) if isinstance(test, RouteTest) else set())
        if (
            not (before and isinstance(test, RouteTest) and isinstance(before.test, RouteTest))
            or before.test.source != test.source
            or before.covered & block.covered
        ):
            self.line(f"if {self._asks(test)}:")
        else:
            block.covered |= before.covered
            rest = set(self._known_classes(test.source)) - block.covered
            self.line("else:" if certain and not rest else f"elif {self._asks(test)}:")
        return block

    def _known_classes(self, source: str) -> tuple[type, ...]:
        if source in self.routes.nodes:
            return self.routes.nodes[source].classes or ()
        admitted = [edge.admitted for one in self.order for edge in one.edges if edge.source == source]
        return (*dict.fromkeys(cls for classes in admitted if classes for cls in classes), NoneType)

    def _tell_variant(self, name: str, classes: tuple[type, ...], node: str | None) -> None:
        """Write which variant a routed value is: its class, or the declared class it is a kind of."""
        self.line(f"{name}{self.kind} = {name}.__class__")
        strange = " and ".join(f"{name}{self.kind} is not {self.class_(cls)}" for cls in classes)
        which = self.refer(f"variant_of_{name}", variant_teller(name, classes, strict=node is not None))
        self.line(f"if {strange}:")
        self.depth += 1
        self.line(f"{name}{self.kind} = {which}({name})", node)
        self.depth -= 1

    def _asks(self, test: Test) -> str:
        if isinstance(test, RouteTest):
            return " or ".join(f"{test.source}{self.kind} is {self.class_(cls)}" for cls in test.classes)
        return " or ".join(self._is_live(edge) for edge in test.edges)

    def _is_live(self, edge: Edge) -> str:
        if edge.admitted is None:
            return f"{edge.source} is not {self.skipped}"
        asked = " or ".join(f"{edge.source}{self.kind} is {self.class_(cls)}" for cls in edge.admitted)
        return f"({asked})" if len(edge.admitted) > 1 else asked

    def _call(self, one: WiredNode) -> str:
        arguments = [self._argument(one, edge) for edge in one.edges]
        if one.node.thread and not one.node.function.is_async:
            return f"{self._helper('in_thread', in_thread)}({', '.join([self.calls[one.name], *arguments])})"
        return f"{self.calls[one.name]}({', '.join(arguments)})"

    def _helper(self, name: str, value: Any) -> str:
        for known, held in self.namespace.items():
            if held is value:
                return known
        return self.refer(name, value)

    def _argument(self, one: WiredNode, edge: Edge) -> str:
        value = self._value(one, edge)
        return f"{edge.parameter.name}={value}" if edge.parameter.keyword_only else value

    def _value(self, one: WiredNode, edge: Edge) -> str:
        if edge.origin is Origin.CONTEXT:
            return self.context
        fallback = "None"
        if edge.parameter.has_default and edge.parameter.default is not None:
            fallback = self.refer(f"default_{one.name}_{edge.parameter.name}", edge.parameter.default)
        if edge.origin is Origin.INPUT and self._is_window(edge.source):
            return f"{self._helper('fresh', list)}({edge.source})"
        if self.routes.is_certain(edge, one.name):
            if edge.origin is Origin.INPUT and edge.optional and fallback != "None":
                return f"{fallback} if {edge.source} is None else {edge.source}"
            return edge.source
        if edge.admitted is None and edge.source not in self.marked and not self.is_woven:
            return edge.source
        return f"{edge.source} if {self._is_live(edge)} else {fallback}"

    def _is_window(self, name: str) -> bool:
        return any(one.window for one in self.wiring.inputs if one.name == name)

    # -- the body of strands

    def strands(self) -> None:
        """Write nodes that nothing slow precedes in line, and every other as a strand of its own."""
        self.is_woven = True
        above = ancestors(self.wiring)
        slow = {one.name for one in self.order if one.node.is_slow}
        strands = [one for one in self.order if one.name in slow or above[one.name] & slow]
        woven = {one.name for one in strands}
        for one in self.order:
            if one.name not in woven:
                self._plain_node(one)
        for one in strands:
            self._strand(one, woven)
        group = self.name("strands")
        self.line(f"async with {self.refer('Strands', Strands)}() as {group}:")
        self.depth += 1
        for one in strands:
            self.line(f"{one.name}{self.strand} = {group}.start({one.name!r}, {one.name}{self.strand}())")
        self.depth -= 1
        for one in strands:
            self.line(f"{one.name} = {one.name}{self.strand}.result()")
            if one.name in self.routed:
                self._tell_strand_variant(one.name)

    def _plain_node(self, one: WiredNode) -> None:
        tests = [f"({self._asks(test)})" for test in self.routes.guards[one.name]]
        if tests:
            known = [one.name, *([f"{one.name}{self.kind}"] if one.name in self.routed else []), self.skipped]
            self.line(" = ".join(known))
            self.line(f"if {' and '.join(tests)}:")
            self.depth += 1
        self.line(f"{one.name} = {self._call(one)}", one.name)
        if one.name in self.routed:
            self._tell_variant(one.name, one.classes or (), one.name)
        self.depth = self.margin

    def _strand(self, one: WiredNode, woven: set[str]) -> None:
        """Write a coroutine that waits for what the node needs, runs it if its route was taken, and returns it."""
        self.line(f"async def {one.name}{self.strand}():")
        self.depth += 1
        for source in self._needed_by(one):
            if source in woven:
                self.line(f"{source} = await {source}{self.strand}")
                if source in self.routed:
                    self._tell_strand_variant(source)
        for test in self.routes.guards[one.name]:
            self.line(f"if not ({self._asks(test)}):")
            self.depth += 1
            self.line(f"return {self.skipped}")
            self.depth -= 1
        awaited = "await " if one.node.is_slow else ""
        self.line(f"return {awaited}{self._call(one)}", one.name)
        self.depth -= 1

    def _needed_by(self, one: WiredNode) -> list[str]:
        """Return the nodes whose values a strand looks at: its inputs, and what its guard asks about."""
        asked: list[str] = []
        for test in self.routes.guards[one.name]:
            asked += [test.source] if isinstance(test, RouteTest) else [edge.source for edge in test.edges]
        direct = [edge.source for edge in one.upstream()]
        return [name for name in dict.fromkeys([*asked, *direct]) if name in self.routes.nodes]

    def _tell_strand_variant(self, source: str) -> None:
        classes = self.routes.nodes[source].classes or ()
        teller = self._helper(f"variant_of_{source}", self._strand_teller(source, classes))
        self.line(f"{source}{self.kind} = {teller}({source})", source)

    def _strand_teller(self, source: str, classes: tuple[type, ...]) -> Callable[[Any], type]:
        held = self.namespace.get(f"variant_of_{source}")
        return held if held is not None else variant_teller(source, (*classes, SKIPPED.__class__), strict=True)


class Desk(Protocol):
    """What a direct call needs beside the nodes: admission at the start, a result at the end."""

    def admit(self, name: str) -> tuple[type | None, Callable[[Any], Any]]:
        """Return the class that passes untouched for an input, and what to do with anything else."""

    def refuse(self, unknown: dict[str, Any]) -> None:
        """Raise for keywords that name no input."""

    def context(self, consumed: list[tuple[str, Any]]) -> Any:
        """Return the context of a call."""

    def succeeded(self) -> tuple[Callable[..., Any], Any]:
        """Return what makes a result, and its first argument; the second are the values."""

    def failed(self, error: Exception) -> Any:
        """Return the result of a call that raised."""


class _DirectPage(Page):
    """The same body between another beginning and end."""

    def __init__(self, wiring: Wiring, routes: Routes, desk: Desk) -> None:
        super().__init__(wiring, routes)
        self.desk = desk

    def open(self) -> None:
        """Write keywords as parameters, let their values in, and watch over the rest."""
        define = "async def" if self.wiring.is_async else "def"
        unknown = self.name("unknown")
        keywords = ", ".join(f"{one.name}=None" for one in self.wiring.inputs)
        self.text.append(f"{define} {self.function}({'*, ' + keywords + ', ' if keywords else ''}**{unknown}):")
        self.line(f"if {unknown}:")
        self.line(f"    {self.refer('refuse', self.desk.refuse)}({unknown})")
        for one in self.wiring.inputs:
            expected, admit = self.desk.admit(one.name)
            check = f"{one.name}.__class__ is not {self.class_(expected)}" if expected else "True"
            self.line(f"if {check}:")
            self.line(f"    {one.name} = {self.refer(f'admit_{one.name}', admit)}({one.name})")
        if self.wiring.needs_context:
            pairs = ", ".join(f"({one.name!r}, {one.name})" for one in self.wiring.inputs)
            self.line(f"{self.context} = {self.refer('make_context', self.desk.context)}([{pairs}])")
        self.line("try:")
        self.margin = self.depth = 2
        self.tell_input_variants()

    def close(self) -> None:
        """Write the result of the call, or of its failure."""
        make, shape = self.desk.succeeded()
        self.line(f"return {self.refer('GraphResult', make)}({self.refer('shape', shape)}, ({self.values()}))")
        self.margin = self.depth = 1
        error = self.name("error")
        self.line(f"except {self.refer('Exception', Exception)} as {error}:")
        self.line(f"    return {self.refer('failed', self.desk.failed)}({error})")


def variant_teller(name: str, classes: tuple[type, ...], *, strict: bool) -> Callable[[Any], type]:
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
