"""P-8, F76, F77: archives, and everything that hostile ones try."""

import io
import os
import stat
import struct
import unicodedata
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.packages.package_samples import FILES, MANIFEST, folder_of, listing, with_entry, zipped
from tidemill.kernel.errors import DefinitionError, RequestError, TidemillError
from tidemill.packages.format.archive import build, parse_archive, read_folder, unpack
from tidemill.packages.format.zip_format import ArchiveLimits, build_zip

SMALL = ArchiveLimits(
    entry_count=6, archive_size=10_000, total_size=3_000, file_size=2_000, compression_ratio=10, ratio_exempt_size=100
)


def refused(tmp_path: Path, raw: bytes, limits: ArchiveLimits = SMALL) -> RequestError:
    """Try to unpack an archive, and return why it was refused; nothing has been written anywhere."""
    archive = tmp_path / "in" / "evil.tidemill"
    archive.parent.mkdir()
    archive.write_bytes(raw)
    (tmp_path / "out").mkdir()
    with pytest.raises(RequestError) as raised:
        unpack(archive, tmp_path / "out" / "staging", limits)
    assert listing(tmp_path) == ["in", "in/evil.tidemill", "out"]
    return raised.value


# -- building


def test_an_archive_is_what_other_programs_read(tmp_path: Path) -> None:
    """It is a zip file, sorted, of one time and one mode."""
    build(folder_of(tmp_path / "market"), tmp_path / "market.tidemill")
    with zipfile.ZipFile(tmp_path / "market.tidemill") as archive:
        assert archive.testzip() is None
        assert {one.filename: archive.read(one) for one in archive.infolist()} == FILES
        assert archive.namelist() == sorted(FILES)
        assert {(one.date_time, one.external_attr >> 16) for one in archive.infolist()} == {
            ((1980, 1, 1, 0, 0, 0), 0o100644)
        }


def test_only_what_belongs_is_packed(tmp_path: Path) -> None:
    """Tests, hidden files and what Python compiled stay at home, and times and modes do not count."""
    plain = folder_of(tmp_path / "plain")
    untidy = folder_of(tmp_path / "untidy")
    rest = ["test_market.py", "README.md", ".git/config", "market/.env", "market/__pycache__/graphs.cpython-311.pyc"]
    folder_of(untidy, dict.fromkeys([*rest, "market/graphs.pyc", "other/__init__.py"], b"x"))
    (untidy / "market" / "empty").mkdir()
    (untidy / "market" / "graphs.py").chmod(0o700)
    os.utime(untidy / "package.toml", (0, 0))
    build(plain, tmp_path / "one.tidemill")
    build(untidy, tmp_path / "two.tidemill")
    assert (tmp_path / "one.tidemill").read_bytes() == (tmp_path / "two.tidemill").read_bytes()


@pytest.mark.parametrize("place", ["market/link.py", "market/sub", "package.toml", "market"])
def test_a_link_is_not_packed(tmp_path: Path, place: str) -> None:
    """It would bring in what lies elsewhere."""
    folder = folder_of(tmp_path / "package")
    if place in ("market", "package.toml"):
        (folder / place).rename(tmp_path / "elsewhere")
        (folder / place).symlink_to(tmp_path / "elsewhere")
    else:
        (folder / place).symlink_to(tmp_path)
    with pytest.raises(RequestError, match=rf"'{place}' is a symbolic link"):
        build(folder, tmp_path / "target.tidemill")
    assert not (tmp_path / "target.tidemill").exists()


def test_a_pipe_is_not_packed(tmp_path: Path) -> None:
    """Reading it would never end."""
    folder = folder_of(tmp_path / "package")
    os.mkfifo(folder / "market" / "pipe")
    with pytest.raises(RequestError, match=r"'market/pipe' is not a plain file"):
        read_folder(folder)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"market/graphs.py": b""}, "there is no package.toml"),
        ({"package.toml": MANIFEST}, "names module 'market', and there is no market.py or market/__init__.py"),
        ({**FILES, "market.py": b""}, "'market.py' is in the way of module 'market'"),
        (
            {"package.toml": MANIFEST.replace(b'"market"]', b'"market.sub"]'), "market.py": b"", "market/sub.py": b""},
            "'market.py' is in the way of module 'market.sub'",
        ),
        ({**FILES, "market/aux.py": b""}, "'market/aux.py' has a name that some systems cannot have"),
        ({**FILES, "market/Graphs.py": b""}, "'market/graphs.py' would be in one place with 'market/Graphs.py'"),
        ({**FILES, "market/big": b"x" * 2001}, "'market/big' has more than the 2,000 bytes that are allowed"),
        (FILES | {f"market/{number}": b"" for number in range(5)}, "it has more than 6 files"),
    ],
)
def test_a_folder_that_is_no_package_is_refused(tmp_path: Path, files: dict[str, bytes], said: str) -> None:
    """What could not be unpacked elsewhere is not packed."""
    folder = folder_of(tmp_path / "package", files)
    with pytest.raises(RequestError) as raised:
        read_folder(folder, SMALL)
    assert said in str(raised.value)


def test_an_archive_is_not_built_into_itself(tmp_path: Path) -> None:
    """The next one would hold it."""
    folder = folder_of(tmp_path / "package")
    with pytest.raises(RequestError, match="would lie inside the package"):
        build(folder, folder / "market" / "market.tidemill")


# -- there and back

NAMES = st.text(alphabet="abcxyz_09é漢", min_size=1, max_size=8)
TREES = st.dictionaries(NAMES, st.binary(max_size=200), max_size=4)


@given(modules=TREES, data=TREES)
def test_built_unpacked_and_built_again_is_byte_identical(
    modules: dict[str, bytes], data: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """P-8: whatever the names and contents."""
    top = tmp_path_factory.mktemp("round")
    files = FILES | {f"market/sub/{name}.py": content for name, content in modules.items()}
    files |= {f"market/data/{name}": content for name, content in data.items()}
    build(folder_of(top / "package", files), top / "one.tidemill")
    unpack(top / "one.tidemill", top / "unpacked")
    build(top / "unpacked", top / "two.tidemill")
    assert (top / "one.tidemill").read_bytes() == (top / "two.tidemill").read_bytes()
    assert read_folder(top / "unpacked").files == files == read_folder(top / "package").files


def test_unpacked_files_are_plain(tmp_path: Path) -> None:
    """No account can run them, and only their owner can change them."""
    (tmp_path / "a.tidemill").write_bytes(with_entry("market/tool", mode=0o100777))
    contents = unpack(tmp_path / "a.tidemill", tmp_path / "staging")
    assert contents.manifest.name == "market"
    assert stat.S_IMODE((tmp_path / "staging/market/tool").stat().st_mode) & 0o133 == 0


def test_compressed_archives_can_be_read_too(tmp_path: Path) -> None:
    """As long as they keep to the rules."""
    text = {**FILES, "market/data/prices.csv": bytes(range(256)) * 8}
    assert parse_archive(zipped(text, zipfile.ZIP_DEFLATED), "a").files == dict(sorted(text.items()))


@pytest.mark.parametrize("kind", ["full", "file", "link"])
def test_nothing_is_unpacked_over_something(tmp_path: Path, kind: str) -> None:
    """A staging folder is empty, and a folder."""
    (tmp_path / "a.tidemill").write_bytes(zipped(FILES))
    (tmp_path / "elsewhere").mkdir()
    staging = tmp_path / "staging"
    if kind == "full":
        folder_of(staging, {"precious": b"x"})
    elif kind == "file":
        staging.write_bytes(b"precious")
    else:
        staging.symlink_to(tmp_path / "elsewhere")
    before = listing(tmp_path)
    with pytest.raises(RequestError, match="is not empty") as raised:
        unpack(tmp_path / "a.tidemill", staging)
    assert (raised.value.code, listing(tmp_path)) == ("file_exists", before)


# -- attacks


@pytest.mark.parametrize(
    "name",
    [
        *["../evil", "market/../../evil", "market/..", "/etc/evil", "//evil", "market//evil", "./market/evil"],
        *["C:evil", "C:/evil", "market/c:evil", "..\\evil", "market\\evil", "\\\\host\\evil", "market/evil\0.py"],
        *["market/\x1b[2Jevil", "market/\u202eevil", "market/.hidden", ".evil", "market/__pycache__/evil.pyc"],
        *["market/evil.pyc", "market/evil.", "market/evil ", "market/CON", "market/nul.txt", ""],
        *["market/" + "e" * 200, "market/" + "e/" * 20 + "e", "other/__init__.py", "evil.py", "market.so"],
        *["__pycache__/market.cpython-311.pyc", "sitecustomize.py", "Market/evil.py", "PACKAGE.TOML"],
    ],
)
def test_a_name_that_leads_elsewhere_is_refused_and_named(tmp_path: Path, name: str) -> None:
    """F76: escapes, drives, hidden files, and what the manifest does not allow."""
    error = refused(tmp_path, with_entry(name))
    assert (error.code, error.facts["entry"]) == ("invalid_package", name)
    assert repr(name)[1:40] in str(error)
    assert str(error).isprintable()


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (stat.S_IFLNK | 0o777, "is a symbolic link"),
        (stat.S_IFDIR | 0o755, "is a folder"),
        (stat.S_IFIFO | 0o644, "is not a plain file"),
        (stat.S_IFCHR | 0o644, "is not a plain file"),
        (stat.S_IFBLK | 0o644, "is not a plain file"),
        (stat.S_IFSOCK | 0o644, "is not a plain file"),
        (stat.S_IFREG | 0o4755, "is not a plain file"),
        (stat.S_IFREG | 0o2755, "is not a plain file"),
    ],
)
def test_special_files_are_refused(tmp_path: Path, mode: int, said: str) -> None:
    """F76: links, devices, pipes, files that run as another account."""
    error = refused(tmp_path, with_entry("market/evil", b"/etc/passwd", mode=mode))
    assert f"entry 'market/evil' {said}" in str(error)


@pytest.mark.parametrize(
    "pair",
    [
        ("market/one.py", "market/one.py"),
        ("market/one.py", "market/ONE.py"),
        ("market/straße", "market/STRASSE"),
        (unicodedata.normalize("NFC", "market/é"), unicodedata.normalize("NFD", "market/é")),
        ("market/ﬁ", "market/fi"),
        ("market/Sub/one", "market/sub/two"),
        ("market/one", "market/one/two"),
        ("market/one/two", "market/one"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_files_for_one_place_are_refused(tmp_path: Path, pair: tuple[str, str]) -> None:
    """F76: also where a file system, not we, would take them for one."""
    error = refused(tmp_path, zipped([*list(FILES.items())[:2], *((name, b"x") for name in pair)]))
    assert error.code == "invalid_package"
    assert error.facts["entry"] in pair


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({f"market/{number}": b"" for number in range(5)}, "it has 7 entries, and 6 are allowed"),
        ({"market/a": os.urandom(2001)}, "entry 'market/a' has 2,001 bytes, and 2,000 are allowed"),
        ({"market/a": os.urandom(1500), "market/b": os.urandom(1500)}, "bytes, and 3,000 are allowed"),
        ({"market/a": b"\0" * 2000}, "entry 'market/a' expands to more than 10 times its size"),
        ({"market/a": os.urandom(12_000)}, "'evil.tidemill' has more than the 10,000 bytes"),
    ],
)
def test_bombs_are_refused_before_they_are_expanded(tmp_path: Path, files: dict[str, bytes], said: str) -> None:
    """F77: entries, sizes, ratio."""
    first = {"package.toml": MANIFEST, "market/__init__.py": b""}
    error = refused(tmp_path, zipped(first | files, zipfile.ZIP_DEFLATED))
    assert (error.code, error.status) == ("package_too_large", 413)
    assert said in str(error)


def field(raw: bytes, name: bytes, local: tuple[int, str], central: tuple[int, str], value: int) -> bytes:
    """Return an archive in which a field of an entry is another, in both of its headers."""
    changed = bytearray(raw)
    for size, (offset, form) in ((30, local), (46, central)):
        at = raw.index(name) - size if size == 30 else raw.rindex(name) - size
        struct.pack_into(form, changed, at + offset, value)
    return bytes(changed)


BIG = {"package.toml": MANIFEST, "market/__init__.py": b"", "market/big": b"0123456789" * 150}


def test_a_size_that_lies_is_noticed(tmp_path: Path) -> None:
    """F77: expanding stops at what was said."""
    raw = field(zipped(BIG, zipfile.ZIP_DEFLATED), b"market/big", (22, "<I"), (24, "<I"), 90)
    error = refused(tmp_path, raw)
    assert "entry 'market/big' does not expand to the 90 bytes that it says" in str(error)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (((6, "<H"), (8, "<H"), 1), "is encrypted"),
        (((6, "<H"), (8, "<H"), 8), "is packed in a way that is not allowed"),
        (((8, "<H"), (10, "<H"), 12), "is packed in a way that is not allowed"),
        (((14, "<I"), (16, "<I"), 1), "is damaged: its checksum is another"),
        (((18, "<I"), (20, "<I"), 2**31), "is cut off"),
        (((28, "<H"), (30, "<H"), 4), "has a comment or extra fields"),
        (((6, "<H"), (42, "<I"), 0), "does not begin where the one before it ends"),
        (((6, "<H"), (34, "<H"), 1), "has a comment or extra fields"),
    ],
)
def test_entries_that_are_not_what_they_say_are_refused(
    tmp_path: Path, change: tuple[tuple[int, str], tuple[int, str], int], said: str
) -> None:
    """Encryption, other ways of packing, overlapping entries, extra fields, several disks."""
    error = refused(tmp_path, field(zipped(BIG), b"market/big", *change))
    assert f"entry 'market/big' {said}" in str(error)


def test_two_descriptions_of_one_entry_must_agree(tmp_path: Path) -> None:
    """Other programs read the one, we the other."""
    raw = zipped(BIG)
    assert "entry 'market/big' is described in two ways" in str(refused(tmp_path, raw.replace(b"t/big", b"t/bug", 1)))


@pytest.mark.parametrize(
    "mangle",
    [
        lambda raw: b"",
        lambda raw: b"no zip",
        lambda raw: b"MZ" + raw,
        lambda raw: raw + b"\0",
        lambda raw: raw + raw,
        lambda raw: raw[:-1],
        lambda raw: raw[:-22],
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw[:-2] + b"\x01\x00!",
        lambda raw: raw[:-22] + b"PK\x05\x06" + b"\xff" * 16 + b"\0\0",
        lambda raw: build_zip({}),
    ],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, mangle: object) -> None:
    """Cut off, with something before or behind, or of more than 4 GiB, as it says."""
    assert callable(mangle)
    assert refused(tmp_path, mangle(zipped(BIG))).code in ("invalid_package", "package_too_large")


def test_a_bad_manifest_in_an_archive_is_reported_with_its_line(tmp_path: Path) -> None:
    """As in a folder."""
    (tmp_path / "a.tidemill").write_bytes(zipped({**FILES, "package.toml": b"[package]\nnaem = 'x'\n"}))
    with pytest.raises(DefinitionError, match=r"a\.tidemill/package\.toml:2: unknown key 'naem' in \[package\]"):
        unpack(tmp_path / "a.tidemill", tmp_path / "staging")
    assert not (tmp_path / "staging").exists()


def test_a_disk_that_is_full_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was unpacked so far is taken away again."""
    (tmp_path / "a.tidemill").write_bytes(zipped(FILES))
    opened: list[object] = []
    really = os.open

    def failing(path: object, *rest: int, **options: int) -> int:
        opened.append(path)
        if len(opened) == 3:
            raise OSError(28, "No space left on device")
        return really(path, *rest, **options)

    monkeypatch.setattr("tidemill.packages.format.archive.os.open", failing)
    with pytest.raises(TidemillError, match=r"could not be unpacked: .*No space left"):
        unpack(tmp_path / "a.tidemill", tmp_path / "staging")
    assert listing(tmp_path) == ["a.tidemill"]


# -- random damage


@given(
    method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
    damage=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 255), st.sampled_from(["set", "cut", "add"])), max_size=4
    ),
)
def test_damage_is_refused_or_harmless_and_never_leads_outside(
    method: int, damage: list[tuple[float, int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """P-8, F76: one of our errors, or a staging folder and nothing else."""
    top = tmp_path_factory.mktemp("damage")
    raw = bytearray(zipped(BIG, method))
    for place, value, kind in damage:
        at = min(int(place * len(raw)), len(raw) - 1)
        if kind == "cut":
            del raw[at : at + 1 + value % 16]
        elif kind == "add":
            raw[at:at] = bytes([value])
        else:
            raw[at] = value
    (top / "a.tidemill").write_bytes(raw)
    try:
        unpack(top / "a.tidemill", top / "staging", SMALL)
    except TidemillError:
        assert listing(top) == ["a.tidemill"]
    else:
        assert [one for one in listing(top) if not one.startswith("staging")] == ["a.tidemill"]
        assert set(listing(top / "staging")) == {*BIG, "market"}


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_refused_with_our_errors(noise: bytes, is_headed: bool) -> None:
    """Also if they begin and end like a zip file."""
    sound = io.BytesIO(zipped(BIG)).getvalue()
    with pytest.raises(TidemillError):
        parse_archive(sound[:40] + noise + sound[-22:] if is_headed else noise, "noise", SMALL)
