"""P-6: running work ends on the code it began on; an older version is released when nothing uses it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemill as tm
from tests.contract.executor_harness import until
from tests.service.package_folders import copies, marked_modules, package, without_child_processes
from tidemill.api.handles import AsyncRun

QUICK = {"backoff_base": 0.02}
"""Older versions are looked at soon."""
WAYS = {
    "async": ("async def", "await asyncio.sleep(0.005)", ""),
    "thread": ("def", "time.sleep(0.005)", ""),
    "subprocess": ("def", "time.sleep(0.005)", '(executor="subprocess")'),
}
FLOW = """\
import asyncio, os, time
import tidemill as tm
from shop import early

class Gate(tm.Params):
    path: str

flow = tm.Workflow("flow", params=Gate)

@flow.task{options}
{begin} held(params: Gate) -> list[int]:
    open(params.path + ".begun", "w").close()
    while not os.path.exists(params.path):
        {wait}
    from shop import late
    return [early.VERSION, late.VERSION]

@flow.task
def after(held: list[int]) -> list[int]:
    return held
"""
GRAPH = """\
import asyncio, os
import tidemill as tm

@tm.passthrough
async def {source}(event: str) -> str:
    if event.startswith("slow "):
        await wait_for(event.removeprefix("slow "))
    return event

async def wait_for(path: str) -> None:
    open(path + ".begun", "w").close()
    while not os.path.exists(path):
        await asyncio.sleep(0.005)

till = tm.Reactor("till", [{source}])
totals = tm.Graph("totals", reactor=till)

@totals.node
async def total({source}: str) -> int:
    if not {source}.startswith("slow "):
        await wait_for({source})
    from shop import late
    return late.VERSION
"""


SCORING = """\
import tidemill as tm

scoring = tm.Graph("scoring")

@scoring.node
def score(held: list[int]) -> int:
    from shop import late
    return late.VERSION
"""


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever happens, nothing of a package is left when its node has ended."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    without_child_processes(monkeypatch)
    yield
    assert not copies()
    assert not marked_modules("shop", "desk")


def shop(folder: Path, code: str, number: int) -> Path:
    """Write a version of package `shop`."""
    version = f"VERSION = {number}\n"
    return package(folder / "shop", code, f"{number}.0.0", early=version, late=version)


def desk(folder: Path, code: str, number: int) -> Path:
    """Write a version of package `desk`."""
    return package(folder / "desk", code, f"{number}.0.0")


def flow(way: str) -> str:
    """Return a workflow whose first task is held up until a file is there."""
    begin, wait, options = WAYS[way]
    return FLOW.format(begin=begin, wait=wait, options=options)


async def begun(node: tm.Node, gate: Path) -> AsyncRun:
    """Start a run, and return when its task is held up."""
    run = await node.start("flow", path=str(gate))
    await until(gate.with_name(f"{gate.name}.begun").exists)
    return run


@pytest.mark.parametrize("way", WAYS)
async def test_a_task_ends_on_the_code_it_began_on(tmp_path: Path, way: str) -> None:
    """P-6: in this process, on a thread, and in a process of its own; what it imports late is of its version too."""
    old, new = tmp_path / "old", tmp_path / "new"
    async with tm.Node(settings=QUICK, load=[shop(tmp_path, flow(way), 1)]) as node:
        first = await begun(node, old)
        await node.load(shop(tmp_path, flow(way), 2))
        second = await begun(node, new)
        assert copies() == ["shop-1", "shop-2"]
        old.touch()
        assert (await first.wait(20)).raise_for_status().outputs["held"] == [1, 1]
        await until(lambda: copies() == ["shop-2"])
        assert {name.partition(".")[0] for name in marked_modules("shop")} == {marked_modules("shop")[0]}
        new.touch()
        assert (await second.wait(20)).raise_for_status().outputs["held"] == [2, 2]
        assert copies() == ["shop-2"]


async def test_a_run_goes_on_with_its_version_after_its_package_is_gone(tmp_path: Path) -> None:
    """P-6: also a task of it that had not begun when the package was unloaded."""
    gate = tmp_path / "gate"
    async with tm.Node(settings=QUICK, load=[shop(tmp_path, flow("async"), 1)]) as node:
        run = await begun(node, gate)
        await node.unload("shop")
        assert node.registry.packages() == node.registry.workflows() == []
        assert copies() == ["shop-1"]
        gate.touch()
        assert (await run.wait(20)).raise_for_status().outputs["after"] == [1, 1]
        await until(lambda: not copies() and not marked_modules("shop"))


async def test_an_unused_version_is_released_immediately(tmp_path: Path) -> None:
    """P-6: an older version when it is replaced, the last one when it is unloaded."""
    async with tm.testing.node(load=[shop(tmp_path, flow("async"), 1)]) as node:
        assert copies() == ["shop-1"]
        await node.load(shop(tmp_path, flow("async"), 2))
        assert len({name.partition(".")[0] for name in marked_modules("shop")}) == 1
        await until(lambda: copies() == ["shop-2"])  # on a thread
        await node.unload("shop")
        assert not marked_modules("shop")
        await until(lambda: not copies())


async def test_busy_workflows_do_not_keep_older_versions(tmp_path: Path) -> None:
    """P-6: only what began before the swap counts, however much begins after it."""
    async with tm.Node(settings=QUICK, load=[shop(tmp_path, flow("async"), 1)]) as node:
        gates = [tmp_path / str(number) for number in range(4)]
        runs = [await begun(node, gates[0])]
        for number in (2, 3, 4):
            await node.load(shop(tmp_path, flow("async"), number))
            runs.append(await begun(node, gates[number - 1]))
            gates[number - 2].touch()
            await runs[-2].wait(20)
            await until(lambda number=number: copies() == [f"shop-{number}"])  # type: ignore[misc]
        gates[3].touch()
        assert (await runs[3].wait(20)).outputs["held"] == [4, 4]


async def test_a_firing_ends_on_the_code_it_began_on(tmp_path: Path) -> None:
    """P-6, G-14: what is awaited at the swap is not cut off, and imports of its own version."""
    old, new = tmp_path / "old", tmp_path / "new"
    code = GRAPH.format(source="orders")
    async with tm.Node(settings=QUICK, load=[shop(tmp_path, code, 1)]) as node:
        reactor = node.reactor("till")
        await node.push("orders", str(old))
        await until((tmp_path / "old.begun").exists)
        await node.load(shop(tmp_path, code, 2))
        await node.push("orders", str(new))
        assert copies() == ["shop-1", "shop-2"]
        old.touch()
        assert (await reactor.next_firing(20)).results["totals"].outputs == {"total": 1}
        await until((tmp_path / "new.begun").exists)
        await until(lambda: copies() == ["shop-2"])  # although the reactor is busy again
        new.touch()
        assert (await reactor.next_firing(20)).results["totals"].outputs == {"total": 2}


async def test_an_event_ends_on_the_code_it_began_on(tmp_path: Path) -> None:
    """P-6: an accumulator's function that is awaited at the swap keeps its version, too."""
    gate = tmp_path / "gate"
    code = GRAPH.format(source="orders").replace("    return event\n", "    from shop import late\n    return event\n")
    async with tm.Node(settings=QUICK, load=[shop(tmp_path, code, 1)]) as node, asyncio.TaskGroup() as group:
        push = group.create_task(node.push("orders", f"slow {gate}"))
        await until((tmp_path / "gate.begun").exists)
        await node.load(shop(tmp_path, code, 2))
        assert copies() == ["shop-1", "shop-2"]
        gate.touch()
        assert (await push).accepted
        await until(lambda: copies() == ["shop-2"])


async def test_a_run_of_an_older_version_calls_the_graph_that_it_knows(tmp_path: Path) -> None:
    """P-6: both packages have newer versions when it gets there; the graph imports from its own older one."""
    gate = tmp_path / "gate"
    called = flow("async").replace("from shop import early\n", "").replace("    from shop import late\n", "")
    called = called.replace("[early.VERSION, late.VERSION]", "[1]") + 'flow.call("scoring")\n'
    async with tm.Node(settings=QUICK, load=[shop(tmp_path, SCORING, 1), desk(tmp_path, called, 1)]) as node:
        run = await begun(node, gate)
        await node.load(desk(tmp_path, called.replace("[1]", "[2]"), 2))
        await node.load(shop(tmp_path, SCORING, 2))
        assert [one.partition("-")[0] for one in copies()] == ["desk", "desk", "shop", "shop"]
        gate.touch()
        assert (await run.wait(20)).raise_for_status().outputs["scoring"] == {"score": 1}
        await until(lambda: [one.partition("-")[0] for one in copies()] == ["desk", "shop"])


async def test_a_rejected_load_leaves_nothing(tmp_path: Path) -> None:
    """P-2, P-6: the version before stays, and so do its modules; the refused one is gone."""
    async with tm.testing.node(load=[shop(tmp_path, flow("async"), 1)]) as node:
        with pytest.raises(tm.DefinitionError, match="absent"):
            await node.load(shop(tmp_path, f'{flow("async")}flow.triggers = ["absent"]\n', 2))
        await until(lambda: copies() == ["shop-1"])
        assert node.probe.packages.loaded["public", "shop"] == "1.0.0"
