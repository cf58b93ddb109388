"""P-9: the trust policy."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tests.unit.packages.package_samples import FILES
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.packages.format.archive import PackageContents, parse_archive
from tidemill.packages.format.private_key import PrivateKey, generate_key
from tidemill.packages.format.public_key import PublicKey
from tidemill.packages.format.signature import TrustPolicy, sign
from tidemill.packages.format.zip_format import build_zip
from tidemill.storage.tables.packages import TrustedKey, TrustedKeys

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ALICE, BOB, MALLORY = generate_key("alice"), generate_key("bob"), generate_key("mallory")
PLAIN = parse_archive(build_zip(FILES), "a.tidemill")


class Keys(TrustedKeys):
    """Keys of tenants, in memory."""

    def __init__(self, **keys: str) -> None:
        self._keys = keys

    async def for_tenant(self, tenant: str) -> list[TrustedKey]:
        text = self._keys.get(tenant)
        return [] if text is None else [TrustedKey(tenant=tenant, id="?", text=text, at=NOW)]


def signed(key: PrivateKey, **options: object) -> PackageContents:
    """Return the package as a key signed it."""
    made = sign(PLAIN, key, **options)
    return parse_archive(made.to_archive(), "a.tidemill")


def changed(contents: PackageContents) -> PackageContents:
    """Return a signed package of which a file was changed."""
    return msgspec.structs.replace(contents, files={**contents.files, "market/graphs.py": b"evil"}, raw=None)


async def verdict(trust: TrustPolicy, contents: PackageContents, tenant: str = "acme") -> str:
    """Return the code of the refusal, or the name of the key, or nothing if it is loaded although unsigned."""
    try:
        found = await trust.check(contents, tenant, NOW)
    except RequestError as error:
        return error.code
    return "" if found is None else found.key.name


LATE = NOW - timedelta(seconds=1)


@pytest.mark.parametrize(
    ("contents", "required", "otherwise"),
    [
        (signed(ALICE), "alice", "alice"),
        (signed(ALICE, tenant="acme", not_after=NOW), "alice", "alice"),
        (signed(BOB), "bob", "bob"),
        (changed(signed(ALICE)), "invalid_signature", "invalid_signature"),
        (msgspec.structs.replace(PLAIN, signature=b"{}"), "invalid_signature", "invalid_signature"),
        (signed(ALICE, tenant="other"), "wrong_tenant", "wrong_tenant"),
        (signed(ALICE, not_after=LATE), "expired_signature", "expired_signature"),
        (signed(MALLORY), "unknown_key", ""),
        (changed(signed(MALLORY)), "unknown_key", ""),
        (PLAIN, "unsigned_package", ""),
    ],
)
async def test_what_is_loaded(contents: PackageContents, required: str, otherwise: str) -> None:
    """P-9: a trusted key is held to what it signed, whether signatures are required or not."""
    keys, from_file = Keys(acme=str(BOB.public)), [ALICE.public]
    assert await verdict(TrustPolicy(keys, from_file, required=True), contents) == required
    assert await verdict(TrustPolicy(keys, from_file, required=False), contents) == otherwise


async def test_keys_are_trusted_for_their_tenant_only() -> None:
    """P-9: trusted keys per tenant."""
    trust = TrustPolicy(Keys(acme=str(BOB.public)), required=True)
    assert await verdict(trust, signed(BOB), "acme") == "bob"
    assert await verdict(trust, signed(BOB), "other") == "unknown_key"


async def test_without_any_key_nothing_signed_can_be_verified() -> None:
    """Where signatures are required, nothing is loaded; where they are not, everything is."""
    assert await verdict(TrustPolicy(required=True), signed(ALICE)) == "unknown_key"
    assert await verdict(TrustPolicy(), signed(ALICE)) == ""


async def test_an_unreadable_key_is_an_operation_error() -> None:
    """Nothing is loaded as if the key were not there."""
    with pytest.raises(OperationError, match="a trusted key of tenant 'acme' cannot be read"):
        await TrustPolicy(Keys(acme="nonsense")).check(signed(BOB), "acme", NOW)
    assert PublicKey.parse(str(BOB.public)) == BOB.public
