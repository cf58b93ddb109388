"""Envelope encryption of secrets: AES-256-GCM with a key per value, which a master key wraps.

Each ciphertext is bound to the tenant, the name and the version of its secret: moved to another row, it cannot be
decrypted. A rotation of master keys wraps the small keys again and leaves the values alone.
"""

import base64
import binascii
import secrets
from collections.abc import Mapping

import msgspec

from tidemill.kernel.errors import DefinitionError, OperationError
from tidemill.kernel.ids import new_instance_id

KEY_LENGTH = 32  # bytes
_NONCE_LENGTH = 12  # bytes


class SecretPlace(msgspec.Struct, frozen=True):
    """The row that a ciphertext belongs to."""

    tenant: str
    name: str
    version: int


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """An encrypted value, its wrapped key, and the master key that wraps it."""

    key_id: str
    wrapped_key: bytes
    ciphertext: bytes


class MasterKeys:
    """Master keys by id. The first one is current: it wraps new keys, and the others still unwrap theirs."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)
        self.current = next(iter(self._keys))

    @classmethod
    def parse(cls, text: str) -> "MasterKeys":
        """Read "id:base64,id:base64"; DefinitionError, which repeats no key, if it cannot be read."""
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(text.split(","), 1):
            id_, _, encoded = entry.strip().partition(":")
            try:
                key = base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError):
                key = b""
            if not id_ or len(key) != KEY_LENGTH or id_ in keys:
                message = (
                    f"secret_keys: entry {number} is not ID:KEY, with its own id and {KEY_LENGTH} bytes in "
                    "base64; make a key with `openssl rand -base64 32`"
                )
                raise DefinitionError.single("settings", message)
            keys[id_] = key
        return cls(keys)

    def __repr__(self) -> str:
        return f"MasterKeys({sorted(self._keys)})"

    def encrypt(self, value: bytes, place: SecretPlace) -> Envelope:
        """Encrypt a value with a new key."""
        key = secrets.token_bytes(KEY_LENGTH)
        wrapped = _seal(self._keys[self.current], key, _context("key", place))
        return Envelope(
            key_id=self.current, wrapped_key=wrapped, ciphertext=_seal(key, value, _context("value", place))
        )

    def decrypt(self, envelope: Envelope, place: SecretPlace) -> bytes:
        """Decrypt a value; OperationError if its master key is missing, or if it was moved or changed."""
        key = self._unwrap(envelope, place)
        return _open(key, envelope.ciphertext, _context("value", place), place)

    def rewrap(self, envelope: Envelope, place: SecretPlace) -> Envelope:
        """Wrap the key of a value with the current master key."""
        key = self._unwrap(envelope, place)
        wrapped = _seal(self._keys[self.current], key, _context("key", place))
        return Envelope(key_id=self.current, wrapped_key=wrapped, ciphertext=envelope.ciphertext)

    def _unwrap(self, envelope: Envelope, place: SecretPlace) -> bytes:
        master = self._keys.get(envelope.key_id)
        if master is None:
            raise OperationError(
                f"secret '{place.name}' of tenant '{place.tenant}' needs the master key '{envelope.key_id}', and "
                f"secret_keys has {', '.join(sorted(self._keys))}; add it back until `tidemill secret rotate` is done"
            )
        return _open(master, envelope.wrapped_key, _context("key", place), place)


def new_master_keys_text() -> str:
    """Return a new master key in the form that `MasterKeys.parse` reads."""
    return f"{new_instance_id()}:{base64.b64encode(secrets.token_bytes(KEY_LENGTH)).decode()}"


def _context(purpose: str, place: SecretPlace) -> bytes:
    return msgspec.json.encode(["tidemill.secret.v1", purpose, place.tenant, place.name, place.version])


def _seal(key: bytes, value: bytes, context: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # on use: many nodes have no secrets

    nonce = secrets.token_bytes(_NONCE_LENGTH)
    return nonce + AESGCM(key).encrypt(nonce, value, context)


def _open(key: bytes, sealed: bytes, context: bytes, place: SecretPlace) -> bytes:
    from cryptography.exceptions import InvalidTag  # on use: as above
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # on use: as above

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_LENGTH], sealed[_NONCE_LENGTH:], context)
    except (InvalidTag, ValueError):
        # Without the cause: its frames hold the key.
        raise OperationError(
            f"secret '{place.name}' of tenant '{place.tenant}' cannot be decrypted: its row was changed or moved, or "
            "its master key is another one; set the secret again"
        ) from None
