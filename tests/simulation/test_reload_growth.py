"""P-6: however often a package is loaded anew, with work in between, nothing is left of its older versions."""

import asyncio
import gc
import linecache
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import tidemill as tm
from tests.contract.executor_harness import until
from tests.service.package_folders import copies, package, without_child_processes
from tidemill.workflows.records import AttemptKey

IS_LONG = settings().max_examples >= 10_000
RELOADS = 10_000 if IS_LONG else 50
WARM_UP = 25
WITH_A_PROCESS = 8
BYTES = 5_000
"""How much memory a reload may cost the process as the system sees it: a row of the workflow's version is written for
each, which fills the database's caches, and allocators leave gaps. Python's own memory does not grow at all."""

MODEL = """\
import dataclasses
import enum
from typing import Optional

import tidemill as tm

class Side(enum.Enum):
    BUY = "buy"

class Book(tm.Boundary):
    bid: float
    side: Side = Side.BUY
    depth: Optional[int] = None

@dataclasses.dataclass
class Score:
    number: int
    best: "Optional[Book]" = None
"""
MARKET = """\
import logging
from typing import Optional

import tidemill as tm
from market import model
from market.model import Book, Score

NUMBER = {number}
log = logging.getLogger(__name__)

@tm.passthrough
def book(event: Book) -> Book:
    return event

@tm.batch(every="1h", max_size=2)
def trades(events: list[int]) -> int:
    return sum(events)

ticks = tm.window("ticks", int, capacity=3)
market = tm.Reactor("market", {sources})
maker = tm.Graph("maker", reactor=market)

@maker.node
def decide(book: Book, ticks: Optional[list[int]]) -> int:
    log.debug("deciding")
    return NUMBER

@maker.node(feeds=ticks)
def tick(decide: int) -> int:
    return decide

slow = tm.Graph("slow", reactor="market")

@slow.node
async def later(book: Book) -> int:
    from market import late
    return late.NUMBER

scoring = tm.Graph("scoring")

@scoring.node
def score(number: int) -> int:
    return number + NUMBER

@tm.trigger(every="1h")
async def ask() -> tm.Fire | None:
    return None

report = tm.Workflow("report", schedule=tm.Every("1d"), triggers=[ask])

@report.task
def number() -> int:
    return {number}

@report.task
async def wait(number: int) -> Score:
    from market import late
    return Score(late.NUMBER)

report.call(scoring, name="scored")
"""


def write(folder: Path, number: int) -> Path:
    """Write the next version; now and then one whose reactor has another contract."""
    sources = "[book, ticks]" if number % 50 == 10 else "[book, trades, ticks]"
    code = MARKET.format(number=number, sources=sources)
    return package(folder / "market", code, f"{number}.0.0", model=MODEL, late=f"NUMBER = {number}\n")


async def work(node: tm.testing.TestNode, number: int) -> None:
    """Let the version fire and run."""
    await node.push("book", {"bid": 1.0})
    await node.settle()
    [firing] = node.reactor("market").firings(limit=1)
    assert firing.results["slow"].outputs == {"later": number}
    assert firing.results["maker"].outputs == {"tick": number}
    if number % 10 == 5:
        run = await node.start("report")
        await node.settle()
        outputs = (await run.state()).raise_for_status().outputs
        assert outputs["number"] == number
        assert outputs["scored"] == {"score": 2 * number}


async def reload(node: tm.testing.TestNode, folder: Path, numbers: range) -> None:
    """Load one version after the other, and work with each."""
    for number in numbers:
        await node.load(write(folder, number))
        await work(node, number)


async def census(node: tm.testing.TestNode) -> dict[str, int]:
    """Count what could grow."""
    await node.advance("2h")  # whatever waits for something that is over gives up
    await until(lambda: len(copies()) <= 1)  # their removal takes a moment, on a thread
    gc.collect()
    store, registry = node.probe.workflows.store, node.registry
    kinds = ("reactors", "graphs", "workflows", "triggers", "packages", "accumulators", "endpoints")
    return {
        "modules": len(sys.modules),
        "meta path": len(sys.meta_path),
        "importer cache": len(sys.path_importer_cache),
        "loggers": len(logging.root.manager.loggerDict),
        "lines": sum("market" in name or name.startswith("<graph ") for name in linecache.cache),
        "threads": sum(not one.name.startswith("asyncio_") for one in threading.enumerate()),  # a pool that fills up
        "tasks": len(asyncio.all_tasks()),
        "node's tasks": len(node.probe.graphs.task_names()),
        "collectors": node.probe.graphs.collector_count(),
        "totals": node.probe.graphs.metric_total_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "names": sum(len(getattr(registry, kind)()) for kind in kinds),
        "pages": len(await store.package_states.list_all()),
        "schedules": int(await store.schedules.get_cursor("public", "report", "default") is not None),
        "versions": len(node.probe.workflows.loaded_versions),
    }


def objects() -> int:
    """Return how many objects there are; executors remember the newest attempts that have ended, a bounded number."""
    gc.collect()
    return sum(type(one) is not AttemptKey for one in gc.get_objects())


def may_grow(by: int) -> int:
    """Return by how many objects, or blocks of memory, the noise of caches may let memory grow in so many reloads.

    One version that is kept has many hundreds; caches that are bounded fill and empty every 50 reloads.
    """
    return 1_000 + by // 3


def resident() -> int:
    """Return the bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    yield
    assert os.listdir(scratch) == []


async def test_reloads_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-6: memory, threads, tasks, registry, modules, rows and files are where they were; with `soak`, 10,000 times."""
    without_child_processes(monkeypatch)
    async with tm.testing.node(f"sqlite:///{tmp_path}/tidemill.db") as node:
        await reload(node, tmp_path, range(1, WARM_UP))
        before, existed, blocks, memory = await census(node), objects(), sys.getallocatedblocks(), resident()
        await reload(node, tmp_path, range(WARM_UP, WARM_UP + RELOADS))
        assert await census(node) == before
        assert objects() - existed < may_grow(RELOADS)
        assert sys.getallocatedblocks() - blocks < may_grow(RELOADS)
        if IS_LONG:
            grown = (resident() - memory) / RELOADS
            assert grown < BYTES
        await node.unload("market")
        await until(lambda: not copies())
        assert not [name for name in sys.modules if name.startswith("market@")]


async def test_reloads_with_a_process_leave_nothing(tmp_path: Path) -> None:
    """P-6, P-7: the same with the probe as it is."""
    async with tm.testing.node(f"sqlite:///{tmp_path}/tidemill.db") as node:
        await reload(node, tmp_path, range(5, 12))
        before = await census(node)
        await reload(node, tmp_path, range(12, 12 + WITH_A_PROCESS))
        assert await census(node) == before
