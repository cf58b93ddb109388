"""Masking: a secret is in no text that leaves it, in whatever pieces the text arrives."""

import json
import re
from itertools import pairwise
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernel.masking import MASKED, MaskedStream, SecretMask

SECRET = "pa\"ss'w\\ö rd\n-----second line-----"


def masking(*secrets: str) -> SecretMask:
    """Return a mask of some secrets."""
    mask = SecretMask()
    for secret in secrets:
        mask.add(secret)
    return mask


def test_a_secret_is_masked_as_python_json_and_urls_write_it() -> None:
    """S-6."""
    mask = masking(SECRET)
    for written in (SECRET, repr(SECRET), json.dumps(SECRET), json.dumps(SECRET, ensure_ascii=False), quote(SECRET)):
        masked = mask.mask(f"before {written} after")
        assert MASKED in masked
        assert "second line" not in masked
        assert masked.startswith("before ")
        assert masked.endswith(" after")


def test_each_line_of_a_long_secret_is_masked() -> None:
    """S-6: a private key that is printed line by line."""
    assert masking(SECRET).mask("x -----second line----- y") == f"x {MASKED} y"


def test_an_empty_mask_changes_nothing() -> None:
    """A short text would hide every other word: it is not masked."""
    mask = masking("", "abc")
    assert mask.is_empty
    assert mask.mask("abc") == "abc"


def test_the_longest_secret_counts() -> None:
    assert masking("token", "token-of-ada").mask("token-of-ada token") == f"{MASKED} {MASKED}"


def test_values_are_masked_at_any_depth() -> None:
    """S-6: the fields of a log record."""
    value = {"a token": ["x token", {"deep": ("token", 1, None)}]}
    assert masking("token").mask_value(value) == {f"a {MASKED}": [f"x {MASKED}", {"deep": [MASKED, 1, None]}]}


PIECES = [b"secret-1", b"secret-1234", b"secr", b"et-1", b"t-99", b"s", b"e", b"\n", b"23", b"-", b"4"]
pieces = st.lists(st.sampled_from(PIECES))


@given(pieces=pieces, data=st.data())
def test_a_secret_is_masked_across_the_borders_of_chunks(pieces: list[bytes], data: st.DataObject) -> None:
    """S-6: what comes out is what masking the whole text gives, however it is cut."""
    text = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    stream = MaskedStream(masking("secret-1", "secret-1234", "t-99", "4sec"))
    edges = [0, *cuts, len(text)]
    out = b"".join(stream.feed(text[start:end]) for start, end in pairwise(edges))
    out += stream.flush()
    assert out == re.sub(b"secret-1234|secret-1|t-99|4sec", MASKED.encode(), text)


def test_only_a_beginning_of_a_secret_is_held_back() -> None:
    """Lines appear as they are printed."""
    stream = MaskedStream(masking("secret-1"))
    assert stream.feed(b"hello\nsec") == b"hello\n"
    assert stream.feed(b"ond\n") == b"second\n"
    assert stream.flush() == b""
