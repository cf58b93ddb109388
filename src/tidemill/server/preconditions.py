"""Preconditions of requests: ETags, which change whenever what they stand for does."""

from typing import Any

from litestar import Request

from tidemill.kernel.errors import RequestError


def has_etag(request: Request[Any, Any, Any], etag: str) -> bool:
    """Return whether a client has the current version already, as If-None-Match says."""
    return _names(request.headers.get("if-none-match", ""), etag)


def check_etag(request: Request[Any, Any, Any], etag: str) -> None:
    """Raise a RequestError if a client wants to change another version than the current one, as If-Match says."""
    expected = request.headers.get("if-match")
    if expected is not None and not _names(expected, etag):
        message = f"this has changed since you read it, and has the ETag {etag} now: read it again"
        raise RequestError(message, code="stale_etag", status=412, etag=etag)


def _names(header: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return "*" in tags or etag in tags
