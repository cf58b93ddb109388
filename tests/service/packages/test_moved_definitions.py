"""Definitions that move from one package to another in one change of a folder."""

from collections.abc import Mapping
from pathlib import Path

import pytest

import tidemill as tm
from tests.contract.executor_harness import until
from tests.service.package_folders import without_child_processes
from tidemill.packages.status import PackageStatus
from tidemill.storage.tables.schedules import ScheduleKey
from tidemill.testing.probes import PackageProbe

HEADER = "import tidemill as tm\n\n"
MARKET = """
@tm.passthrough
def book(event: int) -> int:
    return event

market = tm.Reactor("market", [book])
"""
READER = """
reader = tm.Graph("reader", reactor="market")

@reader.node
def out(book: int) -> int:
    return book + 1
"""
OTHER = """
other = tm.Workflow("other")

@other.task
def nothing() -> None: ...
"""
DAILY = """
daily = tm.Workflow("daily", schedule=tm.Every("1h", key="hourly"))

@daily.task
def report() -> int:
    return 1
"""
SCORING = """
scoring = tm.Graph("scoring")

@scoring.node
def score(count: int) -> int:
    return count * 10
"""
CALLER = """
calling = tm.Workflow("calling")

@calling.task
def count() -> int:
    return 4

calling.call("scoring", name="scored")
"""
TRIGGER = """
@tm.trigger(every="20m")
async def new_files() -> tm.Fire | None:
    return None
"""
TRIGGERED = """
ingest = tm.Workflow("ingest", triggers=["new_files"])

@ingest.task
def read() -> None: ...
"""
HOURLY = ScheduleKey("public", "daily", "hourly")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_child_processes(monkeypatch)


def save(folder: Path, files: Mapping[str, str | None]) -> None:
    """Save or delete files; each text without its header."""
    for name, text in files.items():
        if text is None:
            (folder / f"{name}.py").unlink()
        else:
            (folder / f"{name}.py").write_text(HEADER + text)


def states(node: tm.Node) -> dict[str, str]:
    """Return the state of each package."""
    return {one.name: one.state for one in node.packages()}


async def settled(node: tm.Node, *names: str) -> None:
    """Wait until exactly these packages are loaded."""
    await until(lambda: states(node) == dict.fromkeys(names, "loaded"))


MOVES: dict[str, tuple[dict[str, str], dict[str, str | None]]] = {
    "to a new file": ({"a": MARKET + READER}, {"a": READER, "b": MARKET}),
    "to a new file that sorts first": ({"b": MARKET + READER}, {"b": READER, "a": MARKET}),
    "to a loaded file": ({"a": MARKET + READER, "b": OTHER}, {"a": READER, "b": OTHER + MARKET}),
    "with its graph": ({"a": MARKET + READER + OTHER}, {"a": OTHER, "b": MARKET + READER}),
    "with its graph to a loaded file": (
        {"a": MARKET + READER + OTHER, "b": DAILY},
        {"a": OTHER, "b": DAILY + MARKET + READER},
    ),
    "by renaming the file": ({"a": MARKET + READER}, {"a": None, "b": MARKET + READER}),
    "while its graph moves the other way": (
        {"a": MARKET, "b": READER},
        {"a": READER, "b": MARKET},
    ),
}


@pytest.mark.parametrize("move", MOVES)
async def test_a_reactor_that_moves_to_another_package_keeps_its_cache(tmp_path: Path, move: str) -> None:
    """P-5, P-6: both files are saved in one change of the folder, and nothing is unloaded in between."""
    before, after = MOVES[move]
    save(tmp_path, before)
    async with tm.Node(settings={"packages": str(tmp_path)}) as node:
        await settled(node, *before)
        await node.push("book", 7)
        await node.settle()
        save(tmp_path, after)
        [owner] = [name for name, text in after.items() if text and MARKET in text]
        await until(lambda: _reactors(node, owner) == ("market",))
        await settled(node, *(name for name, text in after.items() if text is not None))
        assert node.reactor("market").state().cache == {"book": 7}
        firing = await node.reactor("market").force_fire()
        assert firing.results["reader"].outputs == {"out": 8}
        assert [one for one in node.registry.packages() if _reactors(node, one)] == [owner]


def _reactors(node: tm.Node, package: str) -> tuple[str, ...]:
    state = node.registry.packages.find("public", package)
    return () if state is None else state.reactors


@pytest.mark.parametrize("is_renamed", [False, True])
async def test_a_workflow_that_moves_keeps_its_schedule(tmp_path: Path, sqlite: str, *, is_renamed: bool) -> None:
    """P-3: the row, with its cursor and its pause, belongs to the workflow's name."""
    folder = tmp_path / "flows"
    folder.mkdir()
    save(folder, {"a": DAILY} if is_renamed else {"a": DAILY + OTHER})
    async with tm.Node(sqlite, settings={"packages": str(folder)}) as node:
        await settled(node, "a")
        cursor = await PackageProbe.of(node).store.schedules.get_cursor(*HOURLY)
        await node.pause("daily")
        save(folder, {"a": None if is_renamed else OTHER, "b": DAILY})
        await settled(node, *(["b"] if is_renamed else ["a", "b"]))
        assert await PackageProbe.of(node).store.schedules.get_cursor(*HOURLY) == cursor
        assert ("public", "daily") in await PackageProbe.of(node).store.schedules.list_paused_workflows()
        (folder / "b.py").unlink()
        await settled(node, *([] if is_renamed else ["a"]))
        assert await PackageProbe.of(node).store.schedules.get_cursor(*HOURLY) is None


@pytest.mark.parametrize(("kept", "moved"), [(CALLER, SCORING), (TRIGGERED, TRIGGER)], ids=["graph", "trigger"])
async def test_a_graph_or_a_trigger_moves_away_from_the_workflow_that_names_it(
    tmp_path: Path, kept: str, moved: str
) -> None:
    """P-5: neither says that the other is in its way."""
    save(tmp_path, {"a": kept + moved})
    async with tm.Node(settings={"packages": str(tmp_path)}) as node:
        await settled(node, "a")
        save(tmp_path, {"a": kept, "b": moved})
        await until(lambda: node.registry.packages() == ["a", "b"])
        await settled(node, "a", "b")
        if kept is CALLER:
            assert (await (await node.start("calling")).wait()).outputs["scored"] == {"score": 40}


async def test_a_run_of_a_moved_workflow_goes_on_with_its_code(tmp_path: Path) -> None:
    """P-6: the code of the package that it came from stays as long as it is needed."""
    slow = """
import asyncio

slow = tm.Workflow("slow")

@slow.task
async def first() -> int:
    from {name} import VALUE
    return VALUE

@slow.task
async def second(first: int, ctx: tm.Context) -> int:
    ctx.defer(for_="200ms")
    from {name} import VALUE
    return VALUE

VALUE = {value}
"""
    save(tmp_path, {"a": slow.format(name="a", value=1)})
    async with tm.Node(settings={"packages": str(tmp_path)}) as node:
        await settled(node, "a")
        run = await node.start("slow")
        save(tmp_path, {"a": OTHER, "b": slow.format(name="b", value=2)})
        await settled(node, "a", "b")
        assert (await run.wait(timeout=20)).outputs == {"first": 1, "second": 1}
        assert (await (await node.start("slow")).wait(timeout=20)).outputs == {"first": 2, "second": 2}


async def test_a_reactor_that_is_in_two_packages_stays_with_the_first(tmp_path: Path) -> None:
    """P-5: it has not moved, and the error says where it is."""
    save(tmp_path, {"a": MARKET + READER})
    seen: list[PackageStatus] = []
    async with tm.Node() as node:
        await (await node.watch_folder(tmp_path, seen.append)).wait_until_settled()
        save(tmp_path, {"b": MARKET})
        await until(lambda: states(node) == {"a": "loaded", "b": "failed"})
        [reason] = {one.reason for one in seen if one.name == "b" and one.reason}
        assert reason.startswith(f"reactor 'market' is already defined at {tmp_path}/a.py:")
        save(tmp_path, {"a": READER})
        await settled(node, "a", "b")


async def test_a_moved_reactor_with_another_contract_says_who_is_bound(tmp_path: Path) -> None:
    """P-4: as within one package, a graph of another package is not left without its inputs."""
    save(tmp_path, {"a": MARKET + READER})
    changed = MARKET.replace("[book])", "[book], strategy='sequential')")
    async with tm.Node(settings={"packages": str(tmp_path)}) as node:
        await settled(node, "a")
        await node.push("book", 7)
        save(tmp_path, {"a": READER, "b": changed})
        await until(lambda: states(node) == {"a": "waiting", "b": "failed"})
        await until(lambda: node.packages()[0].waiting_for == ("reactor 'market'",))
        assert "reactor 'market' has 1 bound subscriber(s): ['reader']" in node.packages()[1].reason
        assert node.reactor("market").state().cache == {"book": 7}
        save(tmp_path, {"b": MARKET})
        await settled(node, "a", "b")
