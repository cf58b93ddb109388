"""Declared waits: the function of a task that asks, made of the author's function, which says what is asked."""

import inspect
from collections.abc import Mapping
from functools import partial, update_wrapper
from typing import Any

from tidemill.annotations.context import Context
from tidemill.annotations.signatures import AuthorFunction, Parameter
from tidemill.annotations.variants import union_members
from tidemill.kernel.errors import DefinitionError, Problem, RequestError
from tidemill.workflows.task_waits import make_request

OWN_CONTEXT = "context_of_wait"
"""The parameter for the context, if the author's function takes none."""


def make_wait_function(
    function: AuthorFunction, annotation: Any, options: Mapping[str, Any], workflow: str
) -> AuthorFunction:
    """Return the function of a task that asks; DefinitionError if the options do not fit the type."""
    problems = list(function.signature().problems)
    try:
        make_request(function.name, 1, annotation, **options)
    except (TypeError, ValueError, RequestError) as error:
        message = f"wait '{function.name}': {error}"
        problems.append(Problem(message=message, location=function.location, node=function.name))
    if problems:
        raise DefinitionError(problems, f"workflow '{workflow}'")
    return _wrap(function, annotation, options)


def _wrap(function: AuthorFunction, annotation: Any, options: Mapping[str, Any]) -> AuthorFunction:
    given = function.signature().parameters
    own = next((one.name for one in given if Context in union_members(one.annotation)), None)
    shown = given if own is not None else (*given, Parameter(name=OWN_CONTEXT, annotation=Context))
    name, call = function.name, function.call

    def arguments(values: dict[str, Any]) -> tuple[Any, Any]:
        context = values.pop(OWN_CONTEXT) if own is None else values[own]
        return context, partial(call, **values)

    async def ask_on_loop(**values: Any) -> Any:
        context, say = arguments(values)
        return await context.ask(name, annotation, say, **options)

    def ask(**values: Any) -> Any:
        context, say = arguments(values)
        return context.ask(name, annotation, say, **options)

    wrapper: Any = update_wrapper(ask_on_loop if function.is_async else ask, call)
    wrapper.__annotations__ = {one.name: one.annotation for one in shown} | {"return": annotation}
    wrapper.__signature__ = inspect.Signature([_to_keyword(one) for one in shown])
    return AuthorFunction(call=wrapper, location=function.location)


def _to_keyword(one: Parameter) -> inspect.Parameter:
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.annotation)
