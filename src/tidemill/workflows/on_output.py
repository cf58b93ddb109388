"""`tm.on_output`: each value that a terminal node returns, and that fulfils the condition, starts a run."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Any, ClassVar

import msgspec
from msgspec.structs import fields

from tidemill.annotations.class_conversion import find_mismatches
from tidemill.annotations.signatures import caller_location
from tidemill.annotations.variants import (
    Variant,
    admits,
    expand_variants,
    full_name,
    label,
    strip_none,
    tell_apart,
)
from tidemill.kernel.durations import Duration, parse_positive_duration
from tidemill.kernel.errors import DefinitionError, OperationError, Problem
from tidemill.kernel.limits import make_storable
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.cel_types import STRING, CelType, type_of, union_of
from tidemill.workflows.definition import Expression, describe_expression
from tidemill.workflows.expressions import expression_problem
from tidemill.workflows.firing_trigger import (
    Decide,
    FiringFacts,
    FiringTrigger,
    Observed,
    ParamsClass,
    Start,
    compile_expression,
    declared_params,
    inputs_type,
    unfilled_params,
)
from tidemill.workflows.graph_calls import CallableGraph, ObservedNode, is_callable_graph

PARAM_NAMES = ("output", "inputs", "firing_id")
"""The params of a run that the value of a node starts, unless the value itself is the params."""

KEY_LENGTH_LIMIT = 200
"""Characters of what a run is about; lists do not show a longer one."""

_TIME_PRECISION = timedelta(milliseconds=1)
"""Firing times are computed from floats: of two that are exactly a cooldown apart, one may seem too early."""


class OnOutput(FiringTrigger, frozen=True, eq=False, kw_only=True):
    """A subscription to a terminal node: each firing in which it returns a value starts a run."""

    kind: ClassVar[str] = "on_output"

    graph: str
    node: str
    cooldown: float | None = None
    """Seconds after a firing that started a run in which no other firing about the same starts one."""
    dedup: Expression | None = None
    """Returns what a value is about; without a cooldown, one run about the same is active at a time."""
    source: CallableGraph | None = None

    @property
    def graph_name(self) -> str:
        return self.graph

    @property
    def subject(self) -> str:
        return f"{self.graph}.{self.node}"

    @property
    def title(self) -> str:
        return f"on_output({self.graph!r}, {self.node!r})"

    @property
    def expressions(self) -> Mapping[str, Expression | None]:
        return {"when": self.when, "dedup": self.dedup}

    @property
    def variants(self) -> tuple[Variant, ...] | None:
        """The variants that the node may return, without None; None if they are not known."""
        if self.source is None:
            return None
        variants = expand_variants(self.source.returns().get(self.node, Any))
        return None if variants is None else tuple(one for one in variants if one.cls is not type(None))

    def facts(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "node": self.node,
            "when": describe_expression(self.when),
            "cooldown": self.cooldown,
            "dedup": describe_expression(self.dedup),
        }

    def observe(self, tenant: str) -> Observed:
        assert self.source is not None, "a workflow is loaded after the graphs that it names"
        owner, _, reactor = (self.source.reactor_name or "").rpartition("/")
        graph = self.graph if owner in ("", tenant) else f"{tenant}/{self.graph}"
        return Observed((owner or tenant, reactor), graph, self.node)

    def variables(self, params: ParamsClass | None) -> dict[str, CelType]:
        variants = self.variants
        admitted = [one for one in variants or () if _is_params(params, one)] or variants or ()
        output = union_of(type_of(one.annotation) for one in admitted)
        return {"output": output, "inputs": inputs_type("inputs", self.source), "firing_id": STRING}

    def find_problems(self, params: ParamsClass | None) -> Iterator[str]:
        return (f"{self.title}: {message}" for message in _output_problems(self, params))

    def decision(self, params: ParamsClass | None) -> Decide:
        return _OutputDecision(self, params).decide


def on_output(
    graph: ObservedNode | CallableGraph | str,
    node: str | Callable[..., Any] | None = None,
    *,
    when: Expression | None = None,
    cooldown: Duration | None = None,
    dedup: Expression | None = None,
) -> OnOutput:
    """Declare that each firing in which a terminal node returns a value, other than None, starts a run.

    Pass the node, `tm.on_output(maker.place)`, or the graph or its name, and the node's name. The value is the run's
    params if the workflow's `params` class is what the node returns, or one variant of it; other variants start
    nothing. Without `params`, tasks read `ctx["output"]`, `ctx["inputs"]` and `ctx["firing_id"]`.

    `when` is an expression about these three, or a function of the value. For values that repeat, `dedup` says what a
    value is about, as an expression or a function: while a run about the same is active no other starts. With
    `cooldown`, no other starts for that long after the firing that started the last one about the same.
    """
    location = caller_location()
    given: Any = graph  # it may be anything
    if node is None and is_callable_graph(getattr(given, "graph", None)):
        given, node = given.graph, given.name
    graph_name = given if isinstance(given, str) else getattr(given, "name", None)
    node_name = node if isinstance(node, str) else getattr(node, "__name__", None)
    if not isinstance(graph_name, str) or not graph_name or not node_name:
        shown = ", ".join(map(repr, (given, node) if node is not None else (given,)))
        message = f"it takes a node, on_output(maker.place), or a graph and a node's name, not ({shown})"
        raise DefinitionError.single("on_output", message, location)
    problems: list[str] = []
    seconds = None
    try:
        seconds = None if cooldown is None else parse_positive_duration(cooldown)
    except ValueError as error:
        problems.append(f"cooldown: {error}")
    for option, rule, example in (("when", when, "output.size > 100"), ("dedup", dedup, "output.sensor")):
        if rule is not None and (problem := expression_problem(option, rule, example)):
            problems.append(problem)
    if problems:
        raise DefinitionError([Problem(message=one, location=location) for one in problems], "on_output")
    return OnOutput(
        graph=graph_name,
        node=node_name,
        when=when,
        cooldown=seconds,
        dedup=dedup,
        location=location,
        source=given if is_callable_graph(given) else None,
    )


class _OutputDecision:
    """Starts a run for each value of a node that is of an admitted class and fulfils the condition."""

    def __init__(self, trigger: OnOutput, params: ParamsClass | None) -> None:
        self._name = f"{trigger.graph}.{trigger.node}"
        variables = trigger.variables(params)
        self._condition = compile_expression("when", trigger.when, variables)
        self._dedup = compile_expression("dedup", trigger.dedup, variables)
        self._cooldown = None if trigger.cooldown is None else timedelta(seconds=trigger.cooldown) - _TIME_PRECISION
        self._params = params
        variants = trigger.variants
        self._is_typed = params is not None and any(_is_params(params, one) for one in variants or ())
        admitted = [one for one in variants or () if not self._is_typed or _is_params(params, one)]
        self._types = {full_name(one.cls): params if self._is_typed else one.annotation for one in admitted}

    def decide(self, firing: FiringFacts) -> Start | None:
        if self._is_typed and firing.variant not in self._types:
            return None  # another variant of the union
        value = self._decode(firing)
        plain = msgspec.to_builtins(msgspec.msgpack.decode(firing.output), str_keys=True)
        variables = {"output": plain, "inputs": dict(firing.inputs), "firing_id": firing.id}
        if self._condition is not None and not self._condition.holds(value, variables):
            return None
        is_typed = self._is_typed
        dedup, about = self._find_keys(value, variables)
        return Start(
            key=f"output:{self._name}:{firing.id}",
            params=value if is_typed else declared_params(self._params, variables),
            context={name: variables[name] for name in ("inputs", "firing_id")} if is_typed else {},
            dedup=dedup,
            about=about,
            cooldown=self._cooldown,
        )

    def _decode(self, firing: FiringFacts) -> Any:
        """Return the value as its declared class, or as plain values if its class is not declared."""
        try:
            return msgspec.msgpack.decode(firing.output, type=self._types.get(firing.variant, Any))
        except (msgspec.ValidationError, TypeError) as error:
            if not self._is_typed:
                return msgspec.msgpack.decode(firing.output)
            message = f"the value that {self._name} returned does not fit {label(self._params)}: {error}"
            raise OperationError(message) from error

    def _find_keys(self, value: Any, variables: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """Return a digest of the node and of what the value is about, and the latter as text.

        Both are None if repeated values are not suppressed.
        """
        if self._dedup is None and self._cooldown is None:
            return None, None
        about = None if self._dedup is None else self._dedup.find_key(value, variables)
        encoded = msgspec.json.encode([self._name, about], order="deterministic", enc_hook=repr)
        return sha256(encoded).hexdigest(), _to_text(about)


def _to_text(about: Any) -> str | None:
    if not isinstance(about, str | None):
        about = msgspec.json.encode(about, order="deterministic", enc_hook=repr).decode()
    return None if about is None or len(about) > KEY_LENGTH_LIMIT else make_storable(about)


def _is_params(params: ParamsClass | None, variant: Variant) -> bool:
    """Return whether values of a variant are the params of a run: instances of their class, or of a copy of it."""
    return params is not None and issubclass(variant.cls, msgspec.Struct) and admits(params, variant)


# -- checks


def _output_problems(trigger: OnOutput, params: ParamsClass | None) -> Iterator[str]:
    """Yield what is wrong with the node of a trigger, as far as its graph is known."""
    graph, node = trigger.source, trigger.node
    if graph is None:
        return
    try:
        terminals, nodes = graph.returns(), [one.name for one in graph.functions()]
    except DefinitionError as error:
        yield f"graph '{graph.name}' cannot be built: {error}"
        return
    if graph.reactor_name is None:
        yield f"graph '{graph.name}' has no reactor, so it never fires: give it one, reactor=..."
    if node not in nodes:
        yield f"graph '{graph.name}' has no node '{node}'{did_you_mean(node, nodes) or _listed(terminals)}"
    elif node not in terminals:
        yield f"node '{node}' is not terminal, because other nodes take its value{_listed(terminals)}"
    else:
        yield from _type_problems(trigger, params, terminals[node])


def _listed(terminals: Iterable[str]) -> str:
    return f"; the terminal nodes are {', '.join(map(repr, terminals))}"


def _type_problems(trigger: OnOutput, params: ParamsClass | None, returns: Any) -> Iterator[str]:
    variants = trigger.variants
    if variants == ():
        yield f"node '{trigger.node}' returns None, and never a value that could start a run"
    if params is None or any(_is_params(params, one) for one in variants or ()):
        return
    declared = {field.name for field in fields(params)}
    if declared.isdisjoint(PARAM_NAMES):
        returned, taken = tell_apart(strip_none(returns), params)
        returned = label(returns) if taken == label(params) else returned
        reasons = "".join(f"; {reason}" for reason in find_mismatches(params, [returns]))
        yield (
            f"node '{trigger.node}' returns {returned}, and the workflow takes params={taken}{reasons}: pass params= "
            "the class that the node returns, or one of this name with the same fields, or declare one of "
            f"{', '.join(PARAM_NAMES)} in it"
        )
    else:
        yield from unfilled_params("a value", params, PARAM_NAMES)
