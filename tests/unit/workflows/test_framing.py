"""What passes between a node and a process: how much at most, and what becomes of more."""

import pytest

from tidemill.engine.workflows.executors.forkserver import child
from tidemill.engine.workflows.executors.forkserver import protocol as framing
from tidemill.workflows.attempt_results import Succeeded


def test_a_value_that_is_too_long_fails_its_task_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs, Executors: `TooLong`, and what it has is told."""
    monkeypatch.setattr(framing, "FRAME_LIMIT", 1000)
    [body] = framing.FrameDecoder().feed(child._encode_result(Succeeded(b"x" * 2000)))
    told = framing.FROM_CHILD_DECODER.decode(body)
    assert isinstance(told, framing.ResultMessage)
    assert told.failed is not None
    assert (told.failed.error.type, told.failed.may_retry) == ("TooLong", False)
    assert "longer than 1000" in told.failed.error.message


@pytest.mark.parametrize("text", [b"Traceback", b" indented", b"{}"])
def test_a_text_in_the_socket_is_found_out(text: bytes) -> None:
    """W-14: it announces more than any message has, so nobody waits for the rest of it."""
    with pytest.raises(framing.FrameTooLongError):
        list(framing.FrameDecoder().feed(text + b"\n\n"))
