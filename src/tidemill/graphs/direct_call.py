"""Direct calls of a graph: `maker(orderbook=..., pricing=...)`, without a reactor.

Such a call has its own generated function, so that it costs little more than calling the nodes by hand: the
inputs are its keyword parameters, their types are checked first, and a GraphResult is all that is built.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.annotations.variants import label
from tidemill.graphs.codegen import FunctionWriter
from tidemill.graphs.compiler import CompiledGraph, GeneratedFunction
from tidemill.graphs.context import ContextOrigin, FiringContext
from tidemill.graphs.result import GraphResult
from tidemill.graphs.routes import Routes
from tidemill.graphs.wiring_model import GraphInput
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean


def build_direct_call(compiled: CompiledGraph) -> Callable[..., Any]:
    """Return the function behind `graph(name=value, ...)`."""
    writer = _DirectCallWriter(compiled)
    generated = GeneratedFunction.build(writer.write_function(), f"{compiled.name} called directly")
    # Bound last: to read an error it needs the function that the error passed through.
    generated.function.__globals__[writer.failed_name] = partial(compiled.failed_result, generated=generated)
    return generated.function


class _DirectCallWriter(FunctionWriter):
    """Writes a function that takes keywords and returns a GraphResult, around the same body."""

    def __init__(self, compiled: CompiledGraph) -> None:
        super().__init__(compiled.wiring, Routes.from_nodes(compiled.wiring.nodes))
        self._graph = compiled.name
        self._result_layout = compiled.layout
        self.failed_name = self.bind_value("failed", None)

    def write_opening(self) -> None:
        """Write inputs as keyword parameters, validate their values, and open the `try` around the nodes."""
        define = "async def" if self.wiring.is_async else "def"
        unknown = self.unique_name("unknown")
        names = [one.name for one in self.wiring.inputs]
        keywords = "".join(f"{name}=None, " for name in names)
        self.source_lines.append(f"{define} {self.function_name}({'*, ' + keywords if keywords else ''}**{unknown}):")
        self.write_line(f"if {unknown}:")
        reject_unknown = self.bind_value("reject_unknown", partial(_reject_unknown, self._graph, names))
        self.write_line(f"    {reject_unknown}({unknown})")
        for one in self.wiring.inputs:
            self._write_validation(one)
        if self.wiring.needs_context:
            origin = ContextOrigin(self._graph, names, lambda _series, _number: "direct")
            make_context = self.bind_value("make_context", partial(_make_context, origin))
            self.write_line(f"{self.context_name} = {make_context}({', '.join(names)})")
        self.write_line("try:")
        self.base_depth = self.depth = 2
        self.write_input_variants()

    def _write_validation(self, graph_input: GraphInput) -> None:
        name, validator = graph_input.name, TypeValidator(graph_input.annotation)
        exact_class = validator.exact_class
        validate = self.bind_value(f"validate_{name}", partial(_validate, self._graph, graph_input, validator))
        self.write_line(f"if {f'{name}.__class__ is not {self.bind_class(exact_class)}' if exact_class else 'True'}:")
        self.write_line(f"    {name} = {validate}({name})")

    def write_ending(self) -> None:
        """Write the return of the call's result, and of its failure."""
        make_result = self.bind_value("GraphResult", GraphResult)
        layout = self.bind_value("layout", self._result_layout)
        self.write_line(f"return {make_result}({layout}, ({self.result_expression()}))")
        self.base_depth = self.depth = 1
        error = self.unique_name("error")
        self.write_line(f"except {self.bind_value('Exception', Exception)} as {error}:")
        self.write_line(f"    return {self.failed_name}({error})")


def _validate(graph: str, graph_input: GraphInput, validator: TypeValidator, value: Any) -> Any:
    """Return the value of an input, converted if needed; RequestError if it is missing or of another type."""
    if value is None:
        if graph_input.required:
            raise _missing_input_error(graph, graph_input)
        return [] if graph_input.is_window else None
    try:
        return validator.validate(value)
    except TypeMismatchError as error:
        message = f"input '{graph_input.name}' of graph '{graph}': {error}"
        raise RequestError(message, code="invalid_input", input=graph_input.name) from error


def _missing_input_error(graph: str, graph_input: GraphInput) -> RequestError:
    needed = f"input '{graph_input.name}' ({label(graph_input.annotation)}); pass {graph_input.name}=..."
    message = f"graph '{graph}' cannot run without {needed}"
    return RequestError(message, code="missing_input", input=graph_input.name)


def _reject_unknown(graph: str, inputs: Collection[str], unknown: dict[str, Any]) -> None:
    name = next(iter(unknown))
    message = f"graph '{graph}' has no input '{name}'{did_you_mean(name, inputs)}; it has {sorted(inputs)}"
    raise RequestError(message, code="unknown_input", input=name)


def _make_context(origin: ContextOrigin, *values: Any) -> FiringContext:
    consumed = [(index, value) for index, value in enumerate(values) if value is not None]
    return FiringContext(origin, "", 0, consumed)
