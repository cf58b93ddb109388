"""The connection settings of a client: where the server is, with which key, and how patient the client is."""

from functools import cache
from ssl import SSLContext
from urllib.parse import urlsplit

import httpx

from tidemill.kernel.backoff import Retry
from tidemill.kernel.durations import Duration, parse_positive_duration
from tidemill.kernel.errors import RequestError

API_PATH = "/api/v1"
DEFAULT_TIMEOUT = "30s"
DEFAULT_RETRY = Retry(4, delay="200ms", max_delay="5s", jitter=0.2)
"""The retries of a client: four, within about three seconds, so that a server may restart unnoticed."""


class Connection:
    """The address of a server and the credentials for it. The key appears in no text that this class returns."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        tenant: str | None = None,
        timeout: Duration = DEFAULT_TIMEOUT,
        retry: Retry = DEFAULT_RETRY,
    ) -> None:
        self.url = _check_url(url)
        self.retry = retry
        self.timeout = _parse_timeout(timeout)
        self._key = key
        self._tenant = tenant

    def __repr__(self) -> str:
        return self.url

    def headers(self) -> dict[str, str]:
        """Return the headers of every request without the key, which `authorize` adds."""
        return {} if self._tenant is None else {"tidemill-tenant": self._tenant}

    def authorize(self, request: httpx.Request) -> httpx.Request:
        """Add the key to a request."""
        if self._key is not None:
            request.headers["authorization"] = f"Bearer {self._key}"
        return request

    def socket_headers(self) -> dict[str, str]:
        """Return the headers of a WebSocket handshake, with the key."""
        return self.headers() | ({} if self._key is None else {"authorization": f"Bearer {self._key}"})

    def socket_url(self, path: str) -> str:
        """Return the address of a WebSocket endpoint."""
        return f"ws{self.url.removeprefix('http')}{path}"


@cache
def tls_context() -> SSLContext:
    """Return the certificates that every client of the process trusts; to read them takes longer than a request.

    They are read once. An open client keeps its certificates anyway, so a process that has to trust a renewed bundle is
    started again, whenever its clients were made.
    """
    return httpx.create_ssl_context()


def _check_url(url: str) -> str:
    """Return the address without a slash at its end; RequestError if it is not one of a server."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise RequestError("a server has an address such as http://127.0.0.1:8080", code="invalid_url")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        message = "the address of a server has no user, password, query or fragment: the key is its own argument"
        raise RequestError(message, code="invalid_url")
    return url.rstrip("/").removesuffix(API_PATH)


def _parse_timeout(timeout: Duration) -> float:
    try:
        return parse_positive_duration(timeout)
    except ValueError as error:
        raise RequestError(f"timeout: {error}", code="invalid_timeout") from None
