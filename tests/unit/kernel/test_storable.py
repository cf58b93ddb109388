"""What every store can hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernel.limits import MAX_WORD_LENGTH, is_name, is_word, make_storable

ODD = ["", " ", "a\nb", "x" * 1000, "a\0b", "half \ud800", " a", "a ", "\t", "\x7f", None, 3, b"a"]


@pytest.mark.parametrize("value", ODD)
def test_what_cannot_be_told_is_no_word(value: object) -> None:
    """W-5: a name that breaks some store, or the line that it is printed in, is refused where it is given."""
    assert not is_word(value)
    assert not is_name(value)


@pytest.mark.parametrize("value", ["a", "täglich", "日次", "daily report", "a-b.c@d", "x" * MAX_WORD_LENGTH])
def test_names_may_be_in_any_language(value: str) -> None:
    assert is_word(value)
    assert is_name(value)


def test_a_name_stays_whole_beside_its_tenant() -> None:
    """S-1: `tenant/name`."""
    assert is_word("a/b")
    assert not is_name("a/b")


@given(st.text(st.characters(codec=None)))
def test_a_text_can_be_held_and_stays_as_it_is_then(text: str) -> None:
    """Half a character and NUL are what some store cannot hold; nothing else is touched."""
    held = make_storable(text)
    assert "\0" not in held
    assert make_storable(held) == held
    assert held.encode().decode() == held
    if not any(one == "\0" or "\ud800" <= one <= "\udfff" for one in text):
        assert held == text
