"""Expressions about firings, `when=` and `dedup=`: in the Common Expression Language (CEL), or Python functions.

The language is imported when the first expression is compiled, so that a node without expressions does not pay for it.
"""

import importlib
import inspect
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations
from typing import Any

from tidemill.annotations.signatures import inspect_signature
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.errors import OperationError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.cel_checker import KNOWN_FUNCTIONS, check_types
from tidemill.workflows.cel_operators import OPERATOR_FUNCTIONS, build_operators
from tidemill.workflows.cel_syntax import parse, to_text
from tidemill.workflows.cel_types import CelType
from tidemill.workflows.definition import Expression, describe_expression

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


class CompiledExpression:
    """A compiled expression, or a function. The constructor raises ValueError with everything that is wrong with it."""

    def __init__(self, option: str, expression: Expression, variables: Mapping[str, CelType]) -> None:
        """Compile `option=expression`; a text may use these variables, and has to agree with their types."""
        is_text = isinstance(expression, str)
        self.text = f"{option}={expression!r}" if is_text else f"{option}={describe_expression(expression)}"
        self._function = None if isinstance(expression, str) else expression
        self._program: Any = None
        if isinstance(expression, str):
            self._program = _compile_text(expression, variables, is_condition=option == "when")

    def evaluate(self, value: Any, variables: Mapping[str, Any]) -> Any:
        """Return what a function returns for a value, or a text gives for variables; OperationError if it fails."""
        try:
            return _execute(self._program, variables) if self._function is None else self._function(value)
        except AUTHOR_ERRORS as error:  # author code: what the expression reads may be missing
            raise OperationError(f"{self.text} failed: {_short_error(error)}") from error

    def holds(self, value: Any, variables: Mapping[str, Any]) -> bool:
        """Return whether a condition holds; OperationError if it fails or is neither true nor false."""
        answer = self.evaluate(value, variables)
        if not isinstance(answer, bool):
            raise OperationError(f"{self.text} gave {answer!r}, neither true nor false")
        return answer

    def find_key(self, value: Any, variables: Mapping[str, Any]) -> Any:
        """Return what a value is about; OperationError if it fails, or if a function returns None.

        A function without a `return` would make all values the same, and start one run in place of all.
        """
        key = self.evaluate(value, variables)
        if key is None and self._function is not None:
            raise OperationError(f"{self.text} gave None, and not what the value is about")
        return key


def expression_problem(option: str, given: object, example: str) -> str | None:
    """Return what is wrong with what an author passed as an expression; a text is compiled later."""
    if isinstance(given, str):
        return (
            None if given.strip() else f"{option}= is an expression such as '{example}', or a function, not {given!r}"
        )
    if not callable(given):
        return f"{option}= is an expression such as '{example}', or a function of one value, not {given!r}"
    name = describe_expression(given)
    if inspect.iscoroutinefunction(given):
        return f"{option}= takes a function that answers at once, and '{name}' is async"
    try:
        inspect_signature(given).bind(None)
    except TypeError:
        return f"{option}= takes a function of one value, which '{name}' cannot be called with"
    except ValueError:  # some functions of C modules do not tell their parameters
        return None
    return None


def _compile_text(text: str, variables: Mapping[str, CelType], *, is_condition: bool) -> Any:
    """Return a program; ValueError if it can never be right."""
    program = _compile_program(text)
    bound = {name for match in _MACRO_BINDING.finditer(text) for name in match.groups() if name}
    used = set(program.variables())
    unknown = sorted(used - {*variables, *_CEL_TYPES, *_CEL_NAMESPACES, *bound})
    if unknown:
        names = list(variables)
        raise ValueError(f"there is {_format_unknown(unknown, names)}; it may use {', '.join(names)}")
    for name in program.functions():
        if _FUNCTION_NAME.fullmatch(name) and not _is_function(name):
            raise ValueError(f"there is no function '{name}'{did_you_mean(name, KNOWN_FUNCTIONS)}")
    try:
        tree = parse(text)
    except ValueError:  # syntax that only the library knows: it is evaluated as it is
        return program
    if used.isdisjoint(variables):
        _check_constant(program, is_condition=is_condition)
    elif problems := check_types(tree, variables, is_condition=is_condition):
        raise ValueError("; ".join(problems))
    return _compile_program(to_text(tree, OPERATOR_FUNCTIONS))


def _compile_program(text: str) -> Any:
    try:
        return _cel().compile(text)
    except AUTHOR_ERRORS as error:  # author code: the parser may raise anything
        raise ValueError(_format_parse_error(str(error))) from None


def _execute(program: Any, variables: Mapping[str, Any]) -> Any:
    """Evaluate a program; an error of an operator is raised as it was, and not as the library describes it."""
    errors: list[Exception] = []
    try:
        return program.execute({**build_operators(errors.append), **variables})
    except RuntimeError as error:
        if errors and str(errors[-1]) in str(error):
            raise errors[-1] from error
        raise


def _check_constant(program: Any, *, is_condition: bool) -> None:
    """Raise ValueError if an expression without variables fails: it would for every firing."""
    try:
        answer = _execute(program, {})
    except AUTHOR_ERRORS as error:  # author code: the expression may raise anything
        raise ValueError(f"it fails for every firing: {_short_error(error)}") from None
    if is_condition and not isinstance(answer, bool):
        raise ValueError(f"it gives {answer!r} for every firing, neither true nor false")


def _cel() -> Any:
    """Import the language; raise OperationError if a file of the author has its name."""
    cel = importlib.import_module("cel")
    if not hasattr(cel, "compile"):
        message = f"when= needs the installed module 'cel', but {cel.__file__} is imported in its place: rename it"
        raise OperationError(message)
    logging.getLogger("cel").setLevel(logging.ERROR)  # it logs what it raises, and Tidemill logs that
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


def _format_unknown(unknown: Sequence[str], variables: Sequence[str]) -> str:
    return " and ".join(f"no variable '{name}'{did_you_mean(name, variables)}" for name in unknown)


def _short_error(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"there is no {error}"
    return describe(error).partition("\n")[0].partition(". ")[0]
