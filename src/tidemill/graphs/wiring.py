"""Wires declared nodes into a graph: finds the source of every parameter, the routes, and all problems.

A parameter names a node or an input (an accumulator of the reactor; anything, in a graph without one). Along each
edge only the variants travel that the parameter's annotation admits. All problems are collected before any is
raised, so that an author corrects a graph once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from operator import or_
from typing import Any

import msgspec

from tidemill.annotations.class_conversion import (
    build_input_converter,
    find_mismatches,
    find_unconvertible,
    substitute_classes,
)
from tidemill.annotations.context import Context
from tidemill.annotations.signatures import MISSING, Parameter, Signature
from tidemill.annotations.variants import (
    NoneType,
    Variant,
    admits,
    expand_variants,
    find_clashes,
    full_name,
    is_required,
    label,
    strip_none,
    union_members,
)
from tidemill.graphs.definition import Accumulator, GraphNodeDefinition, Reactor
from tidemill.graphs.feeds import LOOP_REMEDY, ends_loop, find_misfits
from tidemill.graphs.routes import find_unreachable
from tidemill.graphs.wiring_model import Edge, GraphInput, InputOrigin, WiredNode, Wiring
from tidemill.kernel.errors import DefinitionError, Problem
from tidemill.kernel.suggestions import did_you_mean


def wire(name: str, nodes: Sequence[GraphNodeDefinition], reactor: Reactor | None) -> Wiring:
    """Wire a graph, or raise one DefinitionError with every problem found."""
    return _Wirer(name, nodes, reactor).wire()


class _Wirer(msgspec.Struct):
    """Wires one graph: names first, then edges, then checks of the whole."""

    name: str
    nodes: Sequence[GraphNodeDefinition]
    reactor: Reactor | None
    problems: list[Problem] = msgspec.field(default_factory=list)
    signatures: dict[str, Signature] = msgspec.field(default_factory=dict)
    return_variants: dict[str, tuple[Variant, ...] | None] = msgspec.field(default_factory=dict)
    accumulators: Mapping[str, Accumulator] = msgspec.field(default_factory=dict)
    open_inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    emitted_types: dict[str, Any] = msgspec.field(default_factory=dict)

    def wire(self) -> Wiring:
        if self.reactor is not None:
            self.accumulators = dict(zip(self.reactor.accumulator_names, self.reactor.accumulators, strict=True))
            self.problems.extend(problem for one in self.reactor.accumulators for problem in one.problems)
        self._read_signatures()
        self._collect_open_inputs()
        self._localize_emitted_types()
        wired = [self._wire_node(node) for node in self._distinct_nodes()]
        self._check_routes(wired)
        self._check_feeds(wired)
        self._check_cycles(wired)
        if self.problems:
            raise DefinitionError(self.problems, f"graph '{self.name}'")
        consumed = {edge.source for one in wired for edge in one.upstream_edges()}
        return Wiring(
            name=self.name,
            nodes=tuple(wired),
            inputs=self._build_inputs(wired),
            terminals=frozenset(one.name for one in wired if one.name not in consumed),
            reactor=self.reactor.name if self.reactor else None,
        )

    def _add_problem(self, node: GraphNodeDefinition, message: str, parameter: str | None = None) -> None:
        self.problems.append(
            Problem(message=message, location=node.function.location, node=node.name, parameter=parameter)
        )

    def _distinct_nodes(self) -> list[GraphNodeDefinition]:
        return list({node.name: node for node in self.nodes}.values())

    def _read_signatures(self) -> None:
        if not self.nodes:
            self.problems.append(Problem(message="a graph needs at least one node"))
        seen: dict[str, GraphNodeDefinition] = {}
        for node in self.nodes:
            if node.name in seen:
                self._add_problem(
                    node,
                    f"node '{node.name}' is declared twice, first at {seen[node.name].function.location}",
                )
            if node.name in self.accumulators:
                self._add_problem(node, f"node '{node.name}' has the name of an accumulator; rename one of them")
            seen[node.name] = node
            signature = node.function.signature()
            self.problems.extend(signature.problems)
            self.signatures[node.name] = signature
            self.return_variants[node.name] = self._read_return_variants(node, signature)

    def _read_return_variants(self, node: GraphNodeDefinition, signature: Signature) -> tuple[Variant, ...] | None:
        variants = expand_variants(signature.returns)
        self._check_distinct(node, variants or (), f"node '{node.name}' returns")
        return variants

    def _check_distinct(self, node: GraphNodeDefinition, variants: Sequence[Variant], producer: str) -> None:
        for one, other in find_clashes(variants):
            self._add_problem(
                node,
                f"{producer} {one.label} or {other.label}, which are both '{one.cls.__name__}' at run time: "
                "give each its own class",
            )

    # -- edges

    def _wire_node(self, node: GraphNodeDefinition) -> WiredNode:
        edges = [self._build_edge(node, parameter) for parameter in self.signatures[node.name].parameters]
        variants = self.return_variants[node.name]
        classes = None if variants is None else tuple(dict.fromkeys(one.cls for one in variants))
        return WiredNode(node=node, edges=tuple(edge for edge in edges if edge), classes=classes)

    def _build_edge(self, node: GraphNodeDefinition, parameter: Parameter) -> Edge | None:
        if Context in union_members(parameter.annotation):
            return Edge(parameter=parameter, origin=InputOrigin.CONTEXT, source="context", optional=False)
        if parameter.name in self.return_variants:
            return self._build_node_edge(node, parameter)
        if self.reactor is None:
            return self._build_open_edge(node, parameter)
        if parameter.name in self.accumulators:
            return self._build_accumulator_edge(node, parameter, self.accumulators[parameter.name])
        known = [*self.accumulators, *self.return_variants]
        self._add_problem(
            node,
            f"parameter '{parameter.name}' of node '{node.name}' names neither a node of graph '{self.name}' nor an "
            f"accumulator of reactor '{self.reactor.name}' {sorted(self.accumulators)}"
            f"{did_you_mean(parameter.name, (name for name in known if name != node.name))}",
            parameter.name,
        )
        return None

    def _build_node_edge(self, node: GraphNodeDefinition, parameter: Parameter) -> Edge:
        admitted = self._admitted_classes(
            node, parameter, self.return_variants[parameter.name], f"node '{parameter.name}' returns"
        )
        return _make_edge(InputOrigin.NODE, parameter, admitted)

    def _build_accumulator_edge(
        self, node: GraphNodeDefinition, parameter: Parameter, accumulator: Accumulator
    ) -> Edge:
        variants = expand_variants(self.emitted_types[accumulator.name])
        admitted = self._admitted_classes(node, parameter, variants, f"accumulator '{accumulator.name}' emits")
        if admitted is not None:
            self._check_distinct(node, variants or (), f"accumulator '{accumulator.name}' emits")
        if admitted is None or admitted:  # else the problem is reported already
            self._check_convertible(node, parameter, accumulator)
        return _make_edge(InputOrigin.INPUT, parameter, admitted)

    def _check_convertible(self, node: GraphNodeDefinition, parameter: Parameter, accumulator: Accumulator) -> None:
        """Report a class that the reactor's package also has, if the two differ or cannot be converted."""
        emitted = accumulator.boundary_type
        reasons = [
            *find_mismatches(parameter.annotation, [emitted], strict=True),
            *(
                f"no {full_name(cls)} of this package can be made from one of another; derive it from tm.Boundary, or "
                "let both packages get it from a library"
                for cls in find_unconvertible(parameter.annotation, emitted)
            ),
        ]
        for reason in reasons:
            takes = f"parameter '{parameter.name}' of node '{node.name}' takes {label(parameter.annotation)}"
            self._add_problem(node, f"{takes}: {reason}", parameter.name)

    def _localize_emitted_types(self) -> None:
        """Express what accumulators emit in the graph's own classes, where the reactor's package has the same ones."""
        parameters = [one for signature in self.signatures.values() for one in signature.parameters]
        for name, accumulator in self.accumulators.items():
            annotations = [one.annotation for one in parameters if one.name == name]
            self.emitted_types[name] = substitute_classes(accumulator.boundary_type, annotations)

    def _collect_open_inputs(self) -> None:
        """Collect the inputs of a graph without a reactor: the union of the annotations of the nodes that name one."""
        annotations_by_name: dict[str, list[Any]] = {}
        for signature in self.signatures.values():
            for one in signature.parameters:
                if (
                    self.reactor is None
                    and one.name not in self.return_variants
                    and Context not in union_members(one.annotation)
                ):
                    annotations_by_name.setdefault(one.name, []).append(one.annotation)
        for name, annotations in annotations_by_name.items():
            typed = [annotation for annotation in annotations if not is_untyped(annotation)]
            self.open_inputs[name] = reduce(or_, typed) if typed else Any

    def _build_open_edge(self, node: GraphNodeDefinition, parameter: Parameter) -> Edge:
        variants = expand_variants(strip_none(self.open_inputs[parameter.name])) or ()
        admitted = self._admitted_classes(node, parameter, variants, "the nodes that take it declare")
        rejected = [
            one for one in variants if admitted and one.cls in admitted and not admits(parameter.annotation, one)
        ]
        for one in rejected:
            if not any(admits(one.annotation, own) for own in expand_variants(parameter.annotation) or ()):
                self._add_problem(
                    node,
                    f"input '{parameter.name}' is taken as {label(parameter.annotation)} by node '{node.name}' and as "
                    f"{one.label} by another, which are both '{one.cls.__name__}' at run time",
                    parameter.name,
                )
        return _make_edge(InputOrigin.INPUT, parameter, admitted)

    def _admitted_classes(
        self, node: GraphNodeDefinition, parameter: Parameter, produced: tuple[Variant, ...] | None, producer: str
    ) -> tuple[type, ...] | None:
        if produced is None or is_untyped(parameter.annotation):
            return None
        admitted = [one for one in produced if admits(parameter.annotation, one, match_by_shape=False)]
        admitted = admitted or [one for one in produced if admits(parameter.annotation, one)]
        if not _can_arrive(parameter.annotation, produced, admitted):
            reasons = find_mismatches(parameter.annotation, [one.annotation for one in produced])
            self._add_problem(
                node,
                f"parameter '{parameter.name}' of node '{node.name}' takes {label(parameter.annotation)}, which can "
                f"never arrive: {producer} {' | '.join(dict.fromkeys(one.label for one in produced))}"
                f"{''.join(f'; {reason}' for reason in reasons)}",
                parameter.name,
            )
        if len(admitted) == len(produced):
            return None
        return tuple(dict.fromkeys(one.cls for one in admitted))

    # -- the whole

    def _check_routes(self, wired: Sequence[WiredNode]) -> None:
        downstream: dict[str, list[Edge]] = {one.name: [] for one in wired}
        for one in wired:
            for edge in one.upstream_edges():
                downstream[edge.source].append(edge)
        for one in wired:
            self._check_ignores(one.node)
            variants = self.return_variants[one.name]
            if variants is None or not downstream[one.name]:
                continue
            for variant in variants:
                if variant.cls is NoneType or self._is_ignored(one.node, variant):
                    continue
                if not any(edge.admitted is None or variant.cls in edge.admitted for edge in downstream[one.name]):
                    self._add_problem(
                        one.node,
                        f"node '{one.name}' may return {variant.label}, which no node takes: add a node with a "
                        f"parameter '{one.name}: {variant.label}', or declare ignores=[{variant.label}]",
                    )

    def _is_ignored(self, node: GraphNodeDefinition, variant: Variant) -> bool:
        return any(admits(ignored, variant) for ignored in node.ignores)

    def _check_ignores(self, node: GraphNodeDefinition) -> None:
        variants = self.return_variants[node.name]
        for ignored in node.ignores:
            if variants is not None and not any(admits(ignored, variant) for variant in variants):
                self._add_problem(node, f"node '{node.name}' ignores {label(ignored)}, which it never returns")

    def _check_feeds(self, wired: Sequence[WiredNode]) -> None:
        """Check the fed accumulators that are known here; those of other packages are checked at load."""
        for one in wired:
            fed, name = one.node.feeds, one.node.fed_accumulator
            if fed is None:
                continue
            if not isinstance(fed, Accumulator | str):
                message = f"node '{one.name}' feeds {fed!r}, which is neither an accumulator nor the name of one"
                self._add_problem(one.node, message)
                continue
            own = self.accumulators.get(name or "")
            if own is not None and not ends_loop(own) and self.reactor is not None:
                self._add_problem(
                    one.node,
                    f"node '{one.name}' feeds '{name}' of its own reactor '{self.reactor.name}', so that each firing "
                    f"would cause the next: {LOOP_REMEDY}",
                )
            target = own or (fed if isinstance(fed, Accumulator) else None)
            for reason in find_misfits(one.node, target) if target is not None else ():
                self._add_problem(one.node, reason)

    def _check_cycles(self, wired: Sequence[WiredNode]) -> None:
        upstream = {one.name: [edge.source for edge in one.upstream_edges()] for one in wired}
        by_name = {one.name: one for one in wired}
        cycles = list(_find_cycles(upstream))
        for path in cycles:
            self._add_problem(by_name[path[0]].node, f"nodes form a cycle: {' -> '.join(path)}")
        if not cycles:
            for unreachable, reason in find_unreachable(wired):
                self._add_problem(unreachable.node, reason)

    def _build_inputs(self, wired: Sequence[WiredNode]) -> tuple[GraphInput, ...]:
        edges = [edge for one in wired for edge in one.edges if edge.origin is InputOrigin.INPUT]
        required = {edge.source for edge in edges if not edge.optional}
        if self.reactor is not None:
            return tuple(
                GraphInput(
                    name=one.name,
                    annotation=self.emitted_types[one.name],
                    required=one.name in required and not one.is_window,
                    is_window=one.is_window,
                    convert=self._input_converter(one),
                )
                for one in self.reactor.accumulators
            )
        return tuple(
            GraphInput(name=name, annotation=annotation, required=name in required)
            for name, annotation in self.open_inputs.items()
        )

    def _input_converter(self, accumulator: Accumulator) -> Callable[[Any], Any] | None:
        own, emitted = self.emitted_types[accumulator.name], accumulator.boundary_type
        return None if own == emitted else build_input_converter(own)


def _can_arrive(annotation: Any, produced: Sequence[Variant], admitted: Sequence[Variant]) -> bool:
    """Return whether any value except None can arrive at a parameter, or None if the parameter takes only that."""
    if strip_none(annotation) is NoneType or all(one.cls is NoneType for one in produced):
        return bool(admitted)
    return any(one.cls is not NoneType for one in admitted)


def _make_edge(origin: InputOrigin, parameter: Parameter, admitted: tuple[type, ...] | None) -> Edge:
    """Return the edge that feeds a parameter from the node or input of its name."""
    optional = not is_required(parameter)
    return Edge(parameter=parameter, origin=origin, source=parameter.name, optional=optional, admitted=admitted)


def is_untyped(annotation: Any) -> bool:
    """Return whether an annotation names no classes: Any, object, or missing."""
    return annotation is MISSING or expand_variants(annotation) is None


def _find_cycles(upstream: Mapping[str, Iterable[str]]) -> Iterable[list[str]]:
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
