"""ETags: texts that change whenever what they stand for does."""

from tidemill.kernel.errors import RequestError


def has_etag(header: str, etag: str) -> bool:
    """Return whether a header such as If-None-Match names an ETag."""
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return "*" in tags or etag in tags


def check_etag(expected: str, etag: str) -> None:
    """Raise a RequestError if a caller wants to change another version than the current one, as If-Match says."""
    if not has_etag(expected, etag):
        message = f"this has changed since you read it, and has the ETag {etag} now: read it again"
        raise RequestError(message, code="stale_etag", status=412, etag=etag)
