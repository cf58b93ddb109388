"""A folder that is watched: what is wanted of it."""

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.packages.package_samples import FILES, MANIFEST, folder_of
from tests.unit.packages.watched import FLOW, digests, manifest, names
from tidemill.kernel.errors import DefinitionError, OperationError, RequestError, TidemillError
from tidemill.packages.format.archive import PackageContents, build, parse_archive
from tidemill.packages.reconcile import folder as watching
from tidemill.packages.reconcile.debounce import DebounceTimes
from tidemill.packages.reconcile.decision import DesiredPackage
from tidemill.packages.reconcile.folder import FolderSource
from tidemill.packages.reconcile.scanner import FoundPackage
from tidemill.packages.status import PackageKey

BROKEN = b"[package]\nname = 'market'\nversion = 1\n"


def named(found: Mapping[object, DesiredPackage], name: str) -> DesiredPackage:
    """Return what is wanted under a name."""
    (one,) = [one for one in found.values() if one.key.name == name]
    return one


# -- what is wanted


async def test_a_folder_with_a_manifest_is_one_package(tmp_path: Path) -> None:
    """Whatever else lies in it."""
    folder_of(tmp_path)
    (tmp_path / "other.py").write_text(FLOW)
    folder_of(tmp_path / "inner")
    source = FolderSource(tmp_path, "acme")
    assert await names(source) == {"market": "1.2.0"}
    (one,) = (await source.desired_packages()).values()
    assert one.title == str(tmp_path)
    assert list((await one.read()).files) == sorted(FILES)


async def test_folders_archives_and_files_are_found(tmp_path: Path) -> None:
    """Direct ones, and no others."""
    folder_of(tmp_path / "shop", FILES | {"package.toml": manifest("shop")})
    build(folder_of(tmp_path / "deeper" / "market"), tmp_path / "market-1.2.0.tidemill")
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "late.py").write_text("def f():\n    from tidemill.testing import node\n")
    (tmp_path / "damaged.py").write_text("import tidemill as tm\ndef f(:\n")
    (tmp_path / "notes.txt").write_text("tidemill")
    for name in ("plain.py", "names.py", "relative.py"):
        (tmp_path / name).write_text("import json  # not tidemill\nfrom .tidemill import x\n")
    for name in ("test_flow.py", "flow_test.py", "conftest.py", "_flow.py", ".flow.py", "flow.py~", "#flow.py#"):
        (tmp_path / name).write_text(FLOW)
    (tmp_path / ".hidden").mkdir()
    folder_of(tmp_path / ".hidden")
    (tmp_path / "damaged_words.py").write_text("def f(:\n")
    source = FolderSource(tmp_path, "acme")
    found = await names(source)
    assert sorted(found) == ["damaged", "flow", "late", "market", "shop"]
    assert (found["market"], found["shop"]) == ("1.2.0", "1.0.0")
    contents = await named(await source.desired_packages(), "flow").read()
    assert contents.manifest.modules == ("flow",)
    assert contents.files["flow.py"] == FLOW.encode()


@pytest.mark.parametrize("name", ["flow.py", "test_flow.py", "plain.py"])
async def test_a_single_file_is_that_package(tmp_path: Path, name: str) -> None:
    """Whatever it is called: it was named."""
    (tmp_path / name).write_text("VALUE = 1\n" if name == "plain.py" else FLOW)
    (tmp_path / "other.py").write_text(FLOW)
    source = FolderSource(tmp_path / name, "acme")
    (one,) = (await source.desired_packages()).values()
    assert one.key.name == name.removesuffix(".py")
    assert (await one.read()).manifest.name == one.key.name


async def test_a_file_that_cannot_be_a_package_is_reported(tmp_path: Path) -> None:
    """P-10: with the file, and what to do; the others are wanted all the same."""
    for name in ("my-flow.py", "json.py", "class.py", "flow.py"):
        (tmp_path / name).write_text(FLOW)
    (tmp_path / "linked.py").symlink_to("flow.py")
    found = await FolderSource(tmp_path, "acme").desired_packages()
    words = {"my-flow": "a name has small letters", "json": "would hide a module", "class": "is a keyword of Python"}
    for name, said in words.items():
        with pytest.raises(DefinitionError, match=f"{name}.py:1: the file cannot be a package: .*{said}.*; rename it"):
            await named(found, name).read()
    for name in ("flow", "linked"):
        contents = await named(found, name).read()
        assert parse_archive(contents.to_archive(), "again").files == contents.files
    assert sorted(key.name for key in found) == sorted([*words, "flow", "linked"])


async def test_a_single_archive_is_that_package(tmp_path: Path) -> None:
    """And its name is that of its manifest."""
    build(folder_of(tmp_path / "market"), tmp_path / "any.tidemill")
    source = FolderSource(tmp_path / "any.tidemill", "acme")
    assert await names(source) == {"market": "1.2.0"}
    (one,) = (await source.desired_packages()).values()
    assert (await one.read()).raw == (tmp_path / "any.tidemill").read_bytes()


async def test_a_folder_that_is_not_there_is_reported_and_not_taken_for_empty(tmp_path: Path) -> None:
    """What is loaded must not be unloaded because a disk is not mounted."""
    for path in (tmp_path / "later" / "packages", tmp_path / "flow.py", tmp_path / "a.tidemill"):
        with pytest.raises(OperationError, match=f"there is no .* {path}"):
            await FolderSource(path, "acme").desired_packages()
    assert await FolderSource(tmp_path, "acme").desired_packages() == {}


async def test_a_damaged_manifest_is_reported_with_its_line(tmp_path: Path) -> None:
    """P-10: under the name of the folder, as nothing else is known of it."""
    folder_of(tmp_path / "stall-1.2", FILES | {"package.toml": BROKEN})
    folder_of(tmp_path / "shop", FILES | {"package.toml": manifest("shop")})
    source = FolderSource(tmp_path, "acme")
    assert await names(source) == {"stall-1.2": None, "shop": "1.0.0"}
    with pytest.raises(DefinitionError) as caught:
        await named(await source.desired_packages(), "stall-1.2").read()
    assert str(caught.value.problems[0].location) == f"{tmp_path / 'stall-1.2' / 'package.toml'}:3"


async def test_a_package_that_was_damaged_later_stays_the_same_package(tmp_path: Path) -> None:
    """P-10: else its last good version would be unloaded, as it is wanted no more."""
    folder_of(tmp_path / "stall")
    build(tmp_path / "stall", tmp_path / "shop-1.0.0.tidemill")
    (tmp_path / "stall" / "package.toml").write_bytes(manifest("stall_of_fruit"))
    source = FolderSource(tmp_path, "acme")
    assert await names(source) == {"market": "1.2.0", "stall_of_fruit": "1.0.0"}
    (tmp_path / "stall" / "package.toml").write_bytes(BROKEN)
    (tmp_path / "shop-1.0.0.tidemill").write_bytes(b"half an archive")
    assert await names(source) == {"market": None, "stall_of_fruit": None}
    for one in (await source.desired_packages()).values():
        with pytest.raises(TidemillError):
            await one.read()


async def test_of_two_with_one_name_the_first_keeps_it(tmp_path: Path) -> None:
    """Neither hides the other: the second has a key of its own, and its reading says why."""
    folder_of(tmp_path / "m")
    source = FolderSource(tmp_path, "acme")
    assert await names(source) == {"market": "1.2.0"}
    folder_of(tmp_path / "a")
    assert await names(source) == {"market": "1.2.0", "market (a)": "1.2.0"}
    found = await source.desired_packages()
    assert (await named(found, "market").read()).title == str(tmp_path / "m")
    with pytest.raises(RequestError, match=f"is a package 'market', and so is {tmp_path / 'm'}; rename") as caught:
        await named(found, "market (a)").read()
    assert caught.value.code == "name_taken"
    shutil.rmtree(tmp_path / "m")
    assert await names(source) == {"market": "1.2.0"}
    assert (await named(await source.desired_packages(), "market").read()).title == str(tmp_path / "a")


async def test_a_damaged_namesake_does_not_take_the_name(tmp_path: Path) -> None:
    """A folder called 'market', of which nothing is known, beside a package that says that it is 'market'."""
    folder_of(tmp_path / "market", FILES | {"package.toml": BROKEN})
    folder_of(tmp_path / "z")
    source = FolderSource(tmp_path, "acme")
    assert await names(source) == {"market": "1.2.0", "market (market)": None}
    with pytest.raises(DefinitionError):
        await named(await source.desired_packages(), "market (market)").read()


async def test_what_was_renamed_meanwhile_is_not_read_under_its_old_name(tmp_path: Path) -> None:
    """Else one package would be loaded in the place of another."""
    folder_of(tmp_path / "stall")
    (one,) = (await FolderSource(tmp_path, "acme").desired_packages()).values()
    (tmp_path / "stall" / "package.toml").write_bytes(manifest("shop"))
    with pytest.raises(OperationError, match="was changed while it was read: it is 'shop' now, not 'market'"):
        await one.read()


@pytest.mark.parametrize("place", ["flow.py", "market/market/__init__.py", "market/package.toml"])
async def test_what_is_just_being_saved_is_read_when_it_is_there_again(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-6: else half a version would be loaded in the place of a whole one."""
    (tmp_path / "flow.py").write_text(FLOW)
    folder_of(tmp_path / "market")
    found, file, reads, reading = (
        await FolderSource(tmp_path, "acme").desired_packages(),
        tmp_path / place,
        [],
        watching._read_and_compare,
    )
    before = file.read_bytes()

    def read(sighting: FoundPackage) -> tuple[PackageContents, bool]:
        if len(reads) == 1:
            file.write_bytes(before)
        reads.append(len(file.read_bytes()))
        return reading(sighting)

    monkeypatch.setattr(watching, "_read_and_compare", read)
    file.write_bytes(b"" if place != "market/package.toml" else before[:20])
    contents = await named(found, place.partition("/")[0].removesuffix(".py")).read()
    assert contents.files[place.removeprefix("market/")] == before
    if place != "market/package.toml":
        file.write_bytes(b"")
        with pytest.raises(OperationError, match="was changed again before it was read"):
            await named(found, place.partition("/")[0].removesuffix(".py")).read()


async def test_what_cannot_be_read_is_the_trouble_of_one_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-12: a broken package never delays another."""
    folder_of(tmp_path / "market")
    folder_of(tmp_path / "shop", FILES | {"package.toml": manifest("shop")})
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop.py").symlink_to("loop.py")

    def refusing(listing: Callable[[Any], Any]) -> Callable[[str | Path], Any]:
        def refuse(folder: str | Path) -> Any:
            if tmp_path / "market" in Path(folder).parents:
                raise PermissionError(13, "no")
            return listing(folder)

        return refuse

    for name in ("listdir", "scandir"):  # versions of Python list a folder with the one or the other
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    source = FolderSource(tmp_path, "acme")
    before = await digests(source)
    assert sorted(before) == ["market", "shop"]
    with pytest.raises(OperationError, match="could not be read"):
        await named(await source.desired_packages(), "market").read()
    monkeypatch.undo()
    after = await digests(source)
    assert after["market"] != before["market"]
    assert after["shop"] == before["shop"]


async def test_names_that_are_not_text_are_no_trouble(tmp_path: Path) -> None:
    """The reader of the package reports them, and the folder is watched all the same."""
    folder_of(tmp_path / "market")
    os.makedirs(os.fsencode(tmp_path / "market" / "market") + b"/\xff")
    source = FolderSource(tmp_path, "acme")
    assert await names(source) == {"market": "1.2.0"}
    (tmp_path / "market" / "market" / "graphs.py").write_text("x = 1\n")
    async with asyncio.timeout(10):
        await source.wait_for_change()


# -- digests


async def test_the_digest_is_of_what_belongs_to_the_package(tmp_path: Path) -> None:
    """Names and contents; not times, nor what lies beside it."""
    market = folder_of(tmp_path / "market")
    source = FolderSource(tmp_path, "acme")
    before = await digests(source)
    (market / "test_market.py").write_text("x")
    (market / "market" / "__pycache__").mkdir()
    (market / "market" / "__pycache__" / "graphs.cpython-311.pyc").write_text("x")
    (market / "market" / "graphs.py~").write_text("x")
    (market / "market" / "4913").write_text("x")
    (market / "market" / ".graphs.py.swp").write_text("x")
    os.utime(market / "market" / "graphs.py")
    assert await digests(source) == before
    changes = [
        lambda: (market / "market" / "graphs.py").write_text("x = 1\n"),
        lambda: (market / "market" / "data" / "prices.csv").rename(market / "market" / "data" / "price.csv"),
        lambda: (market / "market" / "new.py").write_text(""),
        lambda: (market / "SIGNATURE").write_text("{}"),
        lambda: (market / "package.toml").write_bytes(MANIFEST + b"# more\n"),
        lambda: (market / "market" / "new.py").unlink(),
        lambda: (market / "market" / "link.py").symlink_to("graphs.py"),
    ]
    seen = [before]
    for change in changes:
        change()
        now = await digests(source)
        assert now not in seen
        seen.append(now)
    assert await digests(FolderSource(tmp_path, "acme")) == seen[-1]


async def test_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at many packages must cost little: what has not changed is not read again."""
    folder_of(tmp_path / "market")
    source = FolderSource(tmp_path, "acme")
    before = await digests(source)
    read: list[str] = []
    reading = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path.name), reading(path))[1])
    assert await digests(source) == before
    assert read == []
    (tmp_path / "market" / "market" / "graphs.py").write_text("x = 1\n")
    assert await digests(source) != before
    assert read == ["graphs.py"]


PLACES = [
    "market/package.toml",
    "market/market/__init__.py",
    "market/market/a.py",
    "shop/package.toml",
    "flow.py",
    "a.py",
]
TEXTS = [FLOW, "import json\n", manifest("market").decode(), BROKEN.decode(), ""]
STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(PLACES), st.sampled_from(TEXTS)),
    st.tuples(st.just("replace"), st.sampled_from(PLACES), st.sampled_from(TEXTS)),
    st.tuples(st.just("move"), st.sampled_from(["market", "shop", *PLACES]), st.sampled_from(["stall", "z.py"])),
    st.tuples(st.just("remove"), st.sampled_from(["market", "stall", *PLACES]), st.just("")),
)


def take(step: tuple[str, str, str], folder: Path, number: int) -> None:
    """Change something, as far as that is possible; what is written has a size that nothing had before."""
    kind, place, value = step
    path = folder / place
    with suppress(OSError):
        if kind == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}#{'x' * number}\n")
        elif kind == "replace":
            new = folder / ".new"
            new.write_text(f"{value}#{'x' * number}\n")
            new.replace(path)
        elif kind == "move":
            path.rename(folder / value)
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@given(st.lists(STEPS, min_size=1, max_size=15))
def test_what_is_remembered_of_files_is_never_wrong(steps: list[tuple[str, str, str]]) -> None:
    """A source with a history reports what a new one does that knows which Python files were packages."""

    async def seen(source: FolderSource) -> dict[str, tuple[str, str | None]]:
        return {one.title: (one.digest, one.version) for one in (await source.desired_packages()).values()}

    async def play(folder: Path) -> None:
        source = FolderSource(folder, "acme", debounce=DebounceTimes(quiet=0, removal=0, max_delay=0))
        known: set[str] = set()
        for number, step in enumerate(steps):
            take(step, folder, number)
            fresh = FolderSource(folder, "acme")
            fresh.remember_packages(PackageKey("acme", name) for name in known)
            found = await seen(source)
            assert found == await seen(fresh)
            known |= {Path(title).stem for title in found if title.endswith(".py")}

    with TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))


# -- Python files that were packages

BROKEN_SAVES = {
    "a half-written line": "def f(:\n",
    "a text that is no Python": "this is not Python\n",
    "no import": "flow = tm.Workflow('flow')\n",
    "an indent": "  x = 1\n",
    "a NUL character": "x = 1\0\n",
}
SOUND_SAVES = {
    "nothing": "",
    "a comment": "# moved to another file\n",
    "a plain module": "import json\n\nprint(json.dumps([__name__, __file__]))\n\n\ndef f():\n    return unknown\n",
    "names from anywhere": "from os.path import *\n\nhome = expanduser('~')\n",
}


@pytest.mark.parametrize("save", BROKEN_SAVES)
@pytest.mark.parametrize("is_emptied_first", [False, True])
async def test_a_package_file_that_is_saved_broken_stays_a_package(
    tmp_path: Path, save: str, *, is_emptied_first: bool
) -> None:
    """P-10: even if it does not mention Tidemill any more, and if a scan found it empty in between."""
    file = tmp_path / "flow.py"
    file.write_text(FLOW)
    source = FolderSource(tmp_path, "acme", debounce=DebounceTimes(removal=3600.0))
    before = await digests(source)
    if is_emptied_first:
        file.write_text("")
        assert await digests(source) == before
    file.write_text(BROKEN_SAVES[save])
    after = await digests(source)
    assert after.keys() == {"flow"}
    assert after != before


@pytest.mark.parametrize("save", SOUND_SAVES)
async def test_a_package_file_that_is_sound_and_no_longer_imports_tidemill_is_no_package(
    tmp_path: Path, save: str
) -> None:
    """It was emptied, or became a plain module."""
    (tmp_path / "flow.py").write_text(FLOW)
    source = FolderSource(tmp_path, "acme")
    assert await names(source)
    (tmp_path / "flow.py").write_text(SOUND_SAVES[save])
    assert await names(source) == {}


async def test_a_package_file_that_cannot_be_read_stays_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-10: reading it reports why."""
    (tmp_path / "flow.py").write_text(FLOW)
    source = FolderSource(tmp_path, "acme")
    before = await digests(source)
    (tmp_path / "flow.py").write_text(f"{FLOW}# saved again\n")

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "no", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    after = await digests(source)
    assert after.keys() == {"flow"}
    assert after != before


@pytest.mark.parametrize("save", BROKEN_SAVES)
async def test_a_broken_file_that_was_never_a_package_is_none(tmp_path: Path, save: str) -> None:
    """Unless an earlier process had loaded it."""
    (tmp_path / "flow.py").write_text(BROKEN_SAVES[save])
    assert await names(FolderSource(tmp_path, "acme")) == {}
    source = FolderSource(tmp_path, "acme")
    source.remember_packages([PackageKey("acme", "flow"), PackageKey("other", "flow"), PackageKey("acme", "gone")])
    assert (await names(source)).keys() == {"flow"}
