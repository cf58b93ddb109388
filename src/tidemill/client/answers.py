"""Reads answers that are errors: the client raises what a node would raise, and knows which calls to repeat."""

from typing import Any

import msgspec
from websockets.exceptions import ConnectionClosed

from tidemill.api.errors import ProblemDetails, to_error
from tidemill.client.calls import ApiCall
from tidemill.graphs.state import ReactorState
from tidemill.kernel.backoff import Retry
from tidemill.kernel.errors import NotFoundError, OperationError, RequestError, TidemillError, rebuild_request_error

TRY_AGAIN_STATUSES = frozenset([429, 503])
"""The answers after which a request is worth repeating: the server did nothing."""
UNKNOWN_OUTCOME_STATUSES = frozenset([502, 504])
"""The answers of proxies that do not say what became of the request."""
IN_PROGRESS_CODE = "request_in_progress"
"""A server still handles the first of two equal requests: the client waits for it, however long that takes."""
MAX_RETRY_AFTER = 30.0  # seconds that a client waits at the request of a server
_REQUEST_ERRORS = {
    4400: ("malformed_frame", 400),
    4401: ("invalid_key", 401),
    4403: ("not_allowed", 403),
    4409: ("unloaded", 409),
}
"""The close codes of WebSocket connections that mean a RequestError."""
_WRONG_PROTOCOL = 4426
_NOT_FOUND = 4404


class FailedAnswer(msgspec.Struct, frozen=True):
    """An answer that is an error."""

    status: int
    error: TidemillError
    retry_after: float | None = None
    code: str | None = None

    @property
    def is_in_progress(self) -> bool:
        """Whether the server still handles the same call: another try does not count."""
        return self.code == IN_PROGRESS_CODE

    def may_repeat(self, call: ApiCall[Any]) -> bool:
        """Return whether the call may be sent again."""
        if self.status in TRY_AGAIN_STATUSES or self.is_in_progress:
            return True
        return self.status in UNKNOWN_OUTCOME_STATUSES and call.is_repeatable

    def delay(self, retry: Retry, attempts: int) -> float:
        """Return the seconds before the next try."""
        return max(retry.delay_after(attempts), min(self.retry_after or 0.0, MAX_RETRY_AFTER))


class StreamRefusedError(Exception):
    """The server answered the request for a stream with an error. Only transports see it."""

    def __init__(self, answer: FailedAnswer) -> None:
        super().__init__(str(answer.error))
        self.answer = answer


class ReactorFrame(msgspec.Struct, frozen=True):
    """A frame about a reactor: a state that is watched, or the problem of a command."""

    id: int | None = None
    state: ReactorState | None = None
    error: ProblemDetails | None = None


def read_failed_answer(url: str, status: int, body: bytes, retry_after: str | None = None) -> FailedAnswer:
    """Return an answer that is not a success, with the error to raise."""
    try:
        problem = msgspec.json.decode(body, type=ProblemDetails)
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = f"{url} answered with status {status}, and not as a Tidemill server does: check the address"
        return FailedAnswer(status, OperationError(message))
    return FailedAnswer(status, to_error(problem), _parse_seconds(retry_after), problem.code)


def read_watched_state(text: str | bytes) -> ReactorState | None:
    """Return the state in a frame; None if it only confirms the command. Raises the problem that it reports."""
    frame = msgspec.json.decode(text, type=ReactorFrame)
    if frame.error is not None:
        raise to_error(frame.error)
    return frame.state


def error_of_close(closed: ConnectionClosed, kind: str, name: str) -> TidemillError | None:
    """Return the error of a connection that the server closed for good; None if it is worth connecting again."""
    code, reason = (0, "") if closed.rcvd is None else (closed.rcvd.code, closed.rcvd.reason)
    message = reason or f"the server closed the connection to {kind} '{name}' with code {code}"
    if code in _REQUEST_ERRORS:
        return rebuild_request_error(RequestError, message, *_REQUEST_ERRORS[code], {kind: name})
    if code == _NOT_FOUND:
        return rebuild_request_error(NotFoundError, message, f"{kind}_not_found", 404, {kind: name})
    return OperationError(message) if code == _WRONG_PROTOCOL else None


def unreachable(url: str, error: Exception) -> OperationError:
    """Return the error for a server that does not answer."""
    reason = str(error) or type(error).__name__
    return OperationError(f"the server at {url} cannot be reached: {reason}; is it running?")


def _parse_seconds(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header; None for dates, which our server does not send."""
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None
