"""Calling a graph by hand: `maker(orderbook=..., pricing=...)`, without a reactor.

The call has a generated function of its own, so that it costs little more than the nodes called by hand: keywords
are its parameters, types are checked on the way in, and a GraphResult is all that is built.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.annotations.variants import label
from tidemill.graphs.codegen import DirectCallHooks, write_direct_function
from tidemill.graphs.compiler import CompiledGraph, GeneratedFunction
from tidemill.graphs.context import FiringContext
from tidemill.graphs.result import GraphResult
from tidemill.graphs.wiring_model import GraphInput
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.telemetry.log_fields import FieldLogger

logger = logging.getLogger("tidemill.graph")


def build_direct_call(compiled: CompiledGraph) -> Callable[..., Any]:
    """Return the function behind `graph(name=value, ...)`."""
    desk = _DirectCallHooks(compiled)
    desk.generated = GeneratedFunction.build(
        write_direct_function(compiled.wiring, desk), f"{compiled.name} called directly"
    )
    return desk.generated.function


class _DirectCallHooks(DirectCallHooks):
    """Lets inputs in and hands results out, for one graph."""

    generated: GeneratedFunction

    def __init__(self, compiled: CompiledGraph) -> None:
        self._compiled = compiled
        self._inputs = {one.name: one for one in compiled.wiring.inputs}

    def input_validator(self, name: str) -> tuple[type | None, Callable[[Any], Any]]:
        one = self._inputs[name]
        admission = TypeValidator(one.annotation)
        return admission.exact_class, partial(self._validate, one, admission)

    def _validate(self, graph_input: GraphInput, validator: TypeValidator, value: Any) -> Any:
        if value is None:
            if graph_input.required:
                raise self._missing_input_error(graph_input)
            return [] if graph_input.is_window else None
        try:
            return validator.validate(value)
        except TypeMismatchError as error:
            message = f"input '{graph_input.name}' of graph '{self._compiled.name}': {error}"
            raise RequestError(message, code="invalid_input", input=graph_input.name) from error

    def _missing_input_error(self, graph_input: GraphInput) -> RequestError:
        needed = f"input '{graph_input.name}' ({label(graph_input.annotation)}); pass {graph_input.name}=..."
        message = f"graph '{self._compiled.name}' cannot run without {needed}"
        return RequestError(message, code="missing_input", input=graph_input.name)

    def reject_unknown(self, unknown: dict[str, Any]) -> None:
        name = next(iter(unknown))
        hint = did_you_mean(name, self._inputs)
        message = f"graph '{self._compiled.name}' has no input '{name}'{hint}; it has {sorted(self._inputs)}"
        raise RequestError(message, code="unknown_input", input=name)

    def make_context(self, consumed: list[tuple[str, Any]]) -> FiringContext:
        log = FieldLogger(logger, {"graph": self._compiled.name})
        given = [(name, value) for name, value in consumed if value is not None]
        return FiringContext(self._compiled.name, lambda: "direct", given, log)

    def result_factory(self) -> tuple[Callable[..., Any], Any]:
        return GraphResult, self._compiled.layout

    def failed_result(self, error: Exception) -> GraphResult:
        return self._compiled.failed_result(error, self.generated)
