"""Sanitizing text that comes from packages."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernel.errors import DefinitionError, Location, Problem, StoreError
from tidemill.packages.sanitizing import append_last_lines, fingerprint, sanitize, sanitize_error, sanitize_problem


@given(st.text())
def test_a_sanitized_text_has_no_control_characters_and_no_lines_of_its_own(text: str) -> None:
    """P-10: and what is harmless stays as it is."""
    first, *more = sanitize(text).split("\n")
    assert first.isprintable()
    assert all(line.isprintable() and line.startswith("    ") for line in more)
    assert sanitize(sanitize(text)) == sanitize(text)


def test_printable_text_is_kept() -> None:
    """P-10: all that can be read, in its lines and with its indents."""
    assert (
        sanitize("größer\r\x1b[2Jas\n      deep\n\nno\N{RIGHT-TO-LEFT OVERRIDE}")
        == "größer\n    ·[2Jas\n      deep\n    no·"
    )
    problem = Problem(message="a\tb", location=Location("x\x1b.py", 3))
    assert str(sanitize_problem(problem)) == "x·.py:3: a·b"


def test_errors_keep_their_message_and_problems() -> None:
    """P-10: problems one by one, and what is no error of ours with its kind."""
    problems = (Problem(message="one\x07"), Problem(message="two"))
    reason, found = sanitize_error(DefinitionError(problems, "package 'a'"))
    assert reason == "package 'a' has 2 problems:\n  1. one·\n  2. two"
    assert [one.message for one in found] == ["one·", "two"]
    assert sanitize_error(StoreError("away\nnow")) == ("away\n    now", ())
    assert sanitize_error(KeyError("\x1b")) == ("KeyError: '\\x1b'", ())


def test_a_fingerprint_is_the_same_for_the_same_error() -> None:
    """P-12: numbers, addresses and what was printed change from try to try."""
    first = append_last_lines("a.py:3: <Lock at 0x7fa0> after 12.5 s", ["10:00"])
    again = append_last_lines("a.py:4: <Lock at 0x7fb8> after 11.9 s", ["10:01", "more"])
    assert first == "a.py:3: <Lock at 0x7fa0> after 12.5 s; the last that it printed:\n    10:00"
    assert fingerprint(first) == fingerprint(again) != fingerprint("a.py:3: <Lock at 0x7fa0> after 12.5 h")
