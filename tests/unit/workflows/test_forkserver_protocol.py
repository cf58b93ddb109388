"""Messages between a node and its child processes: the size limit, and messages above it."""

import pytest

from tidemill.engine.workflows.executors.forkserver import child, protocol
from tidemill.workflows.attempt_results import Succeeded


def test_a_value_that_is_too_long_fails_its_task_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs, Executors: `TooLong`, with the length in the message."""
    monkeypatch.setattr(protocol, "FRAME_LIMIT", 1000)
    [body] = protocol.FrameDecoder().feed(child._encode_result(Succeeded(b"x" * 2000)))
    message = protocol.FROM_CHILD_DECODER.decode(body)
    assert isinstance(message, protocol.ResultMessage)
    assert message.failed is not None
    assert (message.failed.error.type, message.failed.may_retry) == ("TooLong", False)
    assert "longer than 1000" in message.failed.error.message


@pytest.mark.parametrize("text", [b"Traceback", b" indented", b"{}"])
def test_a_text_in_the_socket_is_found_out(text: bytes) -> None:
    """W-14: it announces more than any message has, so the reader does not wait for the rest."""
    with pytest.raises(protocol.FrameTooLongError):
        list(protocol.FrameDecoder().feed(text + b"\n\n"))
