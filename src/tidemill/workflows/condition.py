"""Conditions: what `when=` of tm.on_firing says about a firing, in the Common Expression Language.

The language is imported when a first expression is read: a node without any never pays for it.
"""

import importlib
import re
from collections.abc import Mapping
from typing import Any

from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.errors import OperationError
from tidemill.kernel.suggestions import did_you_mean

VARIABLES = ("payload", "reactor", "tenant")

_TYPES = frozenset(
    ["bool", "bytes", "double", "duration", "int", "list", "map", "null_type", "string", "timestamp", "type", "uint"]
)
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
        unknown = sorted(set(self._program.variables()) - {*VARIABLES, *_TYPES, *bound})
        if unknown:
            raise ValueError(f"there is {_listing(unknown)}; it may use {', '.join(VARIABLES)}")

    def holds(self, payload: Mapping[str, Any], reactor: str, tenant: str) -> bool:
        """Return whether it holds for a firing; OperationError if that cannot be told."""
        try:
            answer = self._program.execute({"payload": dict(payload), "reactor": reactor, "tenant": tenant})
        except AUTHOR_ERRORS as error:  # author code: a payload may lack what the expression asks for
            raise OperationError(f"when={self.text!r} failed: {_short(error)}") from error
        if not isinstance(answer, bool):
            raise OperationError(f"when={self.text!r} gave {answer!r}, neither true nor false")
        return answer


def _what_is_wrong(said: str) -> str:
    found = _PLACE.search(said)
    return f"at {found['place']}: {found['said']}" if found else said


def _listing(unknown: list[str]) -> str:
    return " and ".join(f"no variable '{name}'{did_you_mean(name, VARIABLES)}" for name in unknown)


def _short(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"there is no {error}"
    return describe(error).partition("\n")[0].partition(". ")[0]
