"""Package signatures: Ed25519 over the digest of every file, and the policy that says which keys a node trusts.

A signature is the entry `SIGNATURE` of an archive, or the file of that name in a folder. It names the key, the package,
its version and its files, and optionally an expiry date and a tenant. That statement is signed as canonical JSON.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from tidemill.kernel.errors import OperationError, RequestError
from tidemill.kernel.limits import validate_tenant
from tidemill.packages.format.archive import PackageContents
from tidemill.packages.format.public_key import PublicKey
from tidemill.packages.format.zip_format import SIGNATURE_FILE, ArchiveLimits, read_entries
from tidemill.storage.tables.packages import TrustedKeys

if TYPE_CHECKING:
    from tidemill.packages.format.private_key import PrivateKey

ALGORITHM = "ed25519"

_SIGNING_CONTEXT = b"tidemill package signature 1\n"  # a signature cannot be reused in another context
_LISTED_NAMES_LIMIT = 5


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

    statement: SignedStatement
    key: PublicKey
    not_after: datetime | None
    """The expiry date of the statement."""


def file_digests(contents: PackageContents) -> dict[str, str]:
    """Return the SHA-256 of every signed file, by name."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.files.items()}


def sign(
    contents: PackageContents, key: "PrivateKey", *, not_after: datetime | None = None, tenant: str | None = None
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
    return VerifiedSignature(statement=signature, key=key, not_after=not_after)


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
    except ValueError:
        given = b""
    is_canonical = given.hex() == signature.signature  # capitals and spaces would decode to the same bytes
    if not is_canonical or not key.verifies(given, _signing_message(SignedStatement(**fields))):
        message = f"{SIGNATURE_FILE} was changed: key '{key.name}' ({key.id}) did not sign what it says"
        raise _invalid_signature_error(contents, message)


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
            contents, f"{SIGNATURE_FILE} holds until {signature.not_after[:80]!r}, which is not a time"
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
