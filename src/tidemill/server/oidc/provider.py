"""The issuer of tokens: its endpoints, its keys, and the principals that its tokens name.

The claims `tidemill_role` and `tidemill_tenant` say what a person or program may do; without a role, nothing.
"""

from collections.abc import Awaitable, Mapping
from typing import Any

import msgspec

from tidemill.access.principal import INSTANCE_TENANT, Principal, Role
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import DefinitionError, OperationError, RequestError
from tidemill.kernel.limits import is_name
from tidemill.kernel.settings import Settings
from tidemill.server.oidc.outbound import OutboundClient

ROLE_CLAIM, TENANT_CLAIM = "tidemill_role", "tidemill_tenant"
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""Signatures with a public key only: a token signed with a shared secret, or not at all, is refused."""
LEEWAY = 60  # seconds that the clocks of the issuer and of this server may differ
KEYS_LIFETIME = 3600.0  # seconds for which the issuer's keys are kept
KEYS_INTERVAL = 60.0  # seconds between two reads because of a token with an unknown key


class Endpoints(msgspec.Struct, frozen=True):
    """The endpoints of an issuer, from its discovery document."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str


class OidcProvider:
    """An OpenID Connect issuer that this server trusts."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        if settings.oidc_issuer is None or settings.oidc_client_id is None:
            raise DefinitionError.single("settings", "oidc_issuer and oidc_client_id belong together: set both")
        self.issuer = settings.oidc_issuer.rstrip("/")
        self.client_id = settings.oidc_client_id
        self._clock = clock
        self._client = OutboundClient(allow_private=settings.oidc_allow_private)
        self._endpoints: Endpoints | None = None
        self._keys: Any = None
        self._keys_read_at = 0.0

    async def endpoints(self) -> Endpoints:
        """Return the endpoints, which are discovered on first use."""
        if self._endpoints is None:
            found = await self._ask(self._client.get(f"{self.issuer}/.well-known/openid-configuration"))
            try:
                endpoints = msgspec.convert(found, Endpoints)
            except msgspec.ValidationError as error:
                raise _refused(f"the discovery document of {self.issuer} is not complete: {error}") from error
            if endpoints.issuer.rstrip("/") != self.issuer:
                raise _refused(f"{self.issuer} says that it is {endpoints.issuer}")
            self._endpoints = endpoints
        return self._endpoints

    async def authenticate(self, token: str, nonce: str | None = None) -> Principal:
        """Return the principal of a token; RequestError if it is not valid here."""
        claims = await self._verify(token)
        if nonce is not None and claims.get("nonce") != nonce:
            raise _refused("the token was not issued for this attempt to sign in")
        return _principal_of(claims)

    async def redeem_code(self, form: Mapping[str, str]) -> dict[str, Any]:
        """Return the issuer's answer to the code that a browser has brought back."""
        return await self._ask(self._client.post((await self.endpoints()).token_endpoint, form))

    async def _ask(self, request: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """Wait for an answer of the issuer; a caller who is not known yet does not see why there is none."""
        try:
            return await request
        except OperationError as error:
            message = f"the issuer {self.issuer} cannot be asked; the log of the server has the reason"
            raise RequestError(message, code="issuer_unavailable", status=503) from error

    async def _verify(self, token: str) -> dict[str, Any]:
        from joserfc import jwt  # extra: oidc
        from joserfc.errors import JoseError  # extra: oidc

        registry = jwt.JWTClaimsRegistry(
            now=int(self._clock.now().timestamp()),
            leeway=LEEWAY,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self.client_id},
            exp={"essential": True},
            sub={"essential": True},
        )
        for is_last in (False, True):
            keys = await self._read_keys(again=is_last)
            try:
                decoded = jwt.decode(token, keys, algorithms=ALGORITHMS)
                registry.validate(decoded.claims)
            except (JoseError, ValueError) as error:
                if is_last or not self._may_read_again():
                    raise _refused(f"the token is not valid here: {error}") from error
            else:
                return decoded.claims
        raise AssertionError("the last round returns or raises")

    def _may_read_again(self) -> bool:
        return self._clock.monotonic() - self._keys_read_at >= KEYS_INTERVAL

    async def _read_keys(self, *, again: bool) -> Any:
        """Return the issuer's keys; they are read again when they are old, or when a token may have a newer one."""
        from joserfc.jwk import KeySet  # extra: oidc

        if self._keys is None or again or self._clock.monotonic() - self._keys_read_at >= KEYS_LIFETIME:
            found = await self._ask(self._client.get((await self.endpoints()).jwks_uri))
            self._keys = KeySet.import_key_set(found)  # type: ignore[arg-type]
            self._keys_read_at = self._clock.monotonic()
        return self._keys


def make_provider(settings: Settings, clock: Clock) -> OidcProvider | None:
    """Return the issuer of the settings; None if they name none."""
    return None if settings.oidc_issuer is None else OidcProvider(settings, clock)


def _principal_of(claims: dict[str, Any]) -> Principal:
    role, tenant, subject = claims.get(ROLE_CLAIM), claims.get(TENANT_CLAIM, INSTANCE_TENANT), claims["sub"]
    if role not in tuple(Role) or not is_name(tenant) or not is_name(subject):
        message = f"the issuer gives '{subject}' no role: its token needs the claim {ROLE_CLAIM}, read, write or admin"
        raise RequestError(message, code="not_allowed", status=403)
    return Principal(tenant=tenant, role=Role(role), actor=f"oidc:{subject}", credential=f"oidc:{subject}")


def _refused(reason: str) -> RequestError:
    return RequestError(reason, code="invalid_token", status=401)
