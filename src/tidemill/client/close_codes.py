"""The close codes of WebSocket connections, and the errors that they mean."""

from websockets.exceptions import ConnectionClosed

from tidemill.kernel.errors import NotFoundError, OperationError, RequestError, TidemillError, rebuild_request_error

_REQUEST_ERRORS = {
    4400: ("malformed_frame", 400),
    4401: ("invalid_key", 401),
    4403: ("not_allowed", 403),
    4409: ("unloaded", 409),
}
_WRONG_PROTOCOL = 4426
_NOT_FOUND = 4404


def error_of_close(closed: ConnectionClosed, kind: str, name: str) -> TidemillError | None:
    """Return the error of a connection that the server closed for good; None if it is worth connecting again."""
    code, reason = (0, "") if closed.rcvd is None else (closed.rcvd.code, closed.rcvd.reason)
    message = reason or f"the server closed the connection to {kind} '{name}' with code {code}"
    if code in _REQUEST_ERRORS:
        return rebuild_request_error(RequestError, message, *_REQUEST_ERRORS[code], {kind: name})
    if code == _NOT_FOUND:
        return rebuild_request_error(NotFoundError, message, f"{kind}_not_found", 404, {kind: name})
    return OperationError(message) if code == _WRONG_PROTOCOL else None
