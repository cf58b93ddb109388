"""P-9, F78: signatures of packages, and how tampering is reported."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.unit.packages.package_samples import FILES, MANIFEST, folder_of
from tidemill.kernel.errors import RequestError, TidemillError
from tidemill.packages.format.archive import (
    PackageContents,
    build,
    parse_archive,
    read_archive,
    read_folder,
    unpack,
    write_archive,
)
from tidemill.packages.format.private_key import generate_key, load_key
from tidemill.packages.format.public_key import PublicKey, read_public_keys
from tidemill.packages.format.signature import Signature, read_signature, sign, verify
from tidemill.packages.format.zip_format import build_zip

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ALICE, MALLORY = generate_key("alice"), generate_key("mallory")
TRUSTED = [ALICE.public]
SMALL = {"package.toml": MANIFEST, "market.py": b"x"}


def contents_of(files: dict[str, bytes], signature: bytes | None = None) -> PackageContents:
    """Return the contents of an archive of these files."""
    return parse_archive(build_zip(files if signature is None else {**files, "SIGNATURE": signature}), "a.tidemill")


def signed(files: dict[str, bytes] = FILES, **options: object) -> bytes:
    """Return the signature of these files."""
    made = sign(contents_of(files), ALICE, **options).signature
    assert made is not None
    return made


def refused(contents: PackageContents, **options: object) -> RequestError:
    """Return why a package was not verified."""
    with pytest.raises(RequestError) as raised:
        verify(contents, TRUSTED, **{"now": NOW, **options})
    return raised.value


def test_a_signed_package_says_who_signed_it() -> None:
    """Archive and folder alike."""
    found = verify(contents_of(FILES, signed()), [MALLORY.public, ALICE.public], now=NOW)
    assert (found.statement.package, found.statement.version) == ("market", "1.2.0")
    assert (found.key, found.not_after) == (ALICE.public, None)


def test_a_signature_travels_with_the_package(tmp_path: Path) -> None:
    """From a folder into its archive and out again."""
    folder = folder_of(tmp_path / "package")
    (folder / "SIGNATURE").write_bytes(signed())
    build(folder, tmp_path / "a.tidemill")
    unpack(tmp_path / "a.tidemill", tmp_path / "staging")
    for contents in (read_folder(folder), read_archive(tmp_path / "a.tidemill"), read_folder(tmp_path / "staging")):
        assert verify(contents, TRUSTED, now=NOW).key == ALICE.public


def test_an_archive_can_be_signed_again(tmp_path: Path) -> None:
    """The new signature takes the place of the old."""
    write_archive(sign(contents_of(FILES, signed()), MALLORY), tmp_path / "a.tidemill")
    assert verify(read_archive(tmp_path / "a.tidemill"), [MALLORY.public], now=NOW).key.name == "mallory"


@pytest.mark.parametrize(
    ("files", "said", "facts"),
    [
        (
            FILES | {"market/graphs.py": b"evil"},
            "'market/graphs.py' was changed",
            {"changed": ["market/graphs.py"], "missing": [], "extra": []},
        ),
        (
            {name: content for name, content in FILES.items() if name != "market/graphs.py"},
            "'market/graphs.py' is missing",
            {"changed": [], "missing": ["market/graphs.py"], "extra": []},
        ),
        (
            FILES | {"market/evil.py": b"", "market/data/prices.csv": b""},
            "'market/data/prices.csv' was changed; 'market/evil.py' was added",
            {"changed": ["market/data/prices.csv"], "missing": [], "extra": ["market/evil.py"]},
        ),
        (
            FILES | {"package.toml": MANIFEST.replace(b"1.2.0", b"1.3.0")},
            "'package.toml' was changed",
            {"changed": ["package.toml"], "missing": [], "extra": []},
        ),
    ],
)
def test_tampering_names_the_file(files: dict[str, bytes], said: str, facts: dict[str, list[str]]) -> None:
    """P-9: what differs, what is missing, what was added."""
    error = refused(contents_of(files, signed()))
    assert (error.code, error.status, error.facts) == ("invalid_signature", 403, facts)
    assert str(error) == f"a.tidemill: it is not what key 'alice' ({ALICE.public.id}) signed: {said}"


def test_every_single_byte_of_a_signed_archive_counts() -> None:
    """F78: each byte in turn, three ways; the error names an entry, the signature or the archive's directory."""
    raw = build_zip({**SMALL, "SIGNATURE": signed(SMALL)})
    assert verify(parse_archive(raw, "a"), TRUSTED, now=NOW)
    for at in range(len(raw)):
        for flip in (0x01, 0x20, 0xFF):
            changed = raw[:at] + bytes([raw[at] ^ flip]) + raw[at + 1 :]
            with pytest.raises(TidemillError) as raised:
                verify(parse_archive(changed, "a"), TRUSTED, now=NOW)
            places = ("SIGNATURE", "market.py", "package.toml", "entry", "directory", "zip file", "parts")
            assert any(place in str(raised.value) for place in places), (at, flip, str(raised.value))


@pytest.mark.parametrize("name", [*SMALL, "SIGNATURE"])
def test_every_single_byte_of_a_signed_folder_counts(tmp_path: Path, name: str) -> None:
    """F78: here no checksum stands before the signature; the file is named."""
    folder = folder_of(tmp_path, {**SMALL, "SIGNATURE": signed(SMALL)})
    whole = (folder / name).read_bytes()
    for at in range(len(whole)):
        for flip in (0x01, 0x20):
            (folder / name).write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
            with pytest.raises(TidemillError) as raised:
                verify(read_folder(folder), TRUSTED, now=NOW)
            is_key = getattr(raised.value, "code", "") == "unknown_key"
            assert name in str(raised.value) or is_key, (at, flip, str(raised.value))
    (folder / name).write_bytes(whole)
    assert verify(read_folder(folder), TRUSTED, now=NOW)


def test_an_unknown_key_is_rejected() -> None:
    """The error names those who are."""
    error = refused(sign(contents_of(FILES), MALLORY))
    assert (error.code, error.facts) == ("unknown_key", {"key": MALLORY.public.id})
    assert str(error).endswith(f"which is not trusted; trusted: alice ({ALICE.public.id})")


def test_a_key_cannot_sign_under_the_id_of_another() -> None:
    """The key that is named is the one that it is checked with."""
    forged = msgspec.structs.replace(read_signature(sign(contents_of(FILES), MALLORY)), key=ALICE.public.id)
    error = refused(contents_of(FILES, rewritten(forged)))
    assert (error.code, "SIGNATURE was changed" in str(error)) == ("invalid_signature", True)


def rewritten(signature: Signature) -> bytes:
    """Return a signature as it is written."""
    return msgspec.json.format(msgspec.json.encode(signature, order="sorted"), indent=1) + b"\n"


def test_a_package_without_a_signature_is_not_verified() -> None:
    """It may be fine, and no key vouches for it."""
    assert refused(contents_of(FILES)).code == "unsigned_package"


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        b"{}",
        b"[" * 5000,
        b"\xff",
        signed().replace(b"\n", b""),
        signed() + b" ",
        signed().replace(b"ed25", b"ED25"),
    ],
)
def test_a_signature_that_is_none_is_refused(signature: bytes) -> None:
    """Also one that says the same in other bytes."""
    error = refused(contents_of(FILES, signature))
    assert (error.code, "SIGNATURE" in str(error)) == ("invalid_signature", True)


def test_a_signature_holds_until_its_last_second() -> None:
    """And not without end, if it says so."""
    contents = contents_of(FILES, signed(not_after=NOW))
    assert verify(contents, TRUSTED, now=NOW).not_after == NOW
    assert refused(contents, now=NOW + timedelta(seconds=1)).code == "expired_signature"
    with pytest.raises(RequestError, match="needs a time zone"):
        signed(not_after=datetime(2026, 1, 1))


def test_a_signature_for_one_tenant_is_refused_for_another() -> None:
    """F78: not replayed elsewhere."""
    contents = contents_of(FILES, signed(tenant="acme"))
    assert verify(contents, TRUSTED, now=NOW, tenant="acme").statement.tenant == "acme"
    assert verify(contents, TRUSTED, now=NOW).statement.tenant == "acme"
    assert refused(contents, tenant="other").code == "wrong_tenant"
    assert verify(contents_of(FILES, signed()), TRUSTED, now=NOW, tenant="other").statement.tenant is None


# -- keys


def test_a_private_key_is_for_its_owner_only(tmp_path: Path) -> None:
    """0600, PEM, and never written over another."""
    ALICE.save(tmp_path / "alice.pem")
    assert stat.S_IMODE((tmp_path / "alice.pem").stat().st_mode) == 0o600
    assert (tmp_path / "alice.pem").read_text().startswith("-----BEGIN PRIVATE KEY-----\n")
    assert load_key(tmp_path / "alice.pem").public == ALICE.public
    with pytest.raises(RequestError, match="is there already"):
        MALLORY.save(tmp_path / "alice.pem")
    (tmp_path / "alice.pem").chmod(0o640)
    with pytest.raises(RequestError, match="can be read by others"):
        load_key(tmp_path / "alice.pem")


def test_a_private_key_does_not_show_itself() -> None:
    """Not in a log, not in a traceback."""
    assert repr(ALICE) == f"PrivateKey('alice', id='{ALICE.public.id}')"


def test_a_file_that_is_no_key_is_refused(tmp_path: Path) -> None:
    """Whatever it holds."""
    (tmp_path / "a.pem").touch(mode=0o600)
    with pytest.raises(RequestError, match="holds no private key") as raised:
        load_key(tmp_path / "a.pem")
    assert raised.value.code == "invalid_key"
    with pytest.raises(RequestError, match="there is no file"):
        load_key(tmp_path / "none.pem")


def test_a_public_key_is_one_line() -> None:
    """Files of them may have comments."""
    text = f"# those whom we trust\n\n{ALICE.public}\n  {MALLORY.public}\n"
    assert read_public_keys(text) == [ALICE.public, MALLORY.public]
    assert "\n" not in str(ALICE.public)


@pytest.mark.parametrize("line", ["alice", "ssh-ed25519 AAAA alice", "tidemill-ed25519 AAAA alice", "tidemill-ed25519"])
def test_a_line_that_is_no_key_is_refused(line: str) -> None:
    """With what it should look like."""
    with pytest.raises(RequestError, match="it is one line, 'tidemill-ed25519 KEY NAME'"):
        PublicKey.parse(line)
    with pytest.raises(RequestError, match="cannot be the name of a key"):
        generate_key("../alice")
