"""P-5, P-11: packages that need one another come in any order; nodes of one process do not meet."""

from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.contract.executor_harness import until
from tests.service.package_folders import package, without_child_processes
from tidemill.packages.status import PackageStatus
from tidemill.testing.probes import PackageProbe

MARKET = """\
import tidemill as tm

@tm.passthrough
def book(event: int) -> int:
    return event

market = tm.Reactor("market", [book])
scoring = tm.Graph("scoring")

@scoring.node
def score() -> int:
    return {number}

@tm.trigger(every="1h")
def new_files() -> tm.Fire | None:
    return None
"""
DESK = """\
import tidemill as tm

reader = tm.Graph("reader", reactor="{owner}market")

@reader.node
def out(book: int) -> list[int]:
    return [{number}, book]
"""
REPORT = """\
import tidemill as tm

report = tm.Workflow("report", triggers=["new_files"])
report.call("scoring", name="scored")
"""


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    without_child_processes(monkeypatch)


def market(folder: Path, number: int = 1, manifest: str = "") -> Path:
    """Write the package that others need."""
    return package(folder / "market", MARKET.format(number=number), f"{number}.0.0", manifest=manifest)


def desk(folder: Path, number: int = 1, owner: str = "") -> Path:
    """Write a package that binds to the market."""
    return package(folder / "desk", DESK.format(owner=owner, number=number), f"{number}.0.0")


def report(folder: Path) -> Path:
    """Write a package that polls and calls what the market brings."""
    return package(folder / "report", REPORT)


def status(node: tm.Node, name: str) -> PackageStatus | None:
    """Return how things stand with a package."""
    return next((one for one in node.packages() if one.name == name), None)


def is_loaded(node: tm.Node, *names: str, version: str = "1.0.0") -> bool:
    """Return whether packages are loaded, in a version."""
    found = [status(node, name) for name in names]
    return all(one is not None and one.state == "loaded" and one.version == version for one in found)


async def fired(node: tm.Node, event: int, **tenant: str) -> dict[str, Any]:
    """Push an event, and return what each graph made of it."""
    await node.push("book", event, **tenant)
    firing = await node.reactor("market", **tenant).next_firing(10)
    return {name: result.outputs["out"] for name, result in firing.results.items()}


async def test_a_package_waits_for_its_dependencies(tmp_path: Path) -> None:
    """P-5, cloacina.md 90: it says whom it waits for, and is loaded when that is there."""
    folder = tmp_path / "packages"
    folder.mkdir()
    async with tm.Node(settings={"packages": str(folder)}) as node:
        desk(folder)
        report(folder)
        await until(lambda: all((one := status(node, name)) and one.state == "waiting" for name in ("desk", "report")))
        assert status(node, "desk").waiting_for == ("reactor 'market'",)
        assert status(node, "report").waiting_for == ("graph 'scoring'", "trigger 'new_files'")
        assert node.registry.packages() == node.registry.graphs() == node.registry.workflows() == []
        market(folder)
        await until(lambda: is_loaded(node, "market", "desk", "report"))
        assert await fired(node, 7) == {"reader": [1, 7]}
        run = await node.start("report")
        assert (await run.wait(10)).outputs == {"scored": {"score": 1}}
        market(folder, 2)
        await until(lambda: is_loaded(node, "market", version="2.0.0"))
        run = await node.start("report")
        assert (await run.wait(10)).outputs == {"scored": {"score": 2}}


SENSOR = """\
import tidemill as tm

@tm.passthrough
def sensor(event: int) -> int:
    return event

plant = tm.Reactor("plant", [sensor])
watch = tm.Graph("watch", reactor=plant)

@watch.node(feeds="book")
def double(sensor: int) -> int:
    return 2 * sensor
"""


async def test_a_package_waits_for_the_accumulator_that_it_feeds(tmp_path: Path) -> None:
    """P-5: and says so; both packages stay as long as the feed does."""
    folder = tmp_path / "packages"
    package(folder / "sensor", SENSOR)
    async with tm.Node(settings={"packages": str(folder)}) as node:
        await until(lambda: (one := status(node, "sensor")) is not None and one.state == "waiting")
        assert status(node, "sensor").waiting_for == ("accumulator 'book'",)
        market(folder)
        desk(folder)
        await until(lambda: is_loaded(node, "market", "desk", "sensor"))
        await node.push("sensor", 4)
        firing = await node.reactor("market").next_firing(10)
        assert firing.results["reader"].outputs == {"out": [1, 8]}


FOREIGN = """\
import tidemill as tm

@tm.passthrough
def notes(event: int) -> int:
    return event

diary = tm.Reactor("diary", [notes])
reader = tm.Graph("reader", reactor="acme/market")

@reader.node(feeds=notes)
def out(book: int) -> int:
    return book
"""


async def test_a_graph_on_a_shared_reactor_feeds_its_own_tenant(tmp_path: Path) -> None:
    """G-30: the results stay with the graph's tenant, and its package can be unloaded as a whole."""
    shared = "[reactors.market]\nshared = true\n"
    async with tm.Node(tenant="beta") as node:
        await node.load(market(tmp_path, manifest=shared), tenant="acme")
        await node.load(package(tmp_path / "foreign", FOREIGN))
        await node.push("book", 3, tenant="acme")
        assert (await node.reactor("diary").next_firing(10)).inputs == {"notes": 3}
        await node.unload("foreign")
        await node.load(tmp_path / "foreign")
        await node.push("book", 4, tenant="acme")
        assert (await node.reactor("diary").next_firing(10)).inputs == {"notes": 4}


async def test_a_package_stays_until_its_dependents_are_gone(tmp_path: Path) -> None:
    """P-4, P-5: a folder that is taken away cannot take away what another package is bound to; never a cascade."""
    folder = tmp_path / "packages"
    market(folder)
    desk(folder)
    async with tm.Node(settings={"packages": str(folder), "backoff_base": 0.05}) as node:
        await until(lambda: is_loaded(node, "market", "desk"))
        (folder / "market").rename(tmp_path / "aside")
        await until(lambda: status(node, "market").problems or status(node, "market").reason)
        assert "['reader']; unbind them first" in f"{status(node, 'market').reason}{status(node, 'market').problems}"
        assert await fired(node, 1) == {"reader": [1, 1]}
        (folder / "desk").rename(tmp_path / "also aside")
        await until(lambda: not node.registry.packages())
        assert PackageProbe.of(node).running_keys() == (set(), set())


async def test_a_package_waits_for_a_shared_reactor_of_another_tenant(tmp_path: Path) -> None:
    """P-5, G-30: for another tenant's reactor, and for its being shared."""
    folder = tmp_path / "packages"
    desk(folder, owner="acme/")
    async with tm.Node(settings={"packages": str(folder)}, tenant="beta") as node:
        await until(lambda: (one := status(node, "desk")) and one.state == "waiting")
        assert status(node, "desk").waiting_for == ("reactor 'acme/market'",)
        await node.load(market(tmp_path), tenant="acme")
        await node.settle()
        assert status(node, "desk").state == "waiting"
        await node.load(market(tmp_path, 2, "[reactors.market]\nshared = true\n"), tenant="acme")
        await until(lambda: is_loaded(node, "desk"))
        assert await fired(node, 3, tenant="acme") == {"beta/reader": [1, 3]}


async def test_a_node_finds_the_order_itself(tmp_path: Path) -> None:
    """P-5: `load=` names packages in any order."""
    paths = [report(tmp_path), desk(tmp_path), market(tmp_path)]
    async with tm.Node(load=paths) as node:
        assert node.registry.packages() == ["desk", "market", "report"]
        assert await fired(node, 2) == {"reader": [1, 2]}
    asked = r"reactor 'market' not loaded: graph 'reader' of package 'desk' \(.*desk.*\.py:\d+\) is bound to it; "
    with pytest.raises(tm.RequestError, match=asked) as missing:
        async with tm.Node(load=paths[1:2]):
            pass
    assert (missing.value.code, missing.value.facts) == (
        "reactor_not_found",
        {"reactor": "market", "graph": "reader", "package": "desk"},
    )
    with pytest.raises(tm.RequestError, match="package 'desk' is to be loaded twice") as refused:
        async with tm.Node(load=[*paths, *paths, desk(tmp_path / "other")]):
            pass
    assert refused.value.code == "name_taken"


async def test_nodes_of_one_process_are_independent(tmp_path: Path) -> None:
    """P-11: each has its version of a package, its reactors, and its pushes."""
    first = [market(tmp_path / "a"), desk(tmp_path / "a")]
    second = [market(tmp_path / "b", 2), desk(tmp_path / "b", 2)]
    async with tm.Node(load=first) as one:
        async with tm.Node(load=second) as other:
            assert await fired(one, 5) == {"reader": [1, 5]}
            assert await fired(other, 6) == {"reader": [2, 6]}
            assert one.reactor("market").state().cache == {"book": 5}
            await other.unload("desk")
            assert one.registry.graphs() == ["reader", "scoring"]
            assert [status(node, "market").version for node in (one, other)] == ["1.0.0", "2.0.0"]
        assert await fired(one, 8) == {"reader": [1, 8]}


async def test_a_newer_version_cannot_drop_what_others_need(tmp_path: Path) -> None:
    """P-1: a graph that a package's own workflow calls must be in its new version, too; the version before stays."""
    whole = MARKET.format(number=1) + REPORT.replace("import tidemill as tm\n", "")
    async with tm.testing.node(load=[package(tmp_path / "market", whole)]) as node:
        without = whole.replace('tm.Graph("scoring")', 'tm.Graph("rating")')
        with pytest.raises(tm.DefinitionError, match="'scoring'"):
            await node.load(package(tmp_path / "market", without, "2.0.0"))
        assert node.registry.graphs() == ["scoring"]
        run = await node.start("report")
        await node.settle()
        assert (await run.state()).outputs == {"scored": {"score": 1}}
