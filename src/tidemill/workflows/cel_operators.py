"""Operators of expressions that behave as in Python: whole numbers and others mix, and NaN is neither more nor less.

CEL itself compares NaN with an error, and does not multiply a price by two unless that is written 2.0. Expressions are
rewritten to call these functions instead.
"""

import operator
from collections.abc import Callable
from typing import Any

OPERATOR_FUNCTIONS = {
    "<": "_less",
    "<=": "_less_or_equal",
    ">": "_greater",
    ">=": "_greater_or_equal",
    "+": "_add",
    "-": "_subtract",
    "*": "_multiply",
    "/": "_divide",
    "%": "_modulo",
}
"""The names of the functions that replace operators."""

_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def build_operators(on_error: Callable[[Exception], None]) -> dict[str, Callable[[Any, Any], Any]]:
    """Return the functions by name; `on_error` gets the errors that they raise, which the library turns into texts."""
    functions = {**{sign: _checked(sign, call) for sign, call in _PYTHON.items()}, "/": _divide, "%": _modulo}
    return {OPERATOR_FUNCTIONS[sign]: _reporting(call, on_error) for sign, call in functions.items()}


def _checked(sign: str, call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return an operator for operands of one kind: in Python, True is a number, and a text can be multiplied."""

    def checked(left: Any, right: Any) -> Any:
        if not _is_number(left) or not _is_number(right):
            is_like = isinstance(left, bool) is isinstance(right, bool)
            if not is_like or (sign == "*") or (sign != "+" and isinstance(left, list)):
                raise _mismatch(sign, left, right)
        try:
            return call(left, right)
        except TypeError as error:
            raise _mismatch(sign, left, right) from error

    return checked


def _divide(left: Any, right: Any) -> Any:
    """Divide: whole numbers as in CEL, without a rest; others as floats."""
    if not (_is_number(left) and _is_number(right)):
        raise _mismatch("/", left, right)
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) is (right < 0) else -quotient
    return left / right


def _modulo(left: Any, right: Any) -> Any:
    if not (_is_number(left) and _is_number(right)):
        raise _mismatch("%", left, right)
    if isinstance(left, int) and isinstance(right, int):
        return left - right * _divide(left, right)
    return left % right


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mismatch(sign: str, left: Any, right: Any) -> TypeError:
    return TypeError(f"'{sign}' is not defined for {type(left).__name__} and {type(right).__name__}")


def _reporting(call: Callable[[Any, Any], Any], on_error: Callable[[Exception], None]) -> Callable[[Any, Any], Any]:
    def report(left: Any, right: Any) -> Any:
        try:
            return call(left, right)
        except (TypeError, ArithmeticError) as error:
            on_error(error)
            raise

    return report
