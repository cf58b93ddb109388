"""The JSON form and the text of keys."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemill.graphs.key_forms import MAX_KEY_DEPTH, format_key, key_from_json, key_to_json, parse_key
from tidemill.kernel.errors import RequestError

PLAIN = st.text() | st.integers(-(2**63), 2**64 - 1) | st.binary()
KEYS = st.recursive(PLAIN, lambda inner: st.lists(inner, min_size=1, max_size=4).map(tuple), max_leaves=8)


@given(KEYS)
@example("42")
@example(" 42")
@example('"A"')
@example('["A"]')
@example('{"bytes": "QQ=="}')
@example("null")
@example("")
def test_the_text_of_a_key_names_it_and_no_other(key: Any) -> None:
    assert parse_key(format_key(key)) == key
    assert key_from_json(key_to_json(key)) == key
    assert key_to_json(key_to_json(key)) == key_to_json(key)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("BTC", "BTC"),
        ("42", 42),
        ('"42"', "42"),
        ('["XETRA",7]', ("XETRA", 7)),
        ('{"bytes":"AAE="}', b"\x00\x01"),
        ("true", "true"),
        ("1.5", "1.5"),
        ("007", "007"),
        ('{"bytes":"?"}', '{"bytes":"?"}'),
        ("[" * 5000, "[" * 5000),
    ],
)
def test_text_is_itself_unless_it_is_the_json_of_a_key(text: str, key: Any) -> None:
    assert parse_key(text) == key


def test_text_needs_quotes_only_where_it_would_be_another_key() -> None:
    assert [format_key(key) for key in ("BTC", "42", 42, ("A", b"\x00"))] == [
        "BTC",
        '"42"',
        "42",
        '["A",{"bytes":"AA=="}]',
    ]


def test_lists_within_lists_have_a_limit() -> None:
    with pytest.raises(RequestError, match="32 lists within lists"):
        parse_key("[" * (MAX_KEY_DEPTH + 1) + "]" * (MAX_KEY_DEPTH + 1))
