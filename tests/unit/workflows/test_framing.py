"""What passes between a node and a process: how much at most, and what becomes of more."""

import pytest

from tidemill.engine.workflows.executors import child, framing
from tidemill.workflows.endings import Succeeded


def test_a_value_that_is_too_long_fails_its_task_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs, Executors: `TooLong`, and what it has is told."""
    monkeypatch.setattr(framing, "LIMIT", 1000)
    [body] = framing.Frames().feed(child._told(Succeeded(b"x" * 2000)))
    told = framing.FROM_CHILD.decode(body)
    assert isinstance(told, framing.Told)
    assert told.failed is not None
    assert (told.failed.error.type, told.failed.may_retry) == ("TooLong", False)
    assert "longer than 1000" in told.failed.error.message


@pytest.mark.parametrize("text", [b"Traceback", b" indented", b"{}"])
def test_a_text_in_the_socket_is_found_out(text: bytes) -> None:
    """W-14: it announces more than any message has, so nobody waits for the rest of it."""
    with pytest.raises(framing.TooLongError):
        list(framing.Frames().feed(text + b"\n\n"))
