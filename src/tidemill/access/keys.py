"""API keys: `tm_<id>_<secret>`. The id is shown in lists and audit entries, the secret only once."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import get_args

import msgspec

from tidemill.access.principal import Principal, Resource, ResourceKind, Role
from tidemill.access.tokens import SECRET_LENGTH, new_secret
from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import is_name
from tidemill.kernel.suggestions import did_you_mean

_TOKEN = re.compile(rf"tm_([0-9a-z]{{8}})_[0-9A-Za-z]{{{SECRET_LENGTH}}}")


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is stored and listed: everything but the secret."""

    id: str
    tenant: str
    role: Role
    label: str = ""
    """What it is for, in the words of its creator."""
    only: frozenset[Resource] | None = None
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    """Accurate to a minute."""

    @property
    def actor(self) -> str:
        """The name of the key in audit entries."""
        return f"key:{self.id}"

    @property
    def principal(self) -> Principal:
        """The principal whom the key authenticates."""
        return Principal(
            tenant=self.tenant, role=self.role, actor=self.actor, only=self.only, credential=f"key:{self.id}"
        )

    def is_expired(self, now: datetime) -> bool:
        """Return whether the key has expired."""
        return self.expires_at is not None and self.expires_at <= now

    def is_usable(self, now: datetime) -> bool:
        """Return whether the key is neither revoked nor expired."""
        return self.revoked_at is None and not self.is_expired(now)


def new_key_token(id: str) -> str:
    """Return a new token for the key with an id of 8 characters."""
    return f"tm_{id}_{new_secret()}"


def key_id_of(token: str) -> str | None:
    """Return the id of the key in a token; None for a text that is not the token of a key."""
    match = _TOKEN.fullmatch(token)
    return match[1] if match else None


def parse_resources(texts: Iterable[str]) -> frozenset[Resource]:
    """Return the resources of texts such as "accumulators:orderbook"; RequestError for others."""
    return frozenset(_parse_resource(text) for text in texts)


def _parse_resource(text: str) -> Resource:
    kind, _, name = text.strip().partition(":")
    kinds = get_args(ResourceKind)
    if kind not in kinds or not is_name(name):
        hint = did_you_mean(kind, kinds)
        message = f"a key is restricted to 'accumulators:NAME' or 'reactors:NAME', not to {text!r}{hint}"
        raise RequestError(message, code="invalid_resource")
    return Resource(kind, name)  # type: ignore[arg-type]  # checked above
