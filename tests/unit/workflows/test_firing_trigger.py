"""Conditions on firings: `when=` of tm.on_firing."""

import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.kernel.errors import OperationError
from tidemill.workflows.expressions import CompiledExpression


def holds(text: str, **payload: Any) -> bool:
    """Evaluate an expression on a payload."""
    return condition(text).holds(payload, {"payload": payload, "reactor": "market", "tenant": "public"})


def condition(text: str) -> CompiledExpression:
    """Compile an expression about firings."""
    return CompiledExpression("when", text, tm.on_firing("market").variables(None))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("payload.a.bid > 100.0", True),
        ("payload.a.bid > 100", True),
        ("payload.n > 2.5", True),
        ("payload.a.bid > 101.0 || reactor == 'market'", True),
        ("tenant == 'acme'", False),
        ("has(payload.b) && payload.b == 1", False),
        ("payload.many.exists(x, x > 2)", True),
        ("payload.many.map(x, x * 2) == [2, 4, 6]", True),
        ("payload.none == null", True),
        ("payload.n == 3 ? payload.word.startsWith('h') : false", True),
    ],
)
def test_expressions(text: str, answer: bool) -> None:
    """graphs.md: over payload, reactor, tenant; whole numbers and others compare."""
    assert holds(text, a={"bid": 101.0}, n=3, many=[1, 2, 3], none=None, word="halt") is answer


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("payload.b > 1", "there is no 'b'"),
        ("payload.a > 1", "TypeError: '>' is not defined for str and int"),
        ("1 / payload.zero > 1", "ZeroDivisionError"),
        ("payload.a.matches('(')", "not a valid regex"),
        ("size(payload.zero) > 1", "Undefined variable or function: 'size'"),
        ("payload.a", "gave 'x', neither true nor false"),
    ],
)
def test_an_expression_that_fails_says_why_in_one_line(text: str, said: str) -> None:
    """Logs and `reactor.events()` show it."""
    with pytest.raises(OperationError) as caught:
        holds(text, a="x", zero=0)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("unheard_of(payload.a)", "there is no function 'unheard_of'"),
        ("payload.a.unheardOf('x') == 1", "there is no function 'unheardOf'"),
        ("true || unheard_of(1)", "there is no function 'unheard_of'"),
        ("paylod.a > 1", "there is no variable 'paylod' (did you mean 'payload'?)"),
        ("1", "it gives 1 for every firing, neither true nor false"),
        ("'x'", "it gives 'x' for every firing, neither true nor false"),
        ("null", "it gives None for every firing, neither true nor false"),
        ("1 / 0 > 1", "it fails for every firing: ZeroDivisionError"),
        ("'a'.matches('(')", "it fails for every firing: RuntimeError: Function 'matches' error"),
    ],
)
def test_what_can_never_be_right_is_refused(text: str, said: str) -> None:
    """cloacina.md 100: when it is declared, not at every firing."""
    with pytest.raises(ValueError, match=f"^{re.escape(said)}") as caught:
        condition(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "true",
        "[1, 2].all(x, x > 0)",
        "duration('1s') > duration('0s')",
        "payload.a",
        "size(payload) > 1 && payload.word.size() > 1",
        "payload.a.startsWith('x') || payload.a.endsWith('x') || payload.a.contains('x') || payload.a.matches('x')",
        "int(payload.a) + int(1.5) > 1 && uint(payload.a) > 1u && double(payload.a) > 1.0",
        "string(payload.a) == 'x' && bytes('x') == b'x' && type(payload.a) == string && dyn(1) == 1",
        "timestamp(payload.t).getFullYear() == 2026 && timestamp(payload.t).getHours('UTC') > 1",
        "duration(payload.d).getSeconds() > 1 || timestamp(payload.t).getDayOfWeek() == 1",
        "optional.of(payload.a).hasValue() && optional.none().orValue(1) == 1",
        "has(payload.a) && payload.many.exists_one(x, x > 1) && payload.many.filter(x, x > 1).map(x, x) == []",
        "payload.a in ['x'] ? payload.b : !payload.c",
    ],
)
def test_what_may_be_right_is_let_through(text: str) -> None:
    """cloacina.md 100: only expressions that can never be right are rejected; a payload may hold anything."""
    assert condition(text).text == f"when={text!r}"


@given(text=st.text(alphabet="payloadxreactor .()[]{}'\"\\|&!<>=?:,+-*/%0123456789\n", max_size=30))
def test_no_text_breaks_the_parser(text: str) -> None:
    """Any text is an expression, or raises a one-line ValueError."""
    try:
        condition(text)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_the_language_is_imported_only_for_an_expression() -> None:
    """api.md: importing tidemill takes under 60 ms."""
    program = "import sys, tidemill as tm; tm.on_firing('r', when='payload.a > 1'); print('cel' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed == "False\n"
