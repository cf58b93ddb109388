"""Answers: JSON, or msgpack for clients that accept it."""

from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Response
from litestar.enums import MediaType

from tidemill.server.requests import MSGPACK, MSGPACK_MEDIA_TYPES

if TYPE_CHECKING:
    from litestar import Litestar, Request
    from litestar.response.base import ASGIResponse


class ApiResponse(Response[Any]):
    """An answer in the format that the client accepts."""

    def to_asgi_response(
        self, app: "Litestar | None", request: "Request[Any, Any, Any]", **options: Any
    ) -> "ASGIResponse":
        """Encode the answer."""
        media_type = self.media_type or options.get("media_type") or MediaType.JSON
        has_body = self.content is not None
        if has_body and media_type == MediaType.JSON and request.headers.get("accept") in MSGPACK_MEDIA_TYPES:
            self.media_type = MSGPACK
        return super().to_asgi_response(app, request, **options)

    def render(self, content: Any, media_type: str, *args: Any) -> bytes:
        """Return the bytes of the answer."""
        return msgspec.msgpack.encode(content) if media_type == MSGPACK else super().render(content, media_type, *args)
