"""Who vouches for a package: Ed25519 signatures over the digest of every file, and the keys for them.

A signature is an entry `SIGNATURE` of the archive, or a file of that name in the folder. It says which key, for which
package, version and files, if wanted until when and for which tenant; that statement, as canonical JSON, is what is
signed.
"""

import base64
import binascii
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from tidemill.kernel.errors import OperationError, RequestError
from tidemill.kernel.storable import checked_tenant
from tidemill.packages.archive import Contents
from tidemill.packages.container import read_entries
from tidemill.packages.entries import SIGNATURE, Limits

ALGORITHM = "ed25519"

_PURPOSE = b"tidemill package signature 1\n"  # so that what is signed here cannot be taken for anything else
_KIND = "tidemill-ed25519"
_NAME = re.compile(r"[\w.@-]{1,64}", re.ASCII)
_LISTED = 5


# -- keys


class PublicKey(msgspec.Struct, frozen=True):
    """A key that signatures are checked with. Whoever trusts it trusts the packages of its owner."""

    name: str
    """What people call it; it is no part of the key."""

    raw: bytes

    @property
    def id(self) -> str:
        """Return what a signature names the key by."""
        return hashlib.sha256(self.raw).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{_KIND} {base64.b64encode(self.raw).decode()} {self.name}"

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Return the key that a line of text holds."""
        parts = text.split()
        try:
            kind, encoded, name = parts
            raw = base64.b64decode(encoded, validate=True)
        except (ValueError, binascii.Error):
            kind, raw, name = "", b"", ""
        if kind != _KIND or len(raw) != 32 or not _NAME.fullmatch(name):
            raise _invalid_key(f"{text[:100]!r} is not a public key: it is one line, '{_KIND} KEY NAME'")
        return cls(name, raw)


def read_public_keys(text: str) -> list[PublicKey]:
    """Return the keys of a text, one per line; empty lines and those that begin with '#' do not count."""
    lines = [line.strip() for line in text.splitlines()]
    return [PublicKey.parse(line) for line in lines if line and not line.startswith("#")]


def load_public_keys(path: Path) -> list[PublicKey]:
    """Return the keys of a file, of which there must be one at least."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RequestError(f"there is no file {path}", code="no_file", status=404) from error
    except (OSError, ValueError) as error:
        raise OperationError(f"{path} could not be read: {error}") from error
    if not (found := read_public_keys(text)):
        raise _invalid_key(f"{path} holds no public key")
    return found


class PrivateKey:
    """A key to sign with: it is kept secret."""

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
    """Return a new key."""
    if not _NAME.fullmatch(name):
        raise _invalid_key(f"{name[:100]!r} cannot be the name of a key: letters, digits and '_.@-'")
    return PrivateKey(name, Ed25519PrivateKey.generate())


def load_key(path: Path) -> PrivateKey:
    """Return the key of a file that only its owner can read; its name is that of the file."""
    try:
        mode, content = path.stat().st_mode, path.read_bytes()
        if f"{_KIND} ".encode() in content:
            raise _invalid_key(f"{path} is a public key, with which is verified: sign with the private one")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise _invalid_key(f"{path} can be read by others: make it yours with `chmod 600`, or make a new key")
        key = load_pem_private_key(content, password=None)
    except FileNotFoundError as error:
        raise RequestError(f"there is no file {path}", code="no_file", status=404) from error
    except OSError as error:
        raise OperationError(f"{path} could not be read: {error}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _invalid_key(f"{path} holds no private key in PEM without a password") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _invalid_key(f"{path} holds a key of another kind: packages are signed with Ed25519")
    return PrivateKey(path.stem, key)


def _invalid_key(message: str) -> RequestError:
    return RequestError(message, code="invalid_key")


# -- signatures


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is signed."""

    algorithm: str
    key: str
    package: str
    version: str
    files: dict[str, str]
    """The SHA-256 of every file but the signature, in hex."""

    tenant: str | None = None
    """The only tenant that it is meant for, if there is one."""

    not_after: str | None = None
    """Until when it holds, in UTC; for ever if there is nothing."""


class Signature(Statement, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an entry `SIGNATURE` holds: a statement, and the signature of it."""

    signature: str


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """A package that is what the owner of a trusted key signed."""

    package: str
    version: str
    key: PublicKey
    tenant: str | None = None
    not_after: datetime | None = None


def digests(contents: Contents) -> dict[str, str]:
    """Return the SHA-256 of every file that a signature is about, by name."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.files.items()}


def sign(
    contents: Contents, key: PrivateKey, *, not_after: datetime | None = None, tenant: str | None = None
) -> Contents:
    """Return the contents with a signature, in place of one that they may have."""
    if tenant is not None:
        checked_tenant(tenant)
    statement = Statement(
        algorithm=ALGORITHM,
        key=key.public.id,
        package=contents.manifest.name,
        version=str(contents.manifest.version),
        files=digests(contents),
        tenant=tenant,
        not_after=None if not_after is None else _moment(not_after),
    )
    signature = Signature(**msgspec.structs.asdict(statement), signature=key.sign(_message(statement)).hex())
    return msgspec.structs.replace(contents, signature=_canonical(signature), raw=None)


def read_signature(contents: Contents) -> Signature:
    """Return what the signature of a package says, unchecked; RequestError if it has none, or one that is damaged."""
    if contents.signature is None:
        message = f"{contents.title} is not signed"
        raise RequestError(message, code="unsigned_package", status=403, package=contents.manifest.name)
    try:
        read = msgspec.json.decode(contents.signature, type=Signature)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _invalid(contents, f"{SIGNATURE} cannot be read: {error}") from error
    if _canonical(read) != contents.signature:
        raise _invalid(contents, f"{SIGNATURE} was changed: it is not written as it is signed")
    return read


def verify(
    contents: Contents, trusted_keys: Iterable[PublicKey], *, now: datetime, tenant: str | None = None
) -> Verified:
    """Return who signed a package; RequestError unless it is, to the byte, what a trusted key signed, and still holds.

    Without a `tenant` it is not checked for whom it was signed: that is in what comes back.
    """
    signature = read_signature(contents)
    key = _trusted(contents, signature, trusted_keys)
    _check_signature(contents, signature, key)
    _check_files(contents, signature.files, key)
    _check_form(contents)
    not_after = _check_scope(contents, signature, now, tenant)
    return Verified(
        package=signature.package, version=signature.version, key=key, tenant=signature.tenant, not_after=not_after
    )


def _trusted(contents: Contents, signature: Signature, trusted_keys: Iterable[PublicKey]) -> PublicKey:
    keys = {one.id: one for one in trusted_keys}
    if signature.algorithm != ALGORITHM:
        raise _invalid(contents, f"{SIGNATURE} is of an unknown kind, {signature.algorithm[:80]!r}")
    if signature.key not in keys:
        names = ", ".join(f"{one.name} ({one.id})" for one in keys.values()) or "none"
        message = f"{contents.title}: signed with key {signature.key[:80]!r}, which is not trusted; trusted: {names}"
        raise RequestError(message, code="unknown_key", status=403, key=signature.key)
    return keys[signature.key]


def _check_signature(contents: Contents, signature: Signature, key: PublicKey) -> None:
    fields = {name: getattr(signature, name) for name in Statement.__struct_fields__}
    try:
        given = bytes.fromhex(signature.signature)
        if given.hex() != signature.signature:  # capitals and spaces would be read as the same
            raise InvalidSignature
        Ed25519PublicKey.from_public_bytes(key.raw).verify(given, _message(Statement(**fields)))
    except (InvalidSignature, ValueError) as error:
        message = f"{SIGNATURE} was changed: key '{key.name}' ({key.id}) did not sign what it says"
        raise _invalid(contents, message) from error


def _check_files(contents: Contents, signed: Mapping[str, str], key: PublicKey) -> None:
    found = digests(contents)
    differences = {
        "changed": sorted(name for name in signed.keys() & found.keys() if signed[name] != found[name]),
        "missing": sorted(signed.keys() - found.keys()),
        "extra": sorted(found.keys() - signed.keys()),
    }
    said = [f"{_listing(names)} {_VERBS[what]}" for what, names in differences.items() if names]
    if said:
        message = f"it is not what key '{key.name}' ({key.id}) signed: {'; '.join(said)}"
        raise _invalid(contents, message, **differences)


_VERBS = {"changed": "was changed", "missing": "is missing", "extra": "was added"}


def _listing(names: list[str]) -> str:
    listed = ", ".join(map(repr, names[:_LISTED]))
    return listed if len(names) <= _LISTED else f"{listed} and {len(names) - _LISTED} more"


def _check_form(contents: Contents) -> None:
    """Refuse an archive that holds what was signed, yet is not written as it was: no byte of it may be another."""
    raw, wanted = contents.raw, contents.packed()
    if raw is None or raw == wanted:
        return
    limits = Limits(archive_size=len(wanted))
    at = next((place for place, pair in enumerate(zip(raw, wanted, strict=False)) if pair[0] != pair[1]), len(wanted))
    entry = next((one.name for one in read_entries(wanted, contents.title, limits) if one.start <= at < one.end), None)
    place = f"entry {entry!r}" if entry else "its directory"
    raise _invalid(contents, f"the archive was changed around its files, in {place}", changed=[entry] if entry else [])


def _check_scope(contents: Contents, signature: Signature, now: datetime, tenant: str | None) -> datetime | None:
    stated, manifest = (signature.package, signature.version), contents.manifest
    if stated != (manifest.name, str(manifest.version)):
        raise _invalid(
            contents, f"{SIGNATURE} is for {stated[0][:80]!r} {stated[1][:80]!r}, another package or version"
        )
    if None not in (tenant, signature.tenant) and tenant != signature.tenant:
        message = f"{contents.title}: signed for tenant {signature.tenant!r} only, and this is '{tenant}'"
        raise RequestError(message, code="wrong_tenant", status=403, tenant=signature.tenant)
    if signature.not_after is None:
        return None
    try:
        not_after = datetime.fromisoformat(signature.not_after).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _invalid(contents, f"{SIGNATURE} holds until {signature.not_after[:80]!r}, which is no time") from error
    if now > not_after:
        message = f"{contents.title}: the signature held until {signature.not_after}: have it signed again"
        raise RequestError(message, code="expired_signature", status=403, not_after=signature.not_after)
    return not_after


def _invalid(contents: Contents, message: str, **facts: list[str]) -> RequestError:
    return RequestError(f"{contents.title}: {message}", code="invalid_signature", status=403, **facts)


def _moment(at: datetime) -> str:
    if at.tzinfo is None:
        raise RequestError("until when a signature holds needs a time zone", code="invalid_date")
    return at.astimezone(UTC).isoformat(timespec="seconds")


def _message(statement: Statement) -> bytes:
    return _PURPOSE + _canonical(statement)


def _canonical(value: Statement) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"
