"""The private keys that sign packages, and their files."""

import os
import stat
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from tidemill.kernel.errors import OperationError, RequestError
from tidemill.packages.format.public_key import KEY_KIND, KEY_NAME_PATTERN, PublicKey, invalid_key_error


class PrivateKey:
    """A secret key that makes signatures."""

    def __init__(self, name: str, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(name, key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    def __repr__(self) -> str:
        return f"PrivateKey({self.public.name!r}, id={self.public.id!r})"

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        return self._key.sign(message)

    def save(self, path: Path) -> None:
        """Write the key to a new file that only its owner can read, as PEM without a password."""
        pem = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        try:
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(number, "wb") as file:
                file.write(pem)
        except FileExistsError as error:
            raise RequestError(f"{path} is there already", code="file_exists", status=409) from error
        except OSError as error:
            raise OperationError(f"{path} could not be written: {error}") from error


def generate_key(name: str) -> PrivateKey:
    """Generate a key."""
    if not KEY_NAME_PATTERN.fullmatch(name):
        raise invalid_key_error(f"{name[:100]!r} cannot be the name of a key: letters, digits and '_.@-'")
    return PrivateKey(name, Ed25519PrivateKey.generate())


def load_key(path: Path) -> PrivateKey:
    """Load the key of a file that only its owner can read; the key is named after the file."""
    try:
        mode, content = path.stat().st_mode, path.read_bytes()
        if f"{KEY_KIND} ".encode() in content:
            raise invalid_key_error(f"{path} is a public key, which only verifies: sign with the private one")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise invalid_key_error(f"{path} can be read by others: make it yours with `chmod 600`, or make a new key")
        key = load_pem_private_key(content, password=None)
    except FileNotFoundError as error:
        raise RequestError(f"there is no file {path}", code="no_file", status=404) from error
    except OSError as error:
        raise OperationError(f"{path} could not be read: {error}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise invalid_key_error(f"{path} holds no private key in PEM without a password") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise invalid_key_error(f"{path} holds a key of another kind: packages are signed with Ed25519")
    return PrivateKey(path.stem, key)
