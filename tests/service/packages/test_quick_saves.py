"""A folder whose files are saved in quick succession, as editors, formatters and generators do it."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tidemill as tm
from tests.contract.executor_harness import until
from tests.service.package_folders import package, without_child_processes
from tidemill.kernel.errors import Location, OperationError, RequestError
from tidemill.packages.reconcile.folder import FolderSource
from tidemill.packages.status import PackageKey
from tidemill.storage.tables.schedules import ScheduleKey
from tidemill.testing.probes import PackageProbe

CODE = """
import tidemill as tm

@tm.passthrough
def book(event: int) -> int:
    return event

market = tm.Reactor("market", [book])
reader = tm.Graph("reader", reactor=market)

@reader.node
def out(book: int) -> int:
    return book + {number}
"""
SAVES = 30


@contextmanager
def saving(save: Callable[[int], object]) -> Iterator[None]:
    """Save again and again as long as the test is at it; now and then there is time to read what was saved."""
    ended = threading.Event()

    def run() -> None:
        number = 0
        while not ended.wait(0.0 if number % 10 else 0.05):
            number += 1
            save(number)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def write(path: Path, number: int) -> None:
    """Save a file as a busy machine does it: it is empty for a moment, and then whole; every third is done at once."""
    with path.open("w") as file:
        threading.Event().wait(0.03 if number % 3 else 0.0)  # that is the moment
        file.write(CODE.format(number=number))


def in_a_file(folder: Path, number: int) -> None:
    """Save a Python file that is a package by itself."""
    write(folder / "shop.py", number)


def in_a_module(folder: Path, number: int) -> None:
    """Save the module of a package with a manifest."""
    write(folder / "shop" / "shop" / "__init__.py", number)


def by_renaming(folder: Path, number: int) -> None:
    """Save a file as some editors do: the old one is moved away, and a new one is written."""
    (folder / "shop.py").rename(folder / "shop.py~")
    in_a_file(folder, number)


Save = Callable[[Path, int], None]
each_way = pytest.mark.parametrize("save", [in_a_file, in_a_module, by_renaming])


@pytest.fixture
def folder(tmp_path: Path, save: Save) -> Path:
    """A folder with one package."""
    if save is in_a_module:
        package(tmp_path / "shop", CODE.format(number=0))
    else:
        in_a_file(tmp_path, 0)
    return tmp_path


@each_way
async def test_a_package_that_is_being_saved_is_never_gone(folder: Path, save: Save) -> None:
    """P-6, P-10: each look finds it there, and each read finds all of it, or reports an error."""
    source, whole, refusals = FolderSource(folder, "acme"), 0, set()
    await source.desired_packages()
    with saving(lambda number: save(folder, number)):
        for _ in range(20):
            found = await source.desired_packages()
            assert list(found) == [PackageKey("acme", "shop")]
            try:
                contents = await found[PackageKey("acme", "shop")].read()
            except (OperationError, RequestError) as error:
                refusals.add(re.sub(r"/\S+", "", str(error)).strip())
                continue
            (code,) = [text for name, text in contents.files.items() if name.endswith(".py")]
            assert code.startswith(b"\nimport tidemill")
            assert code.rstrip()[-1:].isdigit()
            whole += 1
    assert whole
    assert refusals <= {"was changed again before it was read", "there is no file"}
    found = await source.desired_packages()
    assert (await found[PackageKey("acme", "shop")].read()).files
    place = folder / ("shop" if save is in_a_module else "shop.py")
    place.rename(folder / ".gone")
    assert await source.desired_packages() == {}


@each_way
async def test_a_reactor_outlives_quick_saves_with_its_cache(
    folder: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-6, P-10: it is there at every look, and the last save is the one that counts."""
    without_child_processes(monkeypatch)
    async with tm.Node(settings={"packages": str(folder)}) as node:
        await until(lambda: node.registry.reactors() == ["market"])
        await node.push("book", 7)
        await node.settle()
        for number in range(1, SAVES + 1):
            await asyncio.to_thread(save, folder, number)
            assert node.registry.reactors() == ["market"]
            await asyncio.sleep(0.005 * (number % 5))  # the pauses between the saves are what is tried
            assert node.registry.reactors() == ["market"]

        async def is_the_last_one() -> bool:
            firing = await node.reactor("market").force_fire()
            return firing.results["reader"].outputs == {"out": 7 + SAVES}

        async with asyncio.timeout(20):
            while not await is_the_last_one():
                assert node.reactor("market").state().cache == {"book": 7}
        assert node.metrics()["package_removals_total"] == 0


SCHEDULED = (
    CODE
    + """
daily = tm.Workflow("daily", schedule=tm.Every("1h", key="hourly"))

@daily.task
def report() -> int:
    return {number}
"""
)
DAILY = ScheduleKey("public", "daily", "hourly")


@pytest.mark.parametrize("text", ["def broken(:\n", "market = tm.Reactor('market', [])\n"])
async def test_a_file_that_is_saved_broken_keeps_its_last_good_version(
    tmp_path: Path, sqlite: str, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """P-10: with its schedule row, cursor and cache, in this process and in the next; it mentions no Tidemill."""
    without_child_processes(monkeypatch)
    file = tmp_path / "flows" / "shop.py"
    file.parent.mkdir()
    file.write_text(SCHEDULED.format(number=1))
    settings = {"packages": str(file.parent)}
    async with tm.Node(sqlite, settings=settings) as node:
        await until(lambda: [one.state for one in node.packages()] == ["loaded"])
        cursor = await PackageProbe.of(node).store.schedules.get_cursor(*DAILY)
        await node.push("book", 7)
        await node.settle()
        file.write_text(text)
        await until(lambda: [one.state for one in node.packages()] == ["failed"])
        [status] = node.packages()
        assert [one.location for one in status.problems] == [Location("shop.py", 1)]
        assert node.reactor("market").state().cache == {"book": 7}
        assert node.registry.workflows() == ["daily"]
        assert await PackageProbe.of(node).store.schedules.get_cursor(*DAILY) == cursor
    async with tm.Node(sqlite, settings=settings) as node:
        await until(lambda: [one.state for one in node.packages()] == ["failed"])
        assert await PackageProbe.of(node).store.schedules.get_cursor(*DAILY) == cursor
        file.write_text(SCHEDULED.format(number=2))
        await until(lambda: [one.state for one in node.packages()] == ["loaded"])
        assert await PackageProbe.of(node).store.schedules.get_cursor(*DAILY) == cursor
        file.write_text("")
        await until(lambda: node.packages() == [])
        assert await PackageProbe.of(node).store.schedules.get_cursor(*DAILY) is None


async def test_a_package_whose_manifest_is_damaged_at_a_restart_keeps_its_schedules(
    tmp_path: Path, sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-3, P-10: its name is not known then, so that it cannot be told from one that was removed."""
    without_child_processes(monkeypatch)
    folder = package(tmp_path / "flows" / "shop", SCHEDULED.format(number=1)).rename(tmp_path / "flows" / "stall")
    settings = {"packages": str(folder.parent)}
    async with tm.Node(sqlite, settings=settings) as node:
        await until(lambda: [one.state for one in node.packages()] == ["loaded"])
        cursor = await PackageProbe.of(node).store.schedules.get_cursor(*DAILY)
    assert cursor is not None
    manifest = (folder / "package.toml").read_text()
    (folder / "package.toml").write_text("[package")
    async with tm.Node(sqlite, settings=settings) as node:
        await until(lambda: [one.state for one in node.packages()] == ["failed"])
        assert await PackageProbe.of(node).store.schedules.get_cursor(*DAILY) == cursor
        (folder / "package.toml").write_text(manifest)
        await until(lambda: [one.state for one in node.packages()] == ["loaded"])
        assert await PackageProbe.of(node).store.schedules.get_cursor(*DAILY) == cursor
