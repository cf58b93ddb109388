"""The public keys that verify package signatures, and their text form."""

import base64
import binascii
import hashlib
import re
from pathlib import Path

import msgspec

from tidemill.kernel.errors import OperationError, RequestError

KEY_KIND = "tidemill-ed25519"
KEY_NAME_PATTERN = re.compile(r"[\w.@-]{1,64}", re.ASCII)


class PublicKey(msgspec.Struct, frozen=True):
    """A key that verifies signatures. Trusting it means trusting the packages of its owner."""

    name: str
    """A label for people; it is not part of the key."""

    raw: bytes

    @property
    def id(self) -> str:
        """The id by which a signature names the key."""
        return hashlib.sha256(self.raw).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{KEY_KIND} {base64.b64encode(self.raw).decode()} {self.name}"

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Parse a key from one line of text."""
        parts = text.split()
        try:
            kind, encoded, name = parts
            raw = base64.b64decode(encoded, validate=True)
        except (ValueError, binascii.Error):
            kind, raw, name = "", b"", ""
        if kind != KEY_KIND or len(raw) != 32 or not KEY_NAME_PATTERN.fullmatch(name):
            raise invalid_key_error(f"{text[:100]!r} is not a public key: it is one line, '{KEY_KIND} KEY NAME'")
        return cls(name, raw)

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether the owner of this key signed a message."""
        from cryptography.exceptions import InvalidSignature  # on use: most packages have no signature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # on use: as above

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


def read_public_keys(text: str) -> list[PublicKey]:
    """Parse keys, one per line; empty lines and lines that begin with '#' are skipped."""
    lines = [line.strip() for line in text.splitlines()]
    return [PublicKey.parse(line) for line in lines if line and not line.startswith("#")]


def load_public_keys(path: Path) -> list[PublicKey]:
    """Read the keys of a file, which must hold at least one."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RequestError(f"there is no file {path}", code="no_file", status=404) from error
    except (OSError, ValueError) as error:
        raise OperationError(f"{path} could not be read: {error}") from error
    if not (keys := read_public_keys(text)):
        raise invalid_key_error(f"{path} holds no public key")
    return keys


def invalid_key_error(message: str) -> RequestError:
    """Return the error for a text or a file that is not a key."""
    return RequestError(message, code="invalid_key")
