"""Conditions on firings: `when=` of tm.on_firing, written in the Common Expression Language (CEL).

The language is imported when the first expression is compiled, so that a node without expressions does not pay for it.
"""

import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import permutations
from typing import Any

from msgspec.structs import fields

from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.errors import Location, OperationError, Problem
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.definition import OnFiring, Params

CEL_VARIABLES = ("payload", "reactor", "tenant")

_CEL_TYPES = frozenset(
    ["bool", "bytes", "double", "duration", "int", "list", "map", "null_type", "string", "timestamp", "type", "uint"]
)
_CEL_NAMESPACES = frozenset(["optional"])
"""Prefixes of functions, as in `optional.of(1)`."""
_SAMPLE_VALUES = (
    "'a'",
    "1",
    "[1]",
    "{'a': 1}",
    "timestamp('2026-01-01T00:00:00Z')",
    "duration('1s')",
    "optional.of(1)",
    "1.5",
    "1u",
    "true",
    "null",
    "b'a'",
)
"""One value of every type, to probe functions with."""
_FUNCTION_NAME = re.compile(r"[A-Za-z]\w*")
"""The names of functions that authors can call; operators are functions too."""
_MACRO_BINDING = re.compile(r"\.\s*[a-z]\w*\(\s*(?P<first>[A-Za-z_]\w*)\s*,(?:\s*(?P<second>[A-Za-z_]\w*)\s*,)?")
"""The names that a macro binds for its own body: `x` in `payload.all(x, x > 1)`."""
_PARSE_ERROR = re.compile(r"ERROR: <input>:(?P<position>\d+:\d+): (?P<message>.*)")


class Condition:
    """A compiled expression about a firing. The constructor raises ValueError with what is wrong with the text."""

    __slots__ = ("_program", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._program = _cel().compile(text)
        except AUTHOR_ERRORS as error:  # author code: the parser may raise anything
            raise ValueError(_format_parse_error(str(error))) from None
        bound = {name for match in _MACRO_BINDING.finditer(text) for name in match.groups() if name}
        used = set(self._program.variables())
        unknown = sorted(used - {*CEL_VARIABLES, *_CEL_TYPES, *_CEL_NAMESPACES, *bound})
        if unknown:
            raise ValueError(f"there is {_format_unknown(unknown)}; it may use {', '.join(CEL_VARIABLES)}")
        for name in self._program.functions():
            if _FUNCTION_NAME.fullmatch(name) and not _is_function(name):
                raise ValueError(f"there is no function '{name}'")
        if used.isdisjoint(CEL_VARIABLES):
            self._check_constant()

    def _check_constant(self) -> None:
        """Raise ValueError if an expression without variables fails or gives no bool: it would for every firing."""
        try:
            answer = self._program.execute({})
        except AUTHOR_ERRORS as error:  # author code: the expression may raise anything
            raise ValueError(f"it fails for every firing: {_short_error(error)}") from None
        if not isinstance(answer, bool):
            raise ValueError(f"it gives {answer!r} for every firing, neither true nor false")

    def holds(self, payload: Mapping[str, Any], reactor: str, tenant: str) -> bool:
        """Return whether it holds for a firing; raise OperationError if it fails or is not a bool."""
        try:
            answer = self._program.execute({"payload": dict(payload), "reactor": reactor, "tenant": tenant})
        except AUTHOR_ERRORS as error:  # author code: the payload may lack a field that the expression reads
            raise OperationError(f"when={self.text!r} failed: {_short_error(error)}") from error
        if not isinstance(answer, bool):
            raise OperationError(f"when={self.text!r} gave {answer!r}, neither true nor false")
        return answer


def _cel() -> Any:
    """Import the language; raise OperationError if a file of the author has its name."""
    cel = importlib.import_module("cel")
    if not hasattr(cel, "compile"):
        message = f"when= needs the installed module 'cel', but {cel.__file__} is imported in its place: rename it"
        raise OperationError(message)
    return cel


@cache
def _is_function(name: str) -> bool:
    """Return whether the language has a function of that name. It can only be found out by calling it."""
    return any(_is_known_call(call, name) for call in _sample_calls(name)) or any(
        _is_known_call(f"{space}.{name}({arguments})", name, space)
        for space in _CEL_NAMESPACES
        for arguments in ("", "1")
    )


def _sample_calls(name: str) -> Iterator[str]:
    """Yield calls with different numbers and types of arguments, the likeliest first."""
    for one in _SAMPLE_VALUES:
        yield f"({one}).{name}()"
        yield f"({one}).{name}({one})"
        yield f"({one}).{name}({one}, {one})"
        yield from (f"{name}({', '.join([one] * count)})" for count in (1, 2, 3))
    yield f"{name}()"
    for one, other in permutations(_SAMPLE_VALUES, 2):
        yield f"({one}).{name}({other})"
        yield f"{name}({one}, {other})"


def _is_known_call(text: str, *names: str) -> bool:
    """Return whether a call names an existing function, even if the call fails."""
    try:
        _cel().evaluate(text, {})
    except AUTHOR_ERRORS as error:  # the language may raise anything
        return not any(f"Undefined variable or function: '{name}'" in str(error) for name in names)
    return True


def _format_parse_error(text: str) -> str:
    match = _PARSE_ERROR.search(text)
    return f"at {match['position']}: {match['message']}" if match else text


def _format_unknown(unknown: list[str]) -> str:
    return " and ".join(f"no variable '{name}'{did_you_mean(name, CEL_VARIABLES)}" for name in unknown)


def _short_error(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"there is no {error}"
    return describe(error).partition("\n")[0].partition(". ")[0]


FIRING_PARAM_NAMES = ("payload", "firing_id")
"""The params of a run that a firing starts."""


def build_firing_params(
    params_class: type[Params] | None, payload: Mapping[str, Any], firing_id: str
) -> dict[str, Any]:
    """Return the params of a run that a firing starts: those that its workflow declares, or all."""
    values = {"payload": dict(payload), "firing_id": firing_id}
    if params_class is None:
        return values
    return {name: values[name] for name in FIRING_PARAM_NAMES if name in _field_names(params_class)}


def firing_problems(
    triggers: Iterable[object], params: type[Params] | None, location: Location | None
) -> Iterator[Problem]:
    """Yield everything that keeps firings from starting a workflow."""
    subscriptions = [one for one in triggers if isinstance(one, OnFiring)]
    for message in (*_expression_problems(subscriptions), *_param_problems(params if subscriptions else None)):
        yield Problem(message=message, location=location)


def _expression_problems(subscriptions: list[OnFiring]) -> Iterator[str]:
    seen: set[str] = set()
    for one in subscriptions:
        if one.reactor in seen:
            yield f"on_firing({one.reactor!r}) is there twice: join the expressions with ||"
        seen.add(one.reactor)
        try:
            if one.when is not None:
                Condition(one.when)
        except ValueError as error:
            yield f"on_firing({one.reactor!r}, when={one.when!r}): {error}"


def _param_problems(params_class: type[Params] | None) -> Iterator[str]:
    for field in fields(params_class) if params_class is not None else ():
        if field.required and field.name not in FIRING_PARAM_NAMES:
            yield (
                f"a firing gives {' and '.join(FIRING_PARAM_NAMES)}, and not the param '{field.name}': give "
                "that one a default"
            )


def _field_names(params_class: type[Params]) -> set[str]:
    return {field.name for field in fields(params_class)}
