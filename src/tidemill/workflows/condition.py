"""Conditions: what `when=` of tm.on_firing says about a firing, in the Common Expression Language.

The language is imported when a first expression is read: a node without any never pays for it.
"""

import importlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import permutations
from typing import Any

from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.errors import OperationError
from tidemill.kernel.suggestions import did_you_mean

VARIABLES = ("payload", "reactor", "tenant")

_TYPES = frozenset(
    ["bool", "bytes", "double", "duration", "int", "list", "map", "null_type", "string", "timestamp", "type", "uint"]
)
_SPACES = frozenset(["optional"])
"""Names in front of functions, `optional.of(1)`."""
_SAMPLES = (
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
"""A value of every type, to try functions with."""
_FUNCTION = re.compile(r"[A-Za-z]\w*")
"""What authors call by its name; operators are functions too."""
_BINDING = re.compile(r"\.\s*[a-z]\w*\(\s*(?P<first>[A-Za-z_]\w*)\s*,(?:\s*(?P<second>[A-Za-z_]\w*)\s*,)?")
"""The names that a macro binds for its own body: `x` in `payload.all(x, x > 1)`."""
_PLACE = re.compile(r"ERROR: <input>:(?P<place>\d+:\d+): (?P<said>.*)")


class Condition:
    """An expression that holds for a firing, or does not; ValueError says what is wrong with its text."""

    __slots__ = ("_program", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._program = importlib.import_module("cel").compile(text)
        except AUTHOR_ERRORS as error:  # author code: whatever the parser makes of it
            raise ValueError(_what_is_wrong(str(error))) from None
        bound = {name for found in _BINDING.finditer(text) for name in found.groups() if name}
        used = set(self._program.variables())
        unknown = sorted(used - {*VARIABLES, *_TYPES, *_SPACES, *bound})
        if unknown:
            raise ValueError(f"there is {_listing(unknown)}; it may use {', '.join(VARIABLES)}")
        for name in self._program.functions():
            if _FUNCTION.fullmatch(name) and not _is_function(name):
                raise ValueError(f"there is no function '{name}'")
        if used.isdisjoint(VARIABLES):
            self._check_constant()

    def _check_constant(self) -> None:
        """Raise a ValueError if an expression that depends on nothing is wrong, as it then always is."""
        try:
            answer = self._program.execute({})
        except AUTHOR_ERRORS as error:  # author code: whatever the expression comes to
            raise ValueError(f"it fails for every firing: {_short(error)}") from None
        if not isinstance(answer, bool):
            raise ValueError(f"it gives {answer!r} for every firing, neither true nor false")

    def holds(self, payload: Mapping[str, Any], reactor: str, tenant: str) -> bool:
        """Return whether it holds for a firing; OperationError if that cannot be told."""
        try:
            answer = self._program.execute({"payload": dict(payload), "reactor": reactor, "tenant": tenant})
        except AUTHOR_ERRORS as error:  # author code: a payload may lack what the expression asks for
            raise OperationError(f"when={self.text!r} failed: {_short(error)}") from error
        if not isinstance(answer, bool):
            raise OperationError(f"when={self.text!r} gave {answer!r}, neither true nor false")
        return answer


@cache
def _is_function(name: str) -> bool:
    """Return whether the language has a function of that name, for whatever types: it tells only of calls."""
    return any(_is_call(call, name) for call in _calls(name)) or any(
        _is_call(f"{space}.{name}({given})", name, space) for space in _SPACES for given in ("", "1")
    )


def _calls(name: str) -> Iterator[str]:
    """Yield calls with few and with many kinds of arguments, the likeliest first."""
    for one in _SAMPLES:
        yield f"({one}).{name}()"
        yield f"({one}).{name}({one})"
        yield f"({one}).{name}({one}, {one})"
        yield from (f"{name}({', '.join([one] * count)})" for count in (1, 2, 3))
    yield f"{name}()"
    for one, other in permutations(_SAMPLES, 2):
        yield f"({one}).{name}({other})"
        yield f"{name}({one}, {other})"


def _is_call(text: str, *names: str) -> bool:
    """Return whether a call is one of something that there is, whether or not it comes to an end."""
    try:
        importlib.import_module("cel").evaluate(text, {})
    except AUTHOR_ERRORS as error:  # the language raises whatever it likes
        return not any(f"Undefined variable or function: '{name}'" in str(error) for name in names)
    return True


def _what_is_wrong(said: str) -> str:
    found = _PLACE.search(said)
    return f"at {found['place']}: {found['said']}" if found else said


def _listing(unknown: list[str]) -> str:
    return " and ".join(f"no variable '{name}'{did_you_mean(name, VARIABLES)}" for name in unknown)


def _short(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"there is no {error}"
    return describe(error).partition("\n")[0].partition(". ")[0]
