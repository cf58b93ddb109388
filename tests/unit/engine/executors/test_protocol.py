"""The limits of messages between a node and its processes."""

import pytest

from tidemill.engine.workflows.executors.forkserver import child, protocol
from tidemill.workflows.attempt_results import Succeeded


def test_a_value_that_is_too_long_fails_its_task_without_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs, Executors: `TooLong`, with the size in its message."""
    monkeypatch.setattr(protocol, "FRAME_LIMIT", 1000)
    [body] = protocol.FrameDecoder().feed(child._encode_result(Succeeded(b"x" * 2000)))
    message = protocol.FROM_CHILD_DECODER.decode(body)
    assert isinstance(message, protocol.ResultMessage)
    assert message.failed is not None
    assert (message.failed.error.type, message.failed.may_retry) == ("TooLong", False)
    assert "longer than 1000" in message.failed.error.message


@pytest.mark.parametrize("text", [b"Traceback", b" indented", b"{}"])
def test_text_in_the_socket_is_detected(text: bytes) -> None:
    """W-14: read as a header, it announces more than the limit, so that the node does not wait for the rest."""
    with pytest.raises(protocol.FrameTooLongError):
        list(protocol.FrameDecoder().feed(text + b"\n\n"))
