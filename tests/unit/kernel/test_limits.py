"""Limits of names and texts that every store can hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernel.limits import MAX_WORD_LENGTH, is_name, is_word, make_storable

ODD = ["", " ", "a\nb", "x" * 1000, "a\0b", "half \ud800", " a", "a ", "\t", "\x7f", None, 3, b"a"]


@pytest.mark.parametrize("value", ODD)
def test_a_value_that_cannot_be_printed_is_not_a_word(value: object) -> None:
    """W-5: a name that breaks some store, or the line it is printed in, is rejected where it is declared."""
    assert not is_word(value)
    assert not is_name(value)


@pytest.mark.parametrize("value", ["a", "täglich", "日次", "daily report", "a-b.c@d", "x" * MAX_WORD_LENGTH])
def test_names_may_be_in_any_language(value: str) -> None:
    assert is_word(value)
    assert is_name(value)


def test_a_name_stays_unambiguous_beside_its_tenant() -> None:
    """S-1: `tenant/name`."""
    assert is_word("a/b")
    assert not is_name("a/b")


@given(st.text(st.characters(codec=None)))
def test_every_text_can_be_made_storable(text: str) -> None:
    """Only lone surrogates and NUL, which some store cannot hold, are replaced."""
    storable = make_storable(text)
    assert "\0" not in storable
    assert make_storable(storable) == storable
    assert storable.encode().decode() == storable
    if not any(one == "\0" or "\ud800" <= one <= "\udfff" for one in text):
        assert storable == text
