"""Tenants, and their local accounts: people who sign in with a password, which is hashed with scrypt."""

import base64
import hashlib
import hmac
import secrets
from datetime import datetime

import msgspec

from tidemill.access.principal import Principal, Role
from tidemill.kernel.errors import RequestError


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant."""

    name: str
    created_at: datetime
    created_by: str


class AccountRow(msgspec.Struct, frozen=True, kw_only=True):
    """An account as it is stored and listed: everything but the password."""

    tenant: str
    name: str
    role: Role
    created_at: datetime
    created_by: str
    failures: int = 0
    """Failed attempts to sign in since the last success."""
    locked_until: datetime | None = None
    last_login_at: datetime | None = None

    @property
    def principal(self) -> Principal:
        """The principal whom the account authenticates."""
        return Principal(tenant=self.tenant, role=self.role, actor=f"account:{self.name}")

    def is_locked(self, now: datetime) -> bool:
        """Return whether no attempt to sign in is made at the moment."""
        return self.locked_until is not None and self.locked_until > now


_COST, _BLOCK_SIZE, _PARALLELISM = 2**15, 8, 1  # 32 MiB and some 60 ms for each attempt
_MAX_MEMORY = 2**27  # bytes that one hash may take
_SALT_LENGTH = 16  # bytes
MIN_LENGTH, MAX_LENGTH = 12, 1024  # characters of a password

UNKNOWN_HASH = "scrypt$32768$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
"""A hash that no password has: checked for an unknown account, so that the answer takes as long as for a known one."""


def hash_password(password: str) -> str:
    """Return a salted hash with its parameters; RequestError for a password that is too short or too long."""
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        message = f"a password has {MIN_LENGTH} to {MAX_LENGTH} characters, not {len(password)}"
        raise RequestError(message, code="invalid_password")
    salt = secrets.token_bytes(_SALT_LENGTH)
    digest = _scrypt(password, salt, _COST, _BLOCK_SIZE, _PARALLELISM)
    numbers = (_COST, _BLOCK_SIZE, _PARALLELISM)
    return "$".join(["scrypt", *map(str, numbers), _encode(salt), _encode(digest)])


def is_password(password: str, stored: str) -> bool:
    """Return whether a password has a hash; the hash names its own parameters, so that they can grow."""
    _, cost, block_size, parallelism, salt, digest = stored.split("$")
    found = _scrypt(password[: MAX_LENGTH + 1], base64.b64decode(salt), int(cost), int(block_size), int(parallelism))
    return hmac.compare_digest(found, base64.b64decode(digest))


def _scrypt(password: str, salt: bytes, cost: int, block_size: int, parallelism: int) -> bytes:
    data = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(data, salt=salt, n=cost, r=block_size, p=parallelism, maxmem=_MAX_MEMORY, dklen=32)


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()
