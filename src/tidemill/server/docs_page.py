"""The page that shows the OpenAPI document: one file, which loads nothing from outside."""

from functools import cache
from importlib.resources import files

DOCS_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy of the page: its own inline script may fetch the document from this server."""


@cache
def read_docs_page() -> str:
    """Return the page."""
    return (files("tidemill.server") / "static" / "api_docs.html").read_text(encoding="utf-8")
