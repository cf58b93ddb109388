"""W-19: unfinished runs of older versions end on their code, which nodes load from the registry and then discard."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.package_folders import copies, marked_modules, package, without_child_processes
from tests.system.workflow_nodes import opened, until
from tidemill.api.handles import AsyncRun
from tidemill.kernel.clock import SystemClock
from tidemill.packages.format.archive import read_folder
from tidemill.packages.format.private_key import generate_key
from tidemill.packages.format.signature import TrustPolicy, sign
from tidemill.packages.publishing import Publisher
from tidemill.storage.store import Store
from tidemill.testing.probes.workflows import WorkflowProbe
from tidemill.workflows.states import TaskState

QUICK = {"load_published": True, "package_poll_interval": 0.05, "backoff_base": 0.02, "tick_interval": 0.05}
PATIENCE = 20.0
FLOW = """\
import os
import tidemill as tm
from shop import helper

class Gate(tm.Params):
    path: str

def is_open(path: str) -> bool:
    return os.path.exists(path)

deferring = tm.Workflow("deferring", params=Gate)

@deferring.task
def begin(params: Gate) -> int:
    return {number}

@deferring.task
def wait(begin: int, params: Gate, ctx: tm.Context) -> list[int]:
    ctx.defer(poll=lambda: is_open(params.path), every="50ms")
    return [begin, {number}, helper.NUMBER]

retrying = tm.Workflow("retrying", params=Gate)

@retrying.task(retry=tm.Retry(500, delay="50ms", max_delay="50ms"))
def again(params: Gate) -> int:
    if not is_open(params.path):
        raise ValueError("not yet")
    return {number}

mapped = tm.Workflow("mapped", params=Gate)

@mapped.task
def names() -> list[str]:
    return ["a", "b"]

@mapped.task(each="names")
def one(names: str, params: Gate, ctx: tm.Context) -> str:
    ctx.defer(poll=lambda: is_open(params.path), every="50ms")
    return names + "{number}"

scoring = tm.Graph("scoring")

@scoring.node
def score(wait_first: int) -> int:
    return wait_first + {number}

calling = tm.Workflow("calling", params=Gate)

@calling.task
def wait_first(params: Gate, ctx: tm.Context) -> int:
    ctx.defer(poll=lambda: is_open(params.path), every="50ms")
    return {number} * 10

calling.call(scoring, name="scored")
"""
FLOWS = ("deferring", "retrying", "mapped", "calling")


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    without_child_processes(monkeypatch)
    yield
    assert not copies()
    assert not marked_modules("shop")


class Registry:
    """A store on a file, in which versions of a package are published."""

    def __init__(self, folder: Path, store: Store, trust: TrustPolicy | None = None) -> None:
        self.address = f"sqlite:///{folder / 'tidemill.db'}"
        self.gate = folder / "gate"
        self._folder = folder / "shop"
        self._publisher = Publisher(store.packages, trust or TrustPolicy(), SystemClock())
        self.store = store

    async def publish(self, number: int, **signing: Any) -> None:
        """Publish version `number`; the code of its workflows differs from that of any other."""
        helper = f"NUMBER = {number}\n"
        contents = read_folder(package(self._folder, FLOW.format(number=number), f"{number}.0.0", helper=helper))
        await self._publisher.publish(sign(contents, **signing) if signing else contents, "public")

    @asynccontextmanager
    async def node(self, version: str, **settings: Any) -> AsyncIterator[tm.Node]:
        """Run a node that has loaded a published version."""
        async with tm.Node(self.address, settings=QUICK | settings) as node:
            await until(lambda: [one.version for one in node.packages()] == [version], f"{version} is loaded")
            yield node

    async def begun(self, node: tm.Node, *workflows: str) -> list[AsyncRun]:
        """Start runs, and return when each of them waits for the gate."""
        runs = [await node.start(name, path=str(self.gate)) for name in workflows]

        async def wait() -> bool:
            waiting = {TaskState.DEFERRED, TaskState.UP_FOR_RETRY}
            states = [{one.state for one in (await run.state()).tasks.values()} for run in runs]
            return all(found & waiting or TaskState.NONE not in found for found in states)

        await until(wait, "every run waits")
        return runs

    async def lists_only_current(self) -> bool:
        """Whether the store lists no older code of a node, which it learns a moment after the node."""
        return all(one.is_current for one in await self.store.versions.list_loaded())


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    async with opened(f"sqlite:///{tmp_path / 'tidemill.db'}") as store:
        yield Registry(tmp_path, store)


def older(node: tm.Node) -> set[str]:
    """Return the workflows of which a node has the code of older versions."""
    versions = WorkflowProbe.of(node).versions
    return {key.workflow for key in versions.loaded.keys() - set(versions.current.values())}


async def test_a_release_with_a_restart_strands_no_run(registry: Registry) -> None:
    """Deferred, retrying and mapped runs, and one that calls a graph, end on the code that they began with."""
    await registry.publish(1)
    async with registry.node("1.0.0") as node:
        begun = await registry.begun(node, *FLOWS)
    await registry.publish(2)
    async with registry.node("2.0.0") as node:
        await until(lambda: older(node) == set(FLOWS), "the older code is loaded")
        assert node.registry.graphs() == ["scoring"]
        [fresh] = await registry.begun(node, "deferring")
        registry.gate.touch()
        results = [(await node.run_handle(run.id).wait(PATIENCE)).raise_for_status() for run in begun]
        assert [one.outputs for one in results] == [
            {"begin": 1, "wait": [1, 1, 1]},
            {"again": 1},
            {"names": ["a", "b"], "one": ["a1", "b1"]},
            {"wait_first": 10, "scored": {"score": 11}},
        ]
        assert (await fresh.wait(PATIENCE)).outputs["wait"] == [2, 2, 2]
        await until(lambda: not older(node) and copies() == ["shop-1"], "the older code is gone")
        assert len({name.partition(".")[0] for name in marked_modules("shop")}) == 1
        await until(registry.lists_only_current, "the store lists no older code")


async def test_a_run_of_twelve_releases_ago_still_ends(registry: Registry) -> None:
    await registry.publish(1)
    async with registry.node("1.0.0") as node:
        [run] = await registry.begun(node, "deferring")
    for number in range(2, 14):
        await registry.publish(number)
    kept = [one.version for one in await registry.store.packages.list_history("public", "shop")]
    assert kept == [f"{number}.0.0" for number in (*range(13, 3, -1), 1)]
    registry.gate.touch()
    async with registry.node("13.0.0") as node:
        assert (await node.run_handle(run.id).wait(PATIENCE)).outputs["wait"] == [1, 1, 1]
    await registry.publish(14)
    assert "1.0.0" not in [one.version for one in await registry.store.packages.list_history("public", "shop")]


async def test_an_ended_run_of_an_older_version_is_retried_with_its_code(registry: Registry) -> None:
    """The leader asks for the code when the run is active again; it does not wait for the next poll."""
    await registry.publish(1)
    async with registry.node("1.0.0") as node:
        [run] = await registry.begun(node, "retrying")
        await run.cancel()
        await run.wait(PATIENCE)
    await registry.publish(2)
    registry.gate.touch()
    async with registry.node("2.0.0", package_poll_interval=3600.0) as node:
        again = node.run_handle(run.id)
        await again.retry()
        assert (await again.wait(PATIENCE)).outputs["again"] == 1


async def test_code_that_may_not_be_loaded_is_named_with_its_reason_and_the_remedy(
    registry: Registry, tmp_path: Path
) -> None:
    """Signatures count for older versions too: the run waits for code, and is counted until it ends."""
    await registry.publish(1)
    async with registry.node("1.0.0") as node:
        [run] = await registry.begun(node, "deferring")
    key = generate_key("alice")
    trusted = tmp_path / "trusted"
    trusted.write_text(f"{key.public}\n")
    await registry.publish(2, key=key)
    settings = {"require_signatures": True, "trusted_keys": str(trusted)}
    async with registry.node("2.0.0", **settings) as node:
        await until(lambda: node.metrics()["runs_waiting_for_code"] == 1, "a run waits for code")
        handle, reasons = node.run_handle(run.id), set[str]()

        async def is_explained() -> bool:
            reasons.update(one for one in await handle.why("wait") if "waits for version" in one)
            return any("not signed" in one for one in reasons)

        await until(is_explained, "the node has read why the older archive is refused")
        reason = next(one for one in reasons if "not signed" in one)
        assert "which no node has the code of (shop 1.0.0 in the registry of 'public'" in reason
        assert f"`tidemill runs retry {run.id} --latest` continues it" in reason
        await handle.retry(latest=True)
        registry.gate.touch()
        assert (await handle.wait(PATIENCE)).outputs["wait"] == [1, 2, 2]
        await until(lambda: node.metrics()["runs_waiting_for_code"] == 0, "no run does")
