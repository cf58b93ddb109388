"""The output of an importing thread is limited; that of other threads is not."""

import io
import sys
import threading

import pytest

from tidemill.packages.loading.process_guard import limiting_output


def test_only_the_thread_that_imports_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-7: others write as ever, and everything that is asked of a stream is answered by the one below."""
    below = io.StringIO()
    monkeypatch.setattr("sys.stdout", below)
    with limiting_output(5):
        print("1234", end="")
        print("567")
        sys.stdout.writelines(["lost", "too"])
        other = threading.Thread(target=print, args=["z" * 100])
        other.start()
        other.join()
        assert sys.stdout.getvalue() == below.getvalue()
    assert below.getvalue().split("\n") == [
        "12345",
        "[... the rest of what is printed at import is left out ...]",
        "z" * 100,
        "",
    ]
    assert sys.stdout is below


def test_imports_side_by_side_have_their_own_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-12: and the stream comes back when the last of them has ended."""
    below = io.StringIO()
    monkeypatch.setattr("sys.stdout", below)
    begun, ended = threading.Event(), threading.Event()

    def other() -> None:
        with limiting_output(3):
            print("abc", end="")
            begun.set()
            ended.wait(10)
            print("lost", end="")

    thread = threading.Thread(target=other)
    with limiting_output(3):
        thread.start()
        assert begun.wait(10)
        print("xyz", end="")
    assert sys.stdout is not below
    print("after", end="")
    ended.set()
    thread.join()
    assert sys.stdout is below
    assert below.getvalue().startswith("abcxyzafter\n[...")


def test_a_stream_that_other_code_sets_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is theirs; and one that is not there, as in a service without a console, is no trouble."""
    monkeypatch.setattr("sys.stderr", None)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    theirs = io.StringIO()
    with limiting_output(3):
        held, sys.stdout = sys.stdout, theirs
    assert sys.stdout is theirs
    sys.stdout = held  # as who puts back what was there
    with limiting_output(3):
        print("abcd")
    assert sys.stdout.getvalue().startswith("abc\n[...")
    assert sys.stderr is None
