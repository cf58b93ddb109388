"""`tm.on_firing`: each firing of a reactor whose payload fulfils the condition starts a run."""

from collections.abc import Iterator
from typing import Any, ClassVar

from tidemill.annotations.signatures import caller_location
from tidemill.kernel.errors import DefinitionError
from tidemill.workflows.cel_types import STRING, CelType
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
from tidemill.workflows.graph_calls import ObservedReactor

PARAM_NAMES = ("payload", "firing_id")
"""The params of a run that a firing starts."""


class OnFiring(FiringTrigger, frozen=True, eq=False, kw_only=True):
    """A subscription to a reactor's firings: each starts a run if `when` holds for its payload."""

    kind: ClassVar[str] = "on_firing"

    reactor: str
    source: ObservedReactor | None = None

    @property
    def reactor_name(self) -> str:
        return self.reactor

    @property
    def subject(self) -> str:
        return self.reactor

    @property
    def title(self) -> str:
        return f"on_firing({self.reactor!r})"

    def facts(self) -> dict[str, Any]:
        return {"reactor": self.reactor, "when": describe_expression(self.when)}

    def observe(self, tenant: str) -> Observed:
        return Observed((tenant, self.reactor))

    def variables(self, params: ParamsClass | None) -> dict[str, CelType]:  # noqa: ARG002, they give no types
        return {"payload": inputs_type("payload", self.source), "reactor": STRING, "tenant": STRING}

    def find_problems(self, params: ParamsClass | None) -> Iterator[str]:
        return unfilled_params("a firing", params, PARAM_NAMES)

    def decision(self, params: ParamsClass | None) -> Decide:
        return _FiringDecision(self, params).decide


def on_firing(reactor: ObservedReactor | str, *, when: Expression | None = None) -> OnFiring:
    """Declare that each firing of a reactor, given by its name or as declared, starts a run.

    The run's params are `payload`, the firing's inputs as plain values by source, and `firing_id`. `when` is an
    expression about these, such as "payload.orderbook.bid > 100.0", or a function of the payload; without it every
    firing starts a run.
    """
    location = caller_location()
    name = reactor if isinstance(reactor, str) else getattr(reactor, "name", None)
    if not isinstance(name, str) or not name:
        raise DefinitionError.single("on_firing", f"it takes a reactor, or its name, not {reactor!r}", location)
    if when is not None and (problem := expression_problem("when", when, "payload.orderbook.bid > 100.0")):
        raise DefinitionError.single("on_firing", problem, location)
    source = None if isinstance(reactor, str) or not hasattr(type(reactor), "boundary_types") else reactor
    return OnFiring(reactor=name, when=when, location=location, source=source)


class _FiringDecision:
    """Starts a run for each firing of a reactor whose payload fulfils the condition."""

    def __init__(self, trigger: OnFiring, params: ParamsClass | None) -> None:
        self._condition = compile_expression("when", trigger.when, trigger.variables(params))
        self._params = params

    def decide(self, firing: FiringFacts) -> Start | None:
        payload = dict(firing.inputs)
        variables = {"payload": payload, "reactor": firing.reactor, "tenant": firing.tenant}
        if self._condition is not None and not self._condition.holds(payload, variables):
            return None
        params = declared_params(self._params, {"payload": payload, "firing_id": firing.id})
        return Start(key=f"firing:{firing.reactor}:{firing.id}", params=params)
