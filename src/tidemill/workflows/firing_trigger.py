"""Triggers by which firings of reactors start workflows: what every kind has in common.

A kind is a subclass of `FiringTrigger`, and the function that authors call. Each has a module, such as `on_firing`;
the engine and the packages know the interface, and no kind by name.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, NamedTuple

import msgspec
from msgspec.structs import fields, replace

from tidemill.kernel.abstract import AbstractStructMeta
from tidemill.kernel.errors import DefinitionError, Location, Problem
from tidemill.workflows.cel_types import ANY, CelType, map_of, record_of, type_of
from tidemill.workflows.definition import Expression
from tidemill.workflows.expressions import CompiledExpression
from tidemill.workflows.graph_calls import CallableGraph, ObservedReactor

ParamsClass = type[msgspec.Struct]


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
    """What `ctx["name"]` finds in addition to the params."""
    dedup: str | None = None
    """A digest of what the run is about: while such a run is active, no other starts."""
    about: str | None = None
    """What the run is about, as lists show it; None if nothing says so, or if it is long."""
    cooldown: timedelta | None = None


Decide = Callable[[FiringFacts], Start | None]
"""Decides whether a firing starts a run. Raises OperationError, or any error of author code."""


class Observed(NamedTuple):
    """What a trigger of a tenant observes: a reactor, or a node of a graph that is bound to it."""

    reactor: tuple[str, str]
    """Its tenant and its name."""
    graph: str | None = None
    """With its tenant if the reactor is another one's."""
    node: str | None = None


class FiringTrigger(msgspec.Struct, metaclass=AbstractStructMeta, frozen=True, eq=False, kw_only=True):
    """A trigger by which a reactor starts a workflow."""

    kind: ClassVar[str]
    """The name of the function that authors call."""

    when: Expression | None = None
    location: Location | None = None
    source: Any = None
    """The reactor or the graph: as the author passed it, then as it is loaded; None while it is not known."""

    @property
    def reactor_name(self) -> str | None:
        """The reactor that it names."""
        return None

    @property
    def graph_name(self) -> str | None:
        """The graph that it names."""
        return None

    @property
    @abstractmethod
    def subject(self) -> str:
        """What it observes, in one word."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What its author wrote, without options."""

    @property
    def expressions(self) -> Mapping[str, Expression | None]:
        """Its expressions by option."""
        return {"when": self.when}

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return what it declares, as texts and numbers by name, for packages and for the API."""

    @abstractmethod
    def observe(self, tenant: str) -> Observed:
        """Return what it observes, as a trigger of this tenant."""

    @abstractmethod
    def variables(self, params: ParamsClass | None) -> dict[str, CelType]:
        """Return the types of the variables of its expressions, as far as they are known."""

    @abstractmethod
    def find_problems(self, params: ParamsClass | None) -> Iterator[str]:
        """Yield what keeps it from starting a workflow, besides its expressions."""

    @abstractmethod
    def decision(self, params: ParamsClass | None) -> Decide:
        """Return the decision of a trigger of a workflow that passed its checks."""


def select_firing_triggers(triggers: Iterable[object]) -> list[FiringTrigger]:
    """Return the triggers of a workflow that are not polled."""
    return [one for one in triggers if isinstance(one, FiringTrigger)]


def subscription_problems(
    triggers: Iterable[object], params: ParamsClass | None, location: Location | None
) -> Iterator[Problem]:
    """Yield everything that keeps firings from starting a workflow."""
    seen: set[str] = set()
    for one in select_firing_triggers(triggers):
        for message in _problems_of(one, params, is_repeated=one.title in seen):
            yield Problem(message=message, location=one.location or location)
        seen.add(one.title)


def _problems_of(trigger: FiringTrigger, params: ParamsClass | None, *, is_repeated: bool) -> Iterator[str]:
    if is_repeated:
        yield f"{trigger.title} is there twice: join the expressions with ||"
    variables = _known_variables(trigger, params)
    for option, expression in trigger.expressions.items():
        try:
            compile_expression(option, expression, variables)
        except ValueError as error:
            yield f"{trigger.title[:-1]}, {option}={expression!r}): {error}"
    yield from trigger.find_problems(params)


def _known_variables(trigger: FiringTrigger, params: ParamsClass | None) -> dict[str, CelType]:
    try:
        return trigger.variables(params)
    except DefinitionError:  # the graph cannot be built, which is reported by itself
        return replace(trigger, source=None).variables(params)


# -- parts of kinds


def inputs_type(name: str, source: ObservedReactor | CallableGraph | None) -> CelType:
    """Return the type of the inputs of a firing, as a variable of this name."""
    types = None if source is None else source.boundary_types
    return map_of(ANY) if types is None else record_of(name, {key: type_of(one) for key, one in types.items()})


def compile_expression(
    option: str, expression: Expression | None, variables: Mapping[str, CelType]
) -> CompiledExpression | None:
    """Return an expression that can be evaluated; None without one."""
    return None if expression is None else CompiledExpression(option, expression, variables)


def declared_params(params: ParamsClass | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that a workflow declares as its params; all if it declares none."""
    if params is None:
        return dict(values)
    declared = {field.name for field in fields(params)}
    return {name: value for name, value in values.items() if name in declared}


def unfilled_params(giver: str, params: ParamsClass | None, given: Sequence[str]) -> Iterator[str]:
    """Yield a problem for each param that a run needs and does not get."""
    for field in fields(params) if params is not None else ():
        if field.required and field.name not in given:
            names = f"{', '.join(given[:-1])} and {given[-1]}"
            yield f"{giver} gives {names}, and not the param '{field.name}': give that one a default"
