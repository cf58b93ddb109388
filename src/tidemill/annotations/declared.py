"""Values as functions declare to return them."""

from typing import Any, get_type_hints

from tidemill.kernel.errors import RequestError


def to_declared(value: Any, node: Any) -> Any:
    """Return a value as the type that a function declares to return; RequestError if it does not fit.

    `node` is the function, or has it: a node of a graph, a task. By a name, a value is what it is.
    """
    from tidemill.annotations.validation import TypeMismatchError, TypeValidator  # on use: help needs no validation

    if isinstance(node, str):
        return value
    function = node if callable(node) else node.function.call
    try:
        annotation = get_type_hints(function, include_extras=True).get("return", Any)
    except Exception:  # author code: annotations may hold any expression
        return value
    try:
        return TypeValidator(annotation).validate(value)
    except TypeMismatchError as error:
        message = f"the output of '{function.__name__}' is not what the function declares: {error}"
        raise RequestError(message, code="no_output", status=409) from error
