"""A folder that is watched: when it reports that something has changed."""

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Self

import pytest
from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from tests.unit.packages.package_samples import FILES, folder_of
from tests.unit.packages.watched import FLOW, digests, manifest, names
from tidemill.kernel.errors import OperationError
from tidemill.packages.format.archive import build
from tidemill.packages.reconcile import folder as watching
from tidemill.packages.reconcile.folder import FolderSource


class Watcher:
    """What watches for the source, and how often it was made to listen."""

    listening = threading.Semaphore(0)
    made = 0

    def __init__(self, *arguments: Any) -> None:
        self._watcher = RustNotify(*arguments)
        type(self).made += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._watcher.close()

    def watch(self, *arguments: Any) -> Any:
        """Watch, and say so."""
        type(self).listening.release()
        return self._watcher.watch(*arguments)


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch) -> type[Watcher]:
    """Lets a test wait until the source listens, and hear of nothing but what the test reports."""

    class Fresh(Watcher):
        listening = threading.Semaphore(0)

    monkeypatch.setattr(watching, "RustNotify", Fresh)
    monkeypatch.setattr(watching, "UNPROMPTED_SCAN_INTERVAL_MS", 600_000)
    return Fresh


async def news(source: FolderSource, watcher: type[Watcher], *changes: Callable[[], object]) -> None:
    """Make changes while the source listens, and wait until it has told of them."""
    with suppress(OperationError):
        await source.desired_packages()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        task = group.create_task(source.wait_for_change())
        await asyncio.to_thread(watcher.listening.acquire)
        assert not task.done()
        for change in changes:
            change()
        await task


async def test_a_change_is_reported_at_once(tmp_path: Path, watcher: type[Watcher]) -> None:
    """P-10: an author who saves a file does not wait."""
    market = folder_of(tmp_path / "market")
    source = FolderSource(tmp_path, "acme")
    before = await digests(source)
    began: list[float] = []
    await news(
        source,
        watcher,
        lambda: began.append(monotonic()),
        lambda: (market / "market" / "graphs.py").write_text("x = 1\n"),
    )
    assert monotonic() - began[0] < 1.0  # it is about 40 ms: this leaves room for a busy machine
    assert await digests(source) != before


async def test_a_change_before_it_is_waited_for_is_reported_as_well(tmp_path: Path) -> None:
    """Nothing is lost between two calls; and without a change nothing is reported twice."""
    market = folder_of(tmp_path / "market")
    source = FolderSource(tmp_path, "acme")
    await source.desired_packages()
    (market / "market" / "graphs.py").write_text("x = 1\n")
    async with asyncio.timeout(20):
        await source.wait_for_change()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await source.wait_for_change()


async def test_a_file_that_looks_as_before_is_read_again_when_it_was_written(
    tmp_path: Path, watcher: type[Watcher]
) -> None:
    """Two writes within one tick of the file system's clock leave the same size and the same time."""
    file = folder_of(tmp_path / "market") / "market" / "graphs.py"
    file.write_text("x = 0\n")
    time = file.stat().st_mtime_ns
    source = FolderSource(tmp_path, "acme")

    def write(number: int) -> None:
        file.write_text(f"x = {number}\n")
        os.utime(file, ns=(time, time))

    seen = [await digests(source)]
    await news(source, watcher, partial(write, 1))
    seen.append(await digests(source))
    write(2)  # while nothing listens
    async with asyncio.timeout(20):
        await source.wait_for_change()
    seen.append(await digests(source))
    assert seen[0] != seen[1] != seen[2]


async def test_several_writes_of_one_save_are_one_change(tmp_path: Path, watcher: type[Watcher]) -> None:
    """A package is not tried while half of it is written."""
    market = folder_of(tmp_path / "market") / "market"
    source = FolderSource(tmp_path, "acme")

    def write() -> None:
        for number in range(30):
            (market / f"part{number}.py").write_text("x = 1\n")

    await news(source, watcher, write)
    assert (await source.desired_packages()).values()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await source.wait_for_change()


async def test_what_is_no_part_of_a_package_is_not_told(tmp_path: Path, watcher: type[Watcher]) -> None:
    """Bytecode, hidden files, what editors keep for a moment, files beside the modules, and times."""
    market = folder_of(tmp_path / "market")
    source = FolderSource(tmp_path, "acme")
    await source.desired_packages()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(source.wait_for_change())
        await asyncio.to_thread(watcher.listening.acquire)
        for name in (".graphs.py.swp", "4913", "graphs.py~", "graphs.pyc"):
            (market / "market" / name).write_text("x")
        (market / "test_market.py").write_text("x")
        (tmp_path / "store.db").write_text("x")
        (market / "market" / "__pycache__").mkdir()
        os.utime(market / "market" / "graphs.py")
        await asyncio.to_thread(watcher.listening.acquire)  # it heard, looked, and listens again
        assert not task.done()
        task.cancel()


async def test_editors_that_save_by_renaming_are_noticed(tmp_path: Path, watcher: type[Watcher]) -> None:
    """A file that takes the place of another, in a folder and as the only one."""
    market = folder_of(tmp_path / "market")

    def save(path: Path, text: str) -> None:
        new = path.with_name(f".{path.name}.tmp")
        new.write_text(text)
        new.replace(path)

    source = FolderSource(tmp_path, "acme")
    for text in ("x = 1\n", "x = 2\n"):
        before = await digests(source)
        await news(source, watcher, partial(save, market / "market" / "graphs.py", text))
        assert await digests(source) != before
    (tmp_path / "flow.py").write_text(FLOW)
    source = FolderSource(tmp_path / "flow.py", "acme")
    before = await digests(source)
    await news(source, watcher, partial(save, tmp_path / "flow.py", FLOW + "# more\n"))
    assert await digests(source) != before


async def test_packages_come_and_go(tmp_path: Path, watcher: type[Watcher]) -> None:
    """A manifest that is written into a folder, an archive, a file that begins to use Tidemill; and back."""
    (tmp_path / "market" / "market").mkdir(parents=True)
    (tmp_path / "flow.py").write_text("x = 1\n")
    source = FolderSource(tmp_path, "acme")
    assert await names(source) == {}
    await news(source, watcher, lambda: folder_of(tmp_path / "market"))
    assert await names(source) == {"market": "1.2.0"}
    await news(source, watcher, lambda: (tmp_path / "flow.py").write_text(FLOW))
    assert sorted(await names(source)) == ["flow", "market"]
    built = tmp_path / ".shop.tidemill"
    build(folder_of(tmp_path / ".shop", FILES | {"package.toml": manifest("shop")}), built)
    await news(source, watcher, lambda: built.rename(tmp_path / "shop.tidemill"))
    assert sorted(await names(source)) == ["flow", "market", "shop"]
    await news(source, watcher, lambda: shutil.rmtree(tmp_path / "market"))
    await news(source, watcher, (tmp_path / "flow.py").unlink)
    assert sorted(await names(source)) == ["shop"]


async def test_a_package_that_is_moved_is_reported(tmp_path: Path, watcher: type[Watcher]) -> None:
    """It is the same, and lies somewhere else: a status that shows where it comes from needs it."""
    market = folder_of(tmp_path / "market")
    source = FolderSource(tmp_path, "acme")
    before = await digests(source)
    await news(source, watcher, lambda: market.rename(tmp_path / "moved"))
    assert await digests(source) == before
    assert [one.title for one in (await source.desired_packages()).values()] == [str(tmp_path / "moved")]


async def test_a_module_that_becomes_a_folder_is_watched(tmp_path: Path, watcher: type[Watcher]) -> None:
    """Folders that are new, however deep, and written to later."""
    market = folder_of(tmp_path / "market")
    source = FolderSource(tmp_path, "acme")
    await news(source, watcher, partial(folder_of, market / "market" / "deep" / "deeper", {"a.py": b"x = 1\n"}))
    before = await digests(source)
    await news(source, watcher, lambda: (market / "market" / "deep" / "deeper" / "a.py").write_text("x = 2\n"))
    assert await digests(source) != before


async def test_an_empty_folder_that_is_filled_later_is_watched(tmp_path: Path, watcher: type[Watcher]) -> None:
    """That it appears is no news; what is written into it is."""
    market = folder_of(tmp_path / "market") / "market"
    source = FolderSource(tmp_path, "acme")
    await source.desired_packages()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        task = group.create_task(source.wait_for_change())
        await asyncio.to_thread(watcher.listening.acquire)
        (market / "empty").mkdir()
        await asyncio.to_thread(watcher.listening.acquire)
        assert not task.done()
        (market / "empty" / "a.py").write_text("x = 1\n")
        await task
    assert watcher.made == 2


async def test_a_folder_that_is_deleted_and_made_again_is_noticed(tmp_path: Path, watcher: type[Watcher]) -> None:
    """Each time: it is waited for, however many of its parents are gone."""
    root = tmp_path / "deep" / "packages"
    source = FolderSource(root, "acme")
    await news(source, watcher, partial(folder_of, root / "market"))
    for gone in (root, root.parent):
        assert await names(source) == {"market": "1.2.0"}
        await news(source, watcher, partial(shutil.rmtree, gone))
        with pytest.raises(OperationError, match="there is no folder"):
            await source.desired_packages()
        await news(source, watcher, partial(folder_of, root / "market"))


async def test_a_folder_that_another_takes_the_place_of_is_noticed(tmp_path: Path, watcher: type[Watcher]) -> None:
    """As a deployment does it; and the new one is watched, also if it holds the same."""
    root = tmp_path / "packages"
    folder_of(root / "market")
    folder_of(tmp_path / "next" / "market", FILES | {"market/graphs.py": b"x = 1\n"})
    source = FolderSource(root, "acme")
    before = await digests(source)

    def swap(new: str) -> None:
        root.rename(tmp_path / "old")
        (tmp_path / new).rename(root)

    await news(source, watcher, partial(swap, "next"))
    middle = await digests(source)
    assert middle != before
    await news(source, watcher, lambda: (root / "market" / "market" / "graphs.py").write_text("x = 2\n"))
    assert await digests(source) not in (before, middle)


async def test_a_moved_parent_is_noticed_by_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system tells a folder nothing of that, and nothing at all on some drives."""
    monkeypatch.setattr(watching, "UNPROMPTED_SCAN_INTERVAL_MS", 10)
    folder_of(tmp_path / "now" / "packages" / "market")
    folder_of(tmp_path / "next" / "packages" / "shop", FILES | {"package.toml": manifest("shop")})
    link = tmp_path / "link"
    link.symlink_to("now")
    source = FolderSource(link / "packages", "acme")
    assert list(await names(source)) == ["market"]
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        task = group.create_task(source.wait_for_change())
        new = tmp_path / "new"
        new.symlink_to("next")
        new.replace(link)
        await task
    assert list(await names(source)) == ["shop"]


@pytest.mark.parametrize("error", [OSError(28, "no more watches"), WatchfilesRustInternalError("no more instances")])
async def test_without_a_watcher_it_is_looked_now_and_then(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that watches nothing more for us makes it slower, not wrong."""
    refused = threading.Semaphore(0)

    def refuse(*_: object) -> None:
        refused.release()
        raise error

    monkeypatch.setattr(watching, "RustNotify", refuse)
    monkeypatch.setattr(watching, "UNPROMPTED_SCAN_INTERVAL_MS", 10)
    market = folder_of(tmp_path / "market")
    source = FolderSource(tmp_path, "acme")
    await source.desired_packages()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        task = group.create_task(source.wait_for_change())
        await asyncio.to_thread(refused.acquire)
        (market / "market" / "graphs.py").write_text("x = 1\n")
        await task


async def test_a_caller_that_stops_waiting_leaves_no_thread(tmp_path: Path, watcher: type[Watcher]) -> None:
    """A node that closes leaves nothing behind."""
    source = FolderSource(folder_of(tmp_path), "acme")
    await source.desired_packages()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(source.wait_for_change())
        await asyncio.to_thread(watcher.listening.acquire)
        (thread,) = [one for one in threading.enumerate() if one.name.startswith("tidemill folder watch")]
        task.cancel()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
