"""Calling a graph by hand: `maker(orderbook=..., pricing=...)`, without a reactor.

The call has a generated function of its own, so that it costs little more than the nodes called by hand: keywords
are its parameters, types are checked on the way in, and a GraphResult is all that is built.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from tidemill.annotations.admission import Admission, MisfitError
from tidemill.annotations.variants import label
from tidemill.graphs.compiler import Compiled, Routine
from tidemill.graphs.context import FiringContext
from tidemill.graphs.emission import Desk, write_direct
from tidemill.graphs.result import GraphResult
from tidemill.graphs.wired import Input
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.telemetry.fields import FieldsLog

logger = logging.getLogger("tidemill.graph")


def direct_call(compiled: Compiled) -> Callable[..., Any]:
    """Return the function behind `graph(name=value, ...)`."""
    desk = _CallDesk(compiled)
    desk.routine = Routine.build(write_direct(compiled.wiring, desk), f"{compiled.name} called directly")
    return desk.routine.function


class _CallDesk(Desk):
    """Lets inputs in and hands results out, for one graph."""

    routine: Routine

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._inputs = {one.name: one for one in compiled.wiring.inputs}

    def admit(self, name: str) -> tuple[type | None, Callable[[Any], Any]]:
        one = self._inputs[name]
        admission = Admission(one.annotation)
        return admission.expected, partial(self._admit, one, admission)

    def _admit(self, one: Input, admission: Admission, value: Any) -> Any:
        if value is None:
            if one.required:
                raise self._missing(one)
            return [] if one.window else None
        try:
            return admission.admit(value)
        except MisfitError as error:
            message = f"input '{one.name}' of graph '{self._compiled.name}': {error}"
            raise RequestError(message, code="invalid_input", input=one.name) from error

    def _missing(self, one: Input) -> RequestError:
        needed = f"input '{one.name}' ({label(one.annotation)}); pass {one.name}=..."
        message = f"graph '{self._compiled.name}' cannot run without {needed}"
        return RequestError(message, code="missing_input", input=one.name)

    def refuse(self, unknown: dict[str, Any]) -> None:
        name = next(iter(unknown))
        hint = did_you_mean(name, self._inputs)
        message = f"graph '{self._compiled.name}' has no input '{name}'{hint}; it has {sorted(self._inputs)}"
        raise RequestError(message, code="unknown_input", input=name)

    def context(self, consumed: list[tuple[str, Any]]) -> FiringContext:
        log = FieldsLog(logger, {"graph": self._compiled.name})
        given = [(name, value) for name, value in consumed if value is not None]
        return FiringContext(self._compiled.name, lambda: "direct", given, log)

    def succeeded(self) -> tuple[Callable[..., Any], Any]:
        return GraphResult, self._compiled.shape

    def failed(self, error: Exception) -> GraphResult:
        return self._compiled.failed(error, self.routine)
