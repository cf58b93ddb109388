"""Package signatures: Ed25519 over the digest of every file, with the keys and the trust policy.

A signature is the entry `SIGNATURE` of an archive, or the file of that name in a folder. It names the key, the package,
its version and its files, and optionally an expiry date and a tenant. That statement is signed as canonical JSON.
"""

import base64
import binascii
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
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
from tidemill.kernel.limits import validate_tenant
from tidemill.packages.format.archive import PackageContents
from tidemill.packages.format.zip_format import SIGNATURE_FILE, ArchiveLimits, read_entries
from tidemill.storage.package_ports import TrustedKeys

ALGORITHM = "ed25519"

_SIGNING_CONTEXT = b"tidemill package signature 1\n"  # a signature cannot be reused in another context
_KEY_KIND = "tidemill-ed25519"
_KEY_NAME_PATTERN = re.compile(r"[\w.@-]{1,64}", re.ASCII)
_LISTED_NAMES_LIMIT = 5


# -- keys


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
        return f"{_KEY_KIND} {base64.b64encode(self.raw).decode()} {self.name}"

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Parse a key from one line of text."""
        parts = text.split()
        try:
            kind, encoded, name = parts
            raw = base64.b64decode(encoded, validate=True)
        except (ValueError, binascii.Error):
            kind, raw, name = "", b"", ""
        if kind != _KEY_KIND or len(raw) != 32 or not _KEY_NAME_PATTERN.fullmatch(name):
            raise _invalid_key_error(f"{text[:100]!r} is not a public key: it is one line, '{_KEY_KIND} KEY NAME'")
        return cls(name, raw)


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
        raise _invalid_key_error(f"{path} holds no public key")
    return keys


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
    if not _KEY_NAME_PATTERN.fullmatch(name):
        raise _invalid_key_error(f"{name[:100]!r} cannot be the name of a key: letters, digits and '_.@-'")
    return PrivateKey(name, Ed25519PrivateKey.generate())


def load_key(path: Path) -> PrivateKey:
    """Load the key of a file that only its owner can read; the key is named after the file."""
    try:
        mode, content = path.stat().st_mode, path.read_bytes()
        if f"{_KEY_KIND} ".encode() in content:
            raise _invalid_key_error(f"{path} is a public key, which only verifies: sign with the private one")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise _invalid_key_error(f"{path} can be read by others: make it yours with `chmod 600`, or make a new key")
        key = load_pem_private_key(content, password=None)
    except FileNotFoundError as error:
        raise RequestError(f"there is no file {path}", code="no_file", status=404) from error
    except OSError as error:
        raise OperationError(f"{path} could not be read: {error}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _invalid_key_error(f"{path} holds no private key in PEM without a password") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _invalid_key_error(f"{path} holds a key of another kind: packages are signed with Ed25519")
    return PrivateKey(path.stem, key)


def _invalid_key_error(message: str) -> RequestError:
    return RequestError(message, code="invalid_key")


# -- signatures


class SignedStatement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The statement that is signed."""

    algorithm: str
    key: str
    package: str
    version: str
    files: dict[str, str]
    """The SHA-256 of every file but the signature, in hex."""

    tenant: str | None = None
    """The only tenant that may load the package; None for all."""

    not_after: str | None = None
    """The expiry date, in UTC; None if the signature does not expire."""


class Signature(SignedStatement, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of `SIGNATURE`: a statement and its signature."""

    signature: str


class VerifiedSignature(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a successful verification."""

    package: str
    version: str
    key: PublicKey
    tenant: str | None = None
    not_after: datetime | None = None


def file_digests(contents: PackageContents) -> dict[str, str]:
    """Return the SHA-256 of every signed file, by name."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.files.items()}


def sign(
    contents: PackageContents, key: PrivateKey, *, not_after: datetime | None = None, tenant: str | None = None
) -> PackageContents:
    """Return the contents with a new signature, which replaces an existing one."""
    if tenant is not None:
        validate_tenant(tenant)
    statement = SignedStatement(
        algorithm=ALGORITHM,
        key=key.public.id,
        package=contents.manifest.name,
        version=str(contents.manifest.version),
        files=file_digests(contents),
        tenant=tenant,
        not_after=None if not_after is None else _format_time(not_after),
    )
    signature = Signature(**msgspec.structs.asdict(statement), signature=key.sign(_signing_message(statement)).hex())
    return msgspec.structs.replace(contents, signature=_canonical_json(signature), raw=None)


def read_signature(contents: PackageContents) -> Signature:
    """Parse the signature of a package without verifying it; raise RequestError if it is missing or damaged."""
    if contents.signature is None:
        message = f"{contents.title} is not signed"
        raise RequestError(message, code="unsigned_package", status=403, package=contents.manifest.name)
    try:
        read = msgspec.json.decode(contents.signature, type=Signature)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _invalid_signature_error(contents, f"{SIGNATURE_FILE} cannot be read: {error}") from error
    if _canonical_json(read) != contents.signature:
        raise _invalid_signature_error(contents, f"{SIGNATURE_FILE} was changed: it is not written as it is signed")
    return read


def verify(
    contents: PackageContents, trusted_keys: Iterable[PublicKey], *, now: datetime, tenant: str | None = None
) -> VerifiedSignature:
    """Verify a package byte by byte; raise RequestError unless a trusted key signed it and it has not expired.

    Without a `tenant`, the tenant of the signature is returned but not checked.
    """
    signature = read_signature(contents)
    key = _find_trusted_key(contents, signature, trusted_keys)
    _check_signature(contents, signature, key)
    _check_signed_files(contents, signature.files, key)
    _check_archive_bytes(contents)
    not_after = _check_scope(contents, signature, now, tenant)
    return VerifiedSignature(
        package=signature.package, version=signature.version, key=key, tenant=signature.tenant, not_after=not_after
    )


def _find_trusted_key(contents: PackageContents, signature: Signature, trusted_keys: Iterable[PublicKey]) -> PublicKey:
    keys = {one.id: one for one in trusted_keys}
    if signature.algorithm != ALGORITHM:
        raise _invalid_signature_error(
            contents, f"{SIGNATURE_FILE} is of an unknown kind, {signature.algorithm[:80]!r}"
        )
    if signature.key not in keys:
        names = ", ".join(f"{one.name} ({one.id})" for one in keys.values()) or "none"
        message = f"{contents.title}: signed with key {signature.key[:80]!r}, which is not trusted; trusted: {names}"
        raise RequestError(message, code="unknown_key", status=403, key=signature.key)
    return keys[signature.key]


def _check_signature(contents: PackageContents, signature: Signature, key: PublicKey) -> None:
    fields = {name: getattr(signature, name) for name in SignedStatement.__struct_fields__}
    try:
        given = bytes.fromhex(signature.signature)
        if given.hex() != signature.signature:  # capitals and spaces would decode to the same bytes
            raise InvalidSignature
        Ed25519PublicKey.from_public_bytes(key.raw).verify(given, _signing_message(SignedStatement(**fields)))
    except (InvalidSignature, ValueError) as error:
        message = f"{SIGNATURE_FILE} was changed: key '{key.name}' ({key.id}) did not sign what it says"
        raise _invalid_signature_error(contents, message) from error


def _check_signed_files(contents: PackageContents, signed: Mapping[str, str], key: PublicKey) -> None:
    found = file_digests(contents)
    differences = {
        "changed": sorted(name for name in signed.keys() & found.keys() if signed[name] != found[name]),
        "missing": sorted(signed.keys() - found.keys()),
        "extra": sorted(found.keys() - signed.keys()),
    }
    phrases = [f"{_format_names(names)} {_DIFFERENCE_PHRASES[kind]}" for kind, names in differences.items() if names]
    if phrases:
        message = f"it is not what key '{key.name}' ({key.id}) signed: {'; '.join(phrases)}"
        raise _invalid_signature_error(contents, message, **differences)


_DIFFERENCE_PHRASES = {"changed": "was changed", "missing": "is missing", "extra": "was added"}


def _format_names(names: list[str]) -> str:
    listed = ", ".join(map(repr, names[:_LISTED_NAMES_LIMIT]))
    return listed if len(names) <= _LISTED_NAMES_LIMIT else f"{listed} and {len(names) - _LISTED_NAMES_LIMIT} more"


def _check_archive_bytes(contents: PackageContents) -> None:
    """Reject an archive whose files are the signed ones but whose other bytes differ."""
    raw, expected = contents.raw, contents.to_archive()
    if raw is None or raw == expected:
        return
    limits = ArchiveLimits(archive_size=len(expected))
    pairs = enumerate(zip(raw, expected, strict=False))
    at = next((offset for offset, (found, signed) in pairs if found != signed), len(expected))
    entries = read_entries(expected, contents.title, limits)
    entry = next((one.name for one in entries if one.start <= at < one.end), None)
    place = f"entry {entry!r}" if entry else "its directory"
    raise _invalid_signature_error(
        contents, f"the archive was changed around its files, in {place}", changed=[entry] if entry else []
    )


def _check_scope(contents: PackageContents, signature: Signature, now: datetime, tenant: str | None) -> datetime | None:
    stated, manifest = (signature.package, signature.version), contents.manifest
    if stated != (manifest.name, str(manifest.version)):
        raise _invalid_signature_error(
            contents, f"{SIGNATURE_FILE} is for {stated[0][:80]!r} {stated[1][:80]!r}, another package or version"
        )
    if None not in (tenant, signature.tenant) and tenant != signature.tenant:
        message = f"{contents.title}: signed for tenant {signature.tenant!r} only, and this is '{tenant}'"
        raise RequestError(message, code="wrong_tenant", status=403, tenant=signature.tenant)
    if signature.not_after is None:
        return None
    try:
        not_after = datetime.fromisoformat(signature.not_after).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _invalid_signature_error(
            contents, f"{SIGNATURE_FILE} holds until {signature.not_after[:80]!r}, which is no time"
        ) from error
    if now > not_after:
        message = f"{contents.title}: the signature held until {signature.not_after}: have it signed again"
        raise RequestError(message, code="expired_signature", status=403, not_after=signature.not_after)
    return not_after


def _invalid_signature_error(contents: PackageContents, message: str, **facts: list[str]) -> RequestError:
    return RequestError(f"{contents.title}: {message}", code="invalid_signature", status=403, **facts)


def _format_time(at: datetime) -> str:
    if at.tzinfo is None:
        raise RequestError("until when a signature holds needs a time zone", code="invalid_date")
    return at.astimezone(UTC).isoformat(timespec="seconds")


def _signing_message(statement: SignedStatement) -> bytes:
    return _SIGNING_CONTEXT + _canonical_json(statement)


def _canonical_json(value: SignedStatement) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"


class TrustPolicy:
    """Which signatures a node accepts. A key in the store is trusted for one tenant, a key in a file for all."""

    def __init__(
        self, keys: TrustedKeys | None = None, file_keys: Sequence[PublicKey] = (), required: bool = False
    ) -> None:
        self._keys = keys
        self._file_keys = tuple(file_keys)
        self._required = required

    async def check(self, contents: PackageContents, tenant: str, now: datetime) -> VerifiedSignature | None:
        """Verify a package; return None if no trusted key signed it; raise RequestError if it must not be loaded."""
        if contents.signature is None and not self._required:
            return None
        trusted = [*self._file_keys, *await self._tenant_keys(tenant)]
        if not self._required and read_signature(contents).key not in {one.id for one in trusted}:
            return None
        return verify(contents, trusted, now=now, tenant=tenant)

    async def _tenant_keys(self, tenant: str) -> list[PublicKey]:
        stored = await self._keys.for_tenant(tenant) if self._keys is not None else []
        try:
            return [PublicKey.parse(one.text) for one in stored]
        except RequestError as error:
            raise OperationError(
                f"a trusted key of tenant '{tenant}' cannot be read from the store: {error}"
            ) from error
