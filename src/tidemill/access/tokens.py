"""Sessions and tickets, and their secret tokens, as those of keys and remote attempts.

Tokens are random texts of 256 bits, of which only the digests are stored. A token has too many bits to be guessed, so a
plain SHA-256 protects it: a slow hash is for passwords, which people choose.
"""

import hashlib
import hmac
import re
import secrets
import string
from datetime import datetime, timedelta

import msgspec

from tidemill.access.principal import Principal

_LETTERS = string.ascii_letters + string.digits  # a double click selects the whole token
SECRET_LENGTH = 43  # letters of 62, at least 256 bits


def new_secret() -> str:
    """Return a random text of 256 bits."""
    return "".join(secrets.choice(_LETTERS) for _ in range(SECRET_LENGTH))


def digest_token(token: str) -> bytes:
    """Return the digest of a token: the only form in which it is stored."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def is_token(token: str, digest: bytes) -> bool:
    """Return whether a token has a digest, in a time that does not depend on where they differ."""
    return hmac.compare_digest(digest_token(token), digest)


_PREFIX = "tma_"
_TOKEN = re.compile(rf"{_PREFIX}[0-9A-Za-z]{{{SECRET_LENGTH}}}")


def new_attempt_token() -> str:
    """Return a new token."""
    return _PREFIX + new_secret()


def is_attempt_token(text: str) -> bool:
    """Return whether a text has the form of a token of an attempt."""
    return _TOKEN.fullmatch(text) is not None


IDLE_LIFETIME = timedelta(hours=12)  # of a session without a request
LIFETIME = timedelta(days=7)  # of any session
TICKET_LIFETIME = timedelta(seconds=60)


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that has signed in, as it is stored: everything but its token."""

    id: str
    tenant: str
    actor: str
    principal: Principal
    created_at: datetime
    seen_at: datetime
    """Accurate to a minute."""
    expires_at: datetime

    def is_valid(self, now: datetime) -> bool:
        """Return whether the session is neither too old nor idle for too long."""
        return now < self.expires_at and now < self.seen_at + IDLE_LIFETIME


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """Permission for one connection to one endpoint, as it is stored: everything but its token."""

    tenant: str
    endpoint: str
    principal: Principal
    expires_at: datetime
