"""Firings start runs on a real node, with a real database, in time, and whatever is killed."""

import asyncio
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest

import tidemill as tm
from tests.architecture.sources import ROOT
from tests.system.starting_program import definitions
from tidemill.storage.workflow_ports import RunFilter

LATENCY = 0.05  # seconds from push to task, in process


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The address of an empty database that outlives every kill."""
    return f"sqlite:///{tmp_path / 'tidemill.db'}"


@pytest.mark.parametrize("durability", ["none", "interval", "fire"])
@pytest.mark.parametrize(
    "trigger",
    [
        tm.on_firing("r", when="payload.a >= 0"),
        tm.on_output("g", "decide", when="output >= 0", dedup="output", cooldown="1h"),
    ],
    ids=["on_firing", "on_output"],
)
async def test_a_firing_starts_its_run_at_once(store: str, trigger: Any, durability: str) -> None:
    """graphs.md: by wake-up, under 50 ms. The best of many: the machine may be busy with something else."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    began: asyncio.Queue[float] = asyncio.Queue()
    flow = tm.Workflow("w", triggers=[trigger])

    @flow.task
    async def note() -> None:
        began.put_nowait(monotonic())

    reactor = tm.Reactor("r", [a], durability=durability)
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def decide(a: int) -> int:
        return a

    delays = []
    async with tm.Node(store, load=[reactor, graph, flow]) as node:
        for number in range(10):
            pushed = monotonic()
            await node.push("a", number)
            delays.append(await asyncio.wait_for(began.get(), 10) - pushed)
    assert min(delays) < LATENCY, delays


async def test_kill_9_loses_and_doubles_no_run(store: str) -> None:
    """graphs.md: the firing's record, with its values, commits before it is done; the run is unique per firing."""
    acknowledged: list[int] = []
    for life in range(3):
        acknowledged += await asyncio.to_thread(live, store, 1000 * life + 1, 5 + 7 * life)
    async with tm.Node(store, load=definitions()) as node:
        await node.settle()
        started = {}
        for workflow in ("w", "work"):
            rows = await node._run_store.runs.find(RunFilter(tenant="public", workflow=workflow, limit=10_000))
            started[workflow] = [msgspec.msgpack.decode(row.params) for row in rows]
    values = [params["payload"]["a"] for params in started["w"]]
    assert sorted(set(values)) == values
    assert set(acknowledged) <= set(values)
    decided = [params["output"] for params in started["work"]]
    assert sorted(set(decided)) == decided
    assert {number for number in acknowledged if number % 2} <= set(decided)


def live(store: str, first: int, acknowledgements: int) -> list[int]:
    """Let the program live until so many numbers were acknowledged, and kill it; return all of them."""
    program = [sys.executable, "-m", "tests.system.starting_program", store, str(first)]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        found = [int(node.stdout.readline()) for _ in range(acknowledgements)]
        node.kill()
        return found + [int(line) for line in node.stdout if line.endswith("\n")]
