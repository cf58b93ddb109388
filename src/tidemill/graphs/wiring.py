"""From declared nodes to a wired graph: who feeds whom, what routes where, and everything that is wrong.

A parameter names a node or an input (an accumulator of the reactor; anything, in a graph without one). Along each
edge only the variants travel that the parameter's annotation admits. All problems are collected before any is
raised, so that an author mends a graph once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from operator import or_
from typing import Any

import msgspec

from tidemill.annotations.context import Context
from tidemill.annotations.namesakes import input_rebuilder, own_annotation, unlike, unmakeable
from tidemill.annotations.signatures import MISSING, Parameter, Signature
from tidemill.annotations.variants import (
    NoneType,
    Variant,
    admits,
    clashes,
    full_name,
    is_required,
    label,
    members,
    variants,
    without_none,
)
from tidemill.graphs.definition import Accumulator, Node, Reactor
from tidemill.graphs.routes import unreachable
from tidemill.graphs.wired import Edge, Input, Origin, WiredNode, Wiring
from tidemill.kernel.errors import DefinitionError, Problem
from tidemill.kernel.suggestions import did_you_mean


def wire(name: str, nodes: Sequence[Node], reactor: Reactor | None) -> Wiring:
    """Wire a graph, or raise one DefinitionError with every problem found."""
    return _Loom(name, nodes, reactor).weave()


class _Loom(msgspec.Struct):
    """The work of wiring one graph: names first, then edges, then what must hold of the whole."""

    name: str
    nodes: Sequence[Node]
    reactor: Reactor | None
    problems: list[Problem] = msgspec.field(default_factory=list)
    signatures: dict[str, Signature] = msgspec.field(default_factory=dict)
    results: dict[str, tuple[Variant, ...] | None] = msgspec.field(default_factory=dict)
    accumulators: Mapping[str, Accumulator] = msgspec.field(default_factory=dict)
    open_inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    emitted: dict[str, Any] = msgspec.field(default_factory=dict)

    def weave(self) -> Wiring:
        if self.reactor is not None:
            self.accumulators = dict(zip(self.reactor.names, self.reactor.accumulators, strict=True))
            self.problems.extend(problem for one in self.reactor.accumulators for problem in one.signature.problems)
        self._read_signatures()
        self._gather_open_inputs()
        self._own_what_is_emitted()
        wired = [self._wire_node(node) for node in self._distinct_nodes()]
        self._check_routes(wired)
        self._check_feeds(wired)
        self._check_cycles(wired)
        if self.problems:
            raise DefinitionError(self.problems, f"graph '{self.name}'")
        consumed = {edge.source for one in wired for edge in one.upstream()}
        return Wiring(
            name=self.name,
            nodes=tuple(wired),
            inputs=self._inputs(wired),
            terminals=frozenset(one.name for one in wired if one.name not in consumed),
            reactor=self.reactor.name if self.reactor else None,
        )

    def _complain(self, node: Node, message: str, parameter: str | None = None) -> None:
        self.problems.append(
            Problem(message=message, location=node.function.location, node=node.name, parameter=parameter)
        )

    def _distinct_nodes(self) -> list[Node]:
        return list({node.name: node for node in self.nodes}.values())

    def _read_signatures(self) -> None:
        if not self.nodes:
            self.problems.append(Problem(message="a graph needs at least one node"))
        seen: dict[str, Node] = {}
        for node in self.nodes:
            if node.name in seen:
                self._complain(
                    node,
                    f"node '{node.name}' is declared twice, first at {seen[node.name].function.location}",
                )
            if node.name in self.accumulators:
                self._complain(node, f"node '{node.name}' has the name of an accumulator; rename one of them")
            seen[node.name] = node
            signature = node.function.signature()
            self.problems.extend(signature.problems)
            self.signatures[node.name] = signature
            self.results[node.name] = self._variants_of(node, signature)

    def _variants_of(self, node: Node, signature: Signature) -> tuple[Variant, ...] | None:
        found = variants(signature.returns)
        self._check_distinct(node, found or (), f"node '{node.name}' returns")
        return found

    def _check_distinct(self, node: Node, found: Sequence[Variant], giver: str) -> None:
        for one, other in clashes(found):
            self._complain(
                node,
                f"{giver} {one.label} or {other.label}, which are both '{one.cls.__name__}' at run time: "
                "give each a class of its own",
            )

    # -- edges

    def _wire_node(self, node: Node) -> WiredNode:
        edges = [self._edge(node, parameter) for parameter in self.signatures[node.name].parameters]
        found = self.results[node.name]
        classes = None if found is None else tuple(dict.fromkeys(one.cls for one in found))
        return WiredNode(node=node, edges=tuple(edge for edge in edges if edge), classes=classes)

    def _edge(self, node: Node, parameter: Parameter) -> Edge | None:
        if Context in members(parameter.annotation):
            return Edge(parameter=parameter, origin=Origin.CONTEXT, source="context", optional=False)
        if parameter.name in self.results:
            return self._node_edge(node, parameter)
        if self.reactor is None:
            return self._open_edge(node, parameter)
        if parameter.name in self.accumulators:
            return self._accumulator_edge(node, parameter, self.accumulators[parameter.name])
        known = [*self.accumulators, *self.results]
        self._complain(
            node,
            f"parameter '{parameter.name}' of node '{node.name}' names neither a node of graph '{self.name}' nor an "
            f"accumulator of reactor '{self.reactor.name}' {sorted(self.accumulators)}"
            f"{did_you_mean(parameter.name, (name for name in known if name != node.name))}",
            parameter.name,
        )
        return None

    def _node_edge(self, node: Node, parameter: Parameter) -> Edge:
        admitted = self._admitted(node, parameter, self.results[parameter.name], f"node '{parameter.name}' returns")
        return _edge_from(Origin.NODE, parameter, admitted)

    def _accumulator_edge(self, node: Node, parameter: Parameter, accumulator: Accumulator) -> Edge:
        found = variants(self.emitted[accumulator.name])
        admitted = self._admitted(node, parameter, found, f"accumulator '{accumulator.name}' emits")
        if admitted is not None:
            self._check_distinct(node, found or (), f"accumulator '{accumulator.name}' emits")
        if admitted is None or admitted:  # else it is said already
            self._check_own(node, parameter, accumulator)
        return _edge_from(Origin.INPUT, parameter, admitted)

    def _check_own(self, node: Node, parameter: Parameter, accumulator: Accumulator) -> None:
        """Refuse a class of which the reactor's package has its own, if the two differ or none can become the other."""
        given = accumulator.boundary_type
        told = [
            *unlike(parameter.annotation, [given], strictly=True),
            *(
                f"no {full_name(cls)} of this package can be made from one of another; derive it from tm.Boundary, or "
                "let both packages get it from a library"
                for cls in unmakeable(parameter.annotation, given)
            ),
        ]
        for why in told:
            message = f"parameter '{parameter.name}' of node '{node.name}' takes {label(parameter.annotation)}: {why}"
            self._complain(node, message, parameter.name)

    def _own_what_is_emitted(self) -> None:
        """Say what accumulators emit in the graph's own classes, where those of the reactor's package are the same."""
        taken = [one for signature in self.signatures.values() for one in signature.parameters]
        for name, accumulator in self.accumulators.items():
            wanted = [one.annotation for one in taken if one.name == name]
            self.emitted[name] = own_annotation(accumulator.boundary_type, wanted)

    def _gather_open_inputs(self) -> None:
        """Without a reactor, an input is whatever the nodes that name it take, and routes between them."""
        taken: dict[str, list[Any]] = {}
        for signature in self.signatures.values():
            for one in signature.parameters:
                if self.reactor is None and one.name not in self.results and Context not in members(one.annotation):
                    taken.setdefault(one.name, []).append(one.annotation)
        for name, annotations in taken.items():
            known = [annotation for annotation in annotations if not runtime_unknown(annotation)]
            self.open_inputs[name] = reduce(or_, known) if known else Any

    def _open_edge(self, node: Node, parameter: Parameter) -> Edge:
        found = variants(without_none(self.open_inputs[parameter.name])) or ()
        admitted = self._admitted(node, parameter, found, "its takers want")
        refused = [one for one in found if admitted and one.cls in admitted and not admits(parameter.annotation, one)]
        for one in refused:
            if not any(admits(one.annotation, own) for own in variants(parameter.annotation) or ()):
                self._complain(
                    node,
                    f"input '{parameter.name}' is taken as {label(parameter.annotation)} by node '{node.name}' and as "
                    f"{one.label} by another, which are both '{one.cls.__name__}' at run time",
                    parameter.name,
                )
        return _edge_from(Origin.INPUT, parameter, admitted)

    def _admitted(
        self, node: Node, parameter: Parameter, given: tuple[Variant, ...] | None, giver: str
    ) -> tuple[type, ...] | None:
        if given is None or runtime_unknown(parameter.annotation):
            return None
        admitted = [one for one in given if admits(parameter.annotation, one, loosely=False)]
        admitted = admitted or [one for one in given if admits(parameter.annotation, one)]
        if not _can_arrive(parameter.annotation, given, admitted):
            why = unlike(parameter.annotation, [one.annotation for one in given])
            self._complain(
                node,
                f"parameter '{parameter.name}' of node '{node.name}' takes {label(parameter.annotation)}, which can "
                f"never arrive: {giver} {' | '.join(dict.fromkeys(one.label for one in given))}"
                f"{''.join(f'; {told}' for told in why)}",
                parameter.name,
            )
        if len(admitted) == len(given):
            return None
        return tuple(dict.fromkeys(one.cls for one in admitted))

    # -- the whole

    def _check_routes(self, wired: Sequence[WiredNode]) -> None:
        takers: dict[str, list[Edge]] = {one.name: [] for one in wired}
        for one in wired:
            for edge in one.upstream():
                takers[edge.source].append(edge)
        for one in wired:
            self._check_ignores(one.node)
            found = self.results[one.name]
            if found is None or not takers[one.name]:
                continue
            for variant in found:
                if variant.cls is NoneType or self._is_ignored(one.node, variant):
                    continue
                if not any(edge.admitted is None or variant.cls in edge.admitted for edge in takers[one.name]):
                    self._complain(
                        one.node,
                        f"node '{one.name}' may return {variant.label}, which no node takes: add a node with a "
                        f"parameter '{one.name}: {variant.label}', or declare ignores=[{variant.label}]",
                    )

    def _is_ignored(self, node: Node, variant: Variant) -> bool:
        return any(admits(ignored, variant) for ignored in node.ignores)

    def _check_ignores(self, node: Node) -> None:
        found = self.results[node.name]
        for ignored in node.ignores:
            if found is not None and not any(admits(ignored, variant) for variant in found):
                self._complain(node, f"node '{node.name}' ignores {label(ignored)}, which it never returns")

    def _check_feeds(self, wired: Sequence[WiredNode]) -> None:
        for one in wired:
            window = one.node.feeds
            if window is None:
                continue
            if not isinstance(window, Accumulator) or not window.is_window:
                self._complain(one.node, f"node '{one.name}' feeds {window!r}, which is no tm.window(...)")
                continue
            if self.reactor is not None and window not in self.reactor.accumulators:
                self._complain(
                    one.node,
                    f"node '{one.name}' feeds window '{window.name}', which reactor '{self.reactor.name}' "
                    "does not have",
                )
            for variant in self.results[one.name] or ():
                if variant.cls is not NoneType and not admits(window.element, variant):
                    self._complain(
                        one.node,
                        f"node '{one.name}' returns {variant.label}, but window '{window.name}' holds "
                        f"{label(window.element)}",
                    )

    def _check_cycles(self, wired: Sequence[WiredNode]) -> None:
        upstream = {one.name: [edge.source for edge in one.upstream()] for one in wired}
        by_name = {one.name: one for one in wired}
        cycles = list(_cycles(upstream))
        for path in cycles:
            self._complain(by_name[path[0]].node, f"nodes form a cycle: {' -> '.join(path)}")
        if not cycles:
            for stuck, why in unreachable(wired):
                self._complain(stuck.node, why)

    def _inputs(self, wired: Sequence[WiredNode]) -> tuple[Input, ...]:
        edges = [edge for one in wired for edge in one.edges if edge.origin is Origin.INPUT]
        required = {edge.source for edge in edges if not edge.optional}
        if self.reactor is not None:
            return tuple(
                Input(
                    name=one.name,
                    annotation=self.emitted[one.name],
                    required=one.name in required and not one.is_window,
                    window=one.is_window,
                    own=self._own(one),
                )
                for one in self.reactor.accumulators
            )
        return tuple(
            Input(name=name, annotation=annotation, required=name in required)
            for name, annotation in self.open_inputs.items()
        )

    def _own(self, accumulator: Accumulator) -> Callable[[Any], Any] | None:
        own, given = self.emitted[accumulator.name], accumulator.boundary_type
        return None if own == given else input_rebuilder(own)


def _can_arrive(annotation: Any, given: Sequence[Variant], admitted: Sequence[Variant]) -> bool:
    """Return whether something arrives at a parameter, beside the None that it may take as well."""
    if without_none(annotation) is NoneType or all(one.cls is NoneType for one in given):
        return bool(admitted)
    return any(one.cls is not NoneType for one in admitted)


def _edge_from(origin: Origin, parameter: Parameter, admitted: tuple[type, ...] | None) -> Edge:
    """Return the edge that feeds a parameter from whatever has its name."""
    optional = not is_required(parameter)
    return Edge(parameter=parameter, origin=origin, source=parameter.name, optional=optional, admitted=admitted)


def runtime_unknown(annotation: Any) -> bool:
    """Return whether an annotation says nothing about classes: Any, object, or not given."""
    return annotation is MISSING or variants(annotation) is None


def _cycles(upstream: Mapping[str, Iterable[str]]) -> Iterable[list[str]]:
    """Yield cycles, each from a node back to itself, until cutting them leaves none."""
    rest = {name: set(sources) for name, sources in upstream.items()}
    while True:
        try:
            TopologicalSorter(rest).prepare()
            return
        except CycleError as error:
            path: list[str] = error.args[1]
            yield path
            for before, after in pairwise(path):
                rest[after].discard(before)
