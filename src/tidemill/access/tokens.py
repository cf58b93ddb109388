"""Secret tokens of keys, sessions and tickets: random texts of 256 bits, of which only the digests are stored.

A token has too many bits to be guessed, so a plain SHA-256 protects it: a slow hash is for passwords, which people
choose.
"""

import hashlib
import hmac
import secrets
import string

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
