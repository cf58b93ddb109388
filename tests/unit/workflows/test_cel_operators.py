"""Numbers in expressions compare and combine as in Python."""

import math
import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.kernel.errors import OperationError
from tidemill.workflows.cel_syntax import parse, to_text
from tidemill.workflows.expressions import CompiledExpression

COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq}

numbers = st.one_of(
    st.integers(-(2**53), 2**53),
    st.floats(allow_infinity=True, allow_nan=True),
    st.sampled_from([0, 1, 1.0, -0.0, 0.5, math.nan]),
)


def evaluate(text: str, **payload: Any) -> Any:
    """Evaluate an expression on a payload."""
    compiled = CompiledExpression("dedup", text, tm.on_firing("market").variables(None))
    return compiled.evaluate(None, {"payload": payload, "reactor": "market", "tenant": "public"})


@given(left=numbers, right=numbers, sign=st.sampled_from(sorted(COMPARISONS)))
def test_numbers_compare_as_in_python(left: float, right: float, sign: str) -> None:
    """Issue: NaN and mixed int/float."""
    assert evaluate(f"payload.a {sign} payload.b", a=left, b=right) is COMPARISONS[sign](left, right)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("payload.price * 2", 3.0),
        ("2 - payload.price", 0.5),
        ("payload.whole / 2", 3),
        ("-payload.whole / 2", -3),
        ("-payload.whole % 4", -3),
        ("payload.whole / 2.0", 3.5),
        ("payload.whole + payload.price", 8.5),
        ("'a' + payload.word", "ab"),
        ("payload.many + [3]", [1, 2, 3]),
        ("payload.many.map(x, x * payload.price)", [1.5, 3.0]),
        ("payload.price > 1 && payload.whole > 1.5", True),
        ("timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z') > duration('23h')", True),
    ],
)
def test_numbers_combine_as_in_python(text: str, result: Any) -> None:
    """Whole numbers divide as in CEL; all else mixes."""
    assert evaluate(text, price=1.5, whole=7, word="b", many=[1, 2]) == result


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("payload.word > 1", "TypeError: '>' is not defined for str and int"),
        ("payload.yes > 1", "TypeError: '>' is not defined for bool and int"),
        ("payload.word * 2", "TypeError: '*' is not defined for str and int"),
        ("payload.whole / 0", "ZeroDivisionError"),
        ("payload.whole + payload.word", "TypeError: '+' is not defined for int and str"),
    ],
)
def test_values_of_unlike_types_are_an_error(text: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """In one line, and without a log record of the library."""
    with pytest.raises(OperationError) as caught:
        evaluate(text, word="b", whole=7, yes=True)
    assert said in str(caught.value)
    assert caplog.records == []


def test_an_error_that_does_not_matter_does_not_matter() -> None:
    """As CEL says: true || error is true."""
    assert evaluate("payload.word > 1 || true", word="x") is True


@pytest.mark.parametrize(
    "text",
    [
        "a ? b : c ? d : e",
        "(a || b) && !(c - (d - e) == -f)",
        "x.all(y, y.z[0]['k'] > 1.5e3) && {'a': [1, 2u, 0xFF], b: null}.a == r'\\'",
        "has(a.b) && f(a, b.c(d))",
        "b\"x\" != '''it's''' // a comment",
    ],
)
def test_a_tree_keeps_the_meaning_of_its_text(text: str) -> None:
    """What is written from a tree has the same tree."""
    tree = parse(text)
    assert parse(to_text(tree)) == tree
