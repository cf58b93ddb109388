"""Code that blocks the event loop of its node: the log, `why` and the metrics of the node name it."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.pairs import until
from tidemill.api.tasks import TaskLogLine
from tidemill.telemetry.events import LOOP_BLOCKED

QUICK = {"blocked_loop_warning": "20ms"}
LINES = Path(__file__).read_text(encoding="utf-8").splitlines()
PATIENCE = 10.0  # seconds
PAUSE = threading.Event()


def line_of(mark: str) -> str:
    """Return the location of the only line of this file that ends with a mark."""
    [number] = [number for number, line in enumerate(LINES, 1) if line.endswith(f"# {mark}")]
    return f"{__file__}:{number}"


def block(caplog: pytest.LogCaptureFixture, sleep: Callable[[], object], nodes: int = 1) -> None:
    """Block the loop until the logs of some nodes on it say so."""
    deadline = time.monotonic() + PATIENCE
    while len(named(caplog)) < nodes:
        assert time.monotonic() < deadline, "the log never said it"
        sleep()


def named(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return what the log says about blocked loops."""
    return [vars(record) for record in caplog.records if record.msg == LOOP_BLOCKED]


async def test_a_task_that_blocks_the_loop_is_named_in_its_log_and_in_why(caplog: pytest.LogCaptureFixture) -> None:
    """D11: with file and line, and what to do."""
    flow = tm.Workflow("greedy")

    @flow.task
    async def hog() -> None:
        block(caplog, lambda: PAUSE.wait(0.002))  # in the task

    async with tm.Node(load=[flow], settings=QUICK) as node:
        run = await node.start("greedy")
        assert (await run.wait(PATIENCE)).ok
        [said] = named(caplog)
        assert (said["attempt"], said["place"]) == (f"{run.id}/hog#1", line_of("in the task"))
        lines: list[TaskLogLine] = []

        async def is_logged() -> bool:
            lines[:] = [line async for line in run.logs("hog")]
            return bool(lines)

        await until(is_logged)
        [line], [_, reason] = lines, await run.why("hog")
        assert line.message == reason
        assert line.level == "warning"
        assert f"at {line_of('in the task')}, so everything else there waited: make it a plain `def`" in reason
        assert node.metrics()["loop_blocked_total"] == 1
        assert node.metrics()["loop_blocked_seconds_total"] >= 0.02


async def test_every_node_knows_from_the_log_that_a_task_has_blocked_its_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D11: only the node of the attempt said so, and `why` asks any node."""
    flow = tm.Workflow("greedy")

    @flow.task
    async def hog() -> None:
        block(caplog, lambda: PAUSE.wait(0.002), nodes=2)

    store = f"sqlite:///{tmp_path / 'greedy.db'}"
    nodes = [tm.Node(store=store, load=[flow], settings=QUICK) for _ in range(2)]
    async with nodes[0], nodes[1]:
        run = await nodes[0].start("greedy")
        assert (await run.wait(PATIENCE)).ok
        for node in nodes:
            reasons: list[str] = []

            async def is_known(asked: tm.Node = node, reasons: list[str] = reasons) -> bool:
                reasons[:] = await asked.run_handle(run.id).why("hog")
                return len(reasons) > 1

            await until(is_known)
            assert reasons[-1].startswith("it blocked the event loop of its node for")


async def test_a_node_of_a_graph_that_blocks_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """D11: with its graph."""

    @tm.passthrough
    def tick(event: int) -> int:
        return event

    market = tm.Reactor("market", [tick])
    desk = tm.Graph("desk", reactor=market)

    @desk.node
    def score(tick: int) -> int:
        block(caplog, lambda: PAUSE.wait(0.002))  # in the node
        return tick

    async with tm.Node(load=[market, desk], settings=QUICK) as node:
        await node.push(tick, 1)
        await node.settle()
    [said] = named(caplog)
    assert (said["graph"], said["node"], said["place"]) == ("desk", "score", line_of("in the node"))


async def test_the_file_is_the_same_wherever_the_process_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W-11: a task that changes the folder of the process does not lead the thread to another file."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    watch = tm.Node("sqlite:///tidemill.db")._parts.loop_watch
    monkeypatch.chdir(elsewhere)
    assert watch is not None
    assert watch.make_store is not None
    store = watch.make_store()
    await store.open()
    await store.close()
    assert list(elsewhere.iterdir()) == []
    assert (tmp_path / "tidemill.db").exists()
