"""How WebSocket connections end: the close codes, and the exceptions that end a connection from any of its tasks."""

from enum import IntEnum

from tidemill.api.errors import code_and_status, detail_of
from tidemill.kernel.errors import TidemillError

MAX_REASON_BYTES = 123
"""Bytes that the protocol allows for the reason of a close."""


class CloseCode(IntEnum):
    """Why the server closes a connection. Before any of them, everything that was acknowledged is done."""

    NORMAL = 1000
    FAILED = 1011
    RESTART = 1012
    TRY_AGAIN = 1013
    BAD_FRAME = 4400
    NO_KEY = 4401
    NOT_ALLOWED = 4403
    UNKNOWN = 4404
    TOO_SLOW = 4408
    UNLOADED = 4409
    WRONG_SUBPROTOCOL = 4426


class CloseError(Exception):
    """Closes the connection in whose task it is raised."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = shorten(reason)


class ClientGoneError(Exception):
    """The client has closed the connection, or it was lost."""


def close_for(error: TidemillError) -> CloseError:
    """Return how a connection ends that cannot go on because of an error: 4000 and its HTTP status."""
    _, status = code_and_status(error)
    if status >= 500:
        return CloseError(CloseCode.TRY_AGAIN if status == 503 else CloseCode.FAILED, detail_of(error))
    return CloseError(4000 + status, detail_of(error))


def bad_frame(reason: str) -> CloseError:
    """Return how a connection ends whose client has sent something that is not a frame."""
    return CloseError(CloseCode.BAD_FRAME, reason)


def shorten(reason: str) -> str:
    """Return as much of a reason as the protocol allows."""
    encoded = reason.encode("utf-8", "replace")
    if len(encoded) <= MAX_REASON_BYTES:
        return encoded.decode()
    return encoded[: MAX_REASON_BYTES - 3].decode("utf-8", "ignore") + "..."
