"""An OpenID Connect issuer on loopback, for tests of signing in."""

import base64
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import msgspec
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from tidemill.server.serving import serving

CLIENT_ID = "tidemill"
CLIENT_SECRET = "shared with the issuer"
ADA = {"sub": "ada", "tidemill_role": "write"}


class FakeIssuer:
    """Signs tokens for whom a test says, and counts what it is asked for."""

    def __init__(self) -> None:
        self.url = ""
        self.claims: dict[str, Any] = dict(ADA)
        self.requests: list[str] = []
        self.document: dict[str, Any] = {}
        self.status = 200
        self._challenges: dict[str, tuple[str, str]] = {}  # challenge and nonce, by code
        self.new_key("k1")

    def new_key(self, id: str) -> None:
        """Sign with another key from now on."""
        self.key = ECKey.generate_key("P-256", {"kid": id, "use": "sig"})

    def token(self, **changes: Any) -> str:
        """Return a signed token; a claim that is None is left out."""
        now = int(time.time())  # noqa: TID251, the server's clock is the machine's
        claims = {"iss": self.url, "aud": CLIENT_ID, "exp": now + 300, "iat": now, **self.claims, **changes}
        given = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode({"alg": "ES256", "kid": self.key.kid}, given, self.key)

    def sign_in(self, query: dict[str, list[str]]) -> str:
        """Do what a person does on the issuer's page; return the code."""
        code = f"code-{len(self._challenges)}"
        self._challenges[code] = (query["code_challenge"][0], query["nonce"][0])
        return code

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        self.requests.append(scope["path"])
        match scope["path"]:
            case "/.well-known/openid-configuration":
                names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
                found = {"issuer": self.url, **{name: f"{self.url}/{name}" for name in names}, **self.document}
            case "/jwks_uri":
                found = KeySet([self.key]).as_dict(private=False)
            case "/token_endpoint":
                found = self._redeem(parse_qs((await receive())["body"].decode()))
            case _:
                found = {}
        headers = [(b"content-type", b"application/json"), (b"location", b"http://127.0.0.1:1/")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": msgspec.json.encode(found)})

    def _redeem(self, form: dict[str, list[str]]) -> dict[str, Any]:
        challenge, nonce = self._challenges.pop(form["code"][0])
        verifier = hashlib.sha256(form["code_verifier"][0].encode()).digest()
        assert base64.urlsafe_b64encode(verifier).decode().rstrip("=") == challenge
        assert form["client_secret"] == [CLIENT_SECRET]
        return {"id_token": self.token(nonce=nonce)}


@asynccontextmanager
async def issuing() -> AsyncIterator[FakeIssuer]:
    """Run an issuer."""
    issuer = FakeIssuer()
    async with serving(issuer, "127.0.0.1", 0) as url:
        issuer.url = url
        yield issuer
