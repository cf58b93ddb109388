"""Outbound requests to addresses that come from configuration or from an issuer's answers.

Such an address must not make the server reach into its own network: each name is resolved once, only public addresses
are used unless the operator allows others, the connection goes to the checked address, and redirects are not followed.
"""

import asyncio
import socket
from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from tidemill.kernel.errors import OperationError

if TYPE_CHECKING:
    import httpx

TIMEOUT = 5.0  # seconds
ANSWER_LIMIT = 1024 * 1024  # bytes


class OutboundClient:
    """Fetches JSON from other servers."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private

    async def get(self, url: str) -> dict[str, Any]:
        """Return the JSON object at a URL."""
        return await self._fetch("GET", url, None)

    async def post(self, url: str, form: Mapping[str, str]) -> dict[str, Any]:
        """Send a form, and return the JSON object of the answer."""
        return await self._fetch("POST", url, form)

    async def _fetch(self, method: str, url: str, form: Mapping[str, str] | None) -> dict[str, Any]:
        import httpx  # on use: few servers have an issuer

        host, pinned = await self._pin(url)
        try:
            async with (
                asyncio.timeout(TIMEOUT),
                httpx.AsyncClient(follow_redirects=False, timeout=TIMEOUT, trust_env=False) as client,
                client.stream(
                    method,
                    pinned,
                    data=form,
                    headers={"host": urlsplit(url).netloc, "accept": "application/json"},
                    extensions={"sni_hostname": host},
                ) as answer,
            ):
                body = await _read_limited(answer, url)
        except (httpx.HTTPError, TimeoutError) as error:
            raise OperationError(f"{url} cannot be reached: {error or 'no answer in time'}") from error
        if answer.status_code != httpx.codes.OK:
            raise OperationError(f"{url} answered with status {answer.status_code}; redirects are not followed")
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise OperationError(f"{url} answered with something else than a JSON object") from error

    async def _pin(self, url: str) -> tuple[str, "httpx.URL"]:
        """Return the host of a URL, and the URL with the address that it was resolved to."""
        import httpx  # on use: as above

        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme != "https" and not (self._allow_private and parts.scheme == "http"):
            raise OperationError(f"{url} is not an https address")
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, parts.port or 443, type=socket.SOCK_STREAM)
        except OSError as error:
            raise OperationError(f"{url}: its host cannot be resolved: {error}") from error
        address = str(found[0][4][0])
        if not self._allow_private and not all(ip_address(one[4][0]).is_global for one in found):
            raise OperationError(f"{url} leads to {address}, which is not a public address; see oidc_allow_private")
        return host, httpx.URL(url).copy_with(host=address)


async def _read_limited(answer: "httpx.Response", url: str) -> bytes:
    body = b""
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > ANSWER_LIMIT:
            raise OperationError(f"{url} answered with more than {ANSWER_LIMIT} bytes")
    return body
