"""Signing in at an issuer: the authorization code flow with PKCE.

The state, the nonce and the verifier of an attempt are in a cookie of the browser that makes it, so that any server can
finish what another one has started.
"""

import base64
import hashlib
import hmac
from typing import NamedTuple
from urllib.parse import urlencode

from tidemill.access.principal import Principal
from tidemill.access.tokens import new_secret
from tidemill.kernel.errors import RequestError
from tidemill.kernel.settings import Settings
from tidemill.server.oidc.provider import OidcProvider

COOKIE_LIFETIME = 600  # seconds


class BegunLogin(NamedTuple):
    """An attempt to sign in: where to send the browser, and the cookie that it brings back."""

    url: str
    cookie: str


class OidcLogin:
    """Signs people in at an issuer."""

    def __init__(self, provider: OidcProvider, settings: Settings) -> None:
        self._provider = provider
        self._client_secret = settings.oidc_client_secret

    async def begin(self, callback: str) -> BegunLogin:
        """Begin an attempt; the issuer sends the browser back to the callback."""
        state, nonce, verifier = new_secret(), new_secret(), new_secret()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self._provider.client_id,
            "redirect_uri": callback,
            "scope": "openid",
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint = (await self._provider.endpoints()).authorization_endpoint
        separator = "&" if "?" in endpoint else "?"
        return BegunLogin(f"{endpoint}{separator}{urlencode(query)}", f"{state}.{nonce}.{verifier}")

    async def finish(self, callback: str, cookie: str, code: str, state: str) -> Principal:
        """Return the principal whom the issuer has authenticated; RequestError if this is not how it started."""
        expected, _, rest = cookie.partition(".")
        nonce, _, verifier = rest.partition(".")
        if not expected or not hmac.compare_digest(expected.encode(), state.encode()):
            message = "this attempt to sign in was not started by this browser, or too long ago: start again"
            raise RequestError(message, code="invalid_login", status=401)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": callback,
            "client_id": self._provider.client_id,
            "code_verifier": verifier,
        }
        if self._client_secret is not None:
            form["client_secret"] = self._client_secret
        answer = await self._provider.redeem_code(form)
        return await self._provider.authenticate(str(answer.get("id_token", "")), nonce)
