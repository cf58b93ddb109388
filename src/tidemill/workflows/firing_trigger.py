"""Firings that start workflows: the conditions and params of tm.on_firing and tm.on_output."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from tidemill.annotations.variants import Variant, admits, expand_variants, full_name, label
from tidemill.kernel.errors import DefinitionError, Location, OperationError, Problem
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.cel_types import ANY, STRING, CelType, map_of, record_of, type_of, union_of
from tidemill.workflows.definition import Expression, OnFiring, OnOutput, Subscribing
from tidemill.workflows.expressions import CompiledExpression
from tidemill.workflows.graph_calls import CallableGraph, ObservedReactor

ParamsClass = type[msgspec.Struct]

FIRING_PARAM_NAMES = ("payload", "firing_id")
"""The params of a run that a firing starts."""
OUTPUT_PARAM_NAMES = ("output", "inputs", "firing_id")
"""The params of a run that the value of a node starts, unless the value itself is the params."""

_TIME_PRECISION = timedelta(milliseconds=1)
"""Firing times are computed from floats: of two that are exactly a cooldown apart, one may seem too early."""


class FiringFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscribed workflow learns about a firing."""

    id: str
    reactor: str
    tenant: str
    inputs: Mapping[str, Any]
    """The inputs as plain values, by source."""
    variant: str = ""
    """The name of the class of the value that the node returned, for a subscription to a node."""
    output: bytes = b""
    """That value, as msgpack."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A run to start."""

    key: str
    """At most one run of the workflow starts with this key."""
    params: Mapping[str, Any] | msgspec.Struct
    context: Mapping[str, Any] = {}
    """What `ctx["name"]` finds beside the params."""
    dedup: str | None = None
    cooldown: timedelta | None = None


Decide = Callable[[FiringFacts], Start | None]
"""Decides whether a firing starts a run. Raises OperationError, or any error of author code."""


def compile_trigger(trigger: Subscribing, params: ParamsClass | None) -> Decide:
    """Return the decision of a trigger of a workflow that passed its checks."""
    return (
        _FiringDecision(trigger, params).decide
        if isinstance(trigger, OnFiring)
        else _OutputDecision(trigger, params).decide
    )


class _FiringDecision:
    """Starts a run for each firing of a reactor whose payload fulfils the condition."""

    def __init__(self, trigger: OnFiring, params: ParamsClass | None) -> None:
        self._condition = _compile("when", trigger.when, firing_variables(trigger))
        self._params = params

    def decide(self, firing: FiringFacts) -> Start | None:
        payload = dict(firing.inputs)
        variables = {"payload": payload, "reactor": firing.reactor, "tenant": firing.tenant}
        if self._condition is not None and not self._condition.holds(payload, variables):
            return None
        params = _declared_params(self._params, {"payload": payload, "firing_id": firing.id})
        return Start(key=f"firing:{firing.reactor}:{firing.id}", params=params)


class _OutputDecision:
    """Starts a run for each value of a node that is of an admitted class and fulfils the condition."""

    def __init__(self, trigger: OnOutput, params: ParamsClass | None) -> None:
        self._name = f"{trigger.graph}.{trigger.node}"
        variables = output_variables(trigger, params)
        self._condition = _compile("when", trigger.when, variables)
        self._dedup = _compile("dedup", trigger.dedup, variables)
        self._cooldown = None if trigger.cooldown is None else timedelta(seconds=trigger.cooldown) - _TIME_PRECISION
        self._params = params
        variants = _variants_of(trigger)
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
        return Start(
            key=f"output:{self._name}:{firing.id}",
            params=value if is_typed else _declared_params(self._params, variables),
            context={name: variables[name] for name in ("inputs", "firing_id")} if is_typed else {},
            dedup=self._dedup_key(value, variables),
            cooldown=self._cooldown,
        )

    def _decode(self, firing: FiringFacts) -> Any:
        """Return the value as its declared class, or as plain values if its class is not declared."""
        try:
            return msgspec.msgpack.decode(firing.output, type=self._types.get(firing.variant, Any))
        except (msgspec.ValidationError, TypeError) as error:
            if not self._is_typed:
                return msgspec.msgpack.decode(firing.output)
            message = f"the value that {self._name} returned is no {label(self._params)}: {error}"
            raise OperationError(message) from error

    def _dedup_key(self, value: Any, variables: Mapping[str, Any]) -> str | None:
        """Return a digest of the node and of what the value is about; None if repeated values are not suppressed."""
        if self._dedup is None and self._cooldown is None:
            return None
        about = None if self._dedup is None else self._dedup.find_key(value, variables)
        encoded = msgspec.json.encode([self._name, about], order="deterministic", enc_hook=repr)
        return sha256(encoded).hexdigest()


def firing_variables(trigger: OnFiring) -> dict[str, CelType]:
    """Return the types of the variables of `on_firing(when=...)`, as far as they are known."""
    return {"payload": _inputs_type("payload", trigger.source), "reactor": STRING, "tenant": STRING}


def output_variables(trigger: OnOutput, params: ParamsClass | None) -> dict[str, CelType]:
    """Return the types of the variables of `on_output(when=..., dedup=...)`, as far as they are known."""
    variants = _variants_of(trigger)
    admitted = [one for one in variants or () if _is_params(params, one)] or variants or ()
    output = union_of(type_of(one.annotation) for one in admitted)
    return {"output": output, "inputs": _inputs_type("inputs", trigger.source), "firing_id": STRING}


def _inputs_type(name: str, source: ObservedReactor | CallableGraph | None) -> CelType:
    types = None if source is None else source.boundary_types
    return map_of(ANY) if types is None else record_of(name, {key: type_of(one) for key, one in types.items()})


def _compile(option: str, expression: Expression | None, variables: Mapping[str, CelType]) -> CompiledExpression | None:
    return None if expression is None else CompiledExpression(option, expression, variables)


def _declared_params(params: ParamsClass | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that a workflow declares as its params; all if it declares none."""
    if params is None:
        return dict(values)
    declared = {field.name for field in fields(params)}
    return {name: value for name, value in values.items() if name in declared}


def _variants_of(trigger: OnOutput) -> tuple[Variant, ...] | None:
    """Return the variants that the node of a trigger may return, without None; None if they are not known."""
    if trigger.source is None:
        return None
    variants = expand_variants(trigger.source.returns().get(trigger.node, Any))
    return None if variants is None else tuple(one for one in variants if one.cls is not type(None))


def _is_params(params: ParamsClass | None, variant: Variant) -> bool:
    """Return whether values of a variant are the params of a run: instances of their class, or of a copy of it."""
    return params is not None and issubclass(variant.cls, msgspec.Struct) and admits(params, variant)


# -- checks


def subscription_problems(
    triggers: Iterable[object], params: ParamsClass | None, location: Location | None
) -> Iterator[Problem]:
    """Yield everything that keeps firings from starting a workflow."""
    seen: set[str] = set()
    for one in triggers:
        if isinstance(one, OnFiring | OnOutput):
            name = describe_trigger(one)
            for message in _problems_of(one, params, is_repeated=name in seen):
                yield Problem(message=message, location=one.location or location)
            seen.add(name)


def describe_trigger(trigger: Subscribing) -> str:
    """Return a trigger as its author wrote it, without its options."""
    if isinstance(trigger, OnFiring):
        return f"on_firing({trigger.reactor!r})"
    return f"on_output({trigger.graph!r}, {trigger.node!r})"


def _problems_of(trigger: Subscribing, params: ParamsClass | None, *, is_repeated: bool) -> Iterator[str]:
    name = describe_trigger(trigger)
    if is_repeated:
        yield f"{name} is there twice: join the expressions with ||"
    if isinstance(trigger, OnFiring):
        variables, options = firing_variables(trigger), {"when": trigger.when}
    else:
        variables, options = _known_variables(trigger, params), {"when": trigger.when, "dedup": trigger.dedup}
    for option, expression in options.items():
        try:
            _compile(option, expression, variables)
        except ValueError as error:
            yield f"{name[:-1]}, {option}={expression!r}): {error}"
    if isinstance(trigger, OnFiring):
        yield from _unfilled_params("a firing", params, FIRING_PARAM_NAMES)
    else:
        yield from (f"{name}: {message}" for message in _output_problems(trigger, params))


def _known_variables(trigger: OnOutput, params: ParamsClass | None) -> dict[str, CelType]:
    try:
        return output_variables(trigger, params)
    except DefinitionError:  # the graph cannot be built, which is reported by itself
        return output_variables(replace(trigger, source=None), params)


def _unfilled_params(giver: str, params: ParamsClass | None, given: Sequence[str]) -> Iterator[str]:
    for field in fields(params) if params is not None else ():
        if field.required and field.name not in given:
            names = f"{', '.join(given[:-1])} and {given[-1]}"
            yield f"{giver} gives {names}, and not the param '{field.name}': give that one a default"


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
    variants = _variants_of(trigger)
    if variants == ():
        yield f"node '{trigger.node}' returns None, and never a value that could start a run"
    if params is None or any(_is_params(params, one) for one in variants or ()):
        return
    declared = {field.name for field in fields(params)}
    if declared.isdisjoint(OUTPUT_PARAM_NAMES):
        yield (
            f"node '{trigger.node}' returns {label(returns)}, and the workflow takes params={label(params)}: "
            f"pass params= the class that the node returns, or declare one of {', '.join(OUTPUT_PARAM_NAMES)} in it"
        )
    else:
        yield from _unfilled_params("a value", params, OUTPUT_PARAM_NAMES)
