"""The context of a request: its id, which every answer and log record has."""

import logging
import re
import time
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from litestar.datastructures import MutableScopeHeaders

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID_HEADER = "x-request-id"
_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")

logger = logging.getLogger("tidemill.server")


class RequestContext:
    """Wraps the application: gives each request an id, and logs how it was answered."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Handle a connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_id = _choose_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        began, status = time.perf_counter(), 0

        async def send_with_id(message: "Message") -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.accept"):
                message.setdefault("headers", [])
                MutableScopeHeaders.from_message(message)[REQUEST_ID_HEADER] = request_id
                status = message["status"] if message["type"] == "http.response.start" else 101
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            duration = round(time.perf_counter() - began, 6)
            logger.info("request", extra=_describe(scope, status, duration, request_id))


def request_id_of(scope: "Scope") -> str:
    """Return the id of a request."""
    return str(scope["state"]["request_id"])


def _choose_id(scope: "Scope") -> str:
    """Return the caller's id of a request if it is a short, printable word, else a new one."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID_HEADER.encode():
            text = value.decode("latin-1")
            return text if _SANE_ID.fullmatch(text) else token_hex(8)
    return token_hex(8)


def _describe(scope: "Scope", status: int, duration: float, request_id: str) -> dict[str, Any]:
    """Return the fields of the log record of a request; never its query, which may hold a ticket."""
    principal = scope.get("user")
    return {
        "method": scope.get("method", "WEBSOCKET"),
        "route": scope.get("path_template", scope["path"]),
        "status": status,
        "duration": duration,
        "actor": getattr(principal, "actor", None),
        "request_id": request_id,
    }
