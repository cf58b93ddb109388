"""P-3: kill -9 at every step of a load, a reload and an unload, on real databases."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import tidemill as tm
from tests.architecture.sources import ROOT
from tests.postgres import PostgresServer
from tests.service.whole_package import rows, whole
from tests.system import crashing_loader
from tests.system.crashing_loader import Scenario
from tidemill.testing.probes import PackageProbe

STEPS = range(1, 7)
OLDER = [("daily", "hourly"), ("older", "hourly"), ("older", "other")]
NEWER = [("daily", "hourly"), ("newer", "hourly"), ("newer", "other")]
KILLED = -9


class LoaderProgram:
    """Runs scenarios in the program, one after the other."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def run_scenario(self, scenario: Scenario) -> int:
        """Run a scenario; return its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(scenario) + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@pytest.fixture(scope="module")
def program() -> Iterator[LoaderProgram]:
    """The running program."""
    command = [sys.executable, "-m", crashing_loader.__name__]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield LoaderProgram(process)


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database that outlives every kill."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'tidemill.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return await server.fresh_store()


async def check_version(node: tm.Node, keys: list[tuple[str, str]]) -> None:
    """See that one version is loaded, and nothing else is left in the store."""
    found = await rows(node)
    assert list(found) == keys
    assert all(row.armed for row in found.values())
    [page] = await PackageProbe.of(node).store.package_states.list_all()
    assert (page.phase, page.owner) == ("loaded", node._workflows.owner.id)


@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_load_leaves_nothing(program: LoaderProgram, store: str, step: int) -> None:
    """Nothing is half loaded at the next start; armed schedules continue, and go with the package."""
    assert program.run_scenario(Scenario(store, 1, "apply", step)) == KILLED
    async with tm.Node(store) as node:
        if step < 6:
            assert await rows(node) == {}
            assert await PackageProbe.of(node).store.package_states.list_all() == []
        await node.load(whole().module)
        await check_version(node, OLDER)
        await node.unload("whole")
        assert await rows(node) == {}
        assert await PackageProbe.of(node).store.package_states.list_all() == []


@pytest.mark.parametrize(("verb", "step"), [("apply", 1), ("apply", 6), ("remove", 6), ("remove", 1)])
async def test_a_killed_reload_leaves_one_version(program: LoaderProgram, store: str, verb: str, step: int) -> None:
    """The loaded version has its schedule rows, and there are no others."""
    assert program.run_scenario(Scenario(store, 2, verb, step)) == KILLED
    async with tm.Node(store, load=[whole(2).module]) as node:
        await check_version(node, NEWER)


@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_unload_is_finished(program: LoaderProgram, store: str, step: int) -> None:
    """The next start finishes it, and the package can be loaded again."""
    assert program.run_scenario(Scenario(store, 0, "remove", step)) == KILLED
    async with tm.Node(store) as node:
        assert await rows(node) == {}
        assert await PackageProbe.of(node).store.package_states.list_all() == []
        await node.load(whole().module)
        await check_version(node, OLDER)


async def test_a_scenario_without_a_crash_ends_by_itself(program: LoaderProgram, store: str) -> None:
    """Or the tests above would show nothing."""
    assert program.run_scenario(Scenario(store, 0)) == 0
    async with tm.Node(store) as node:
        assert await rows(node) == {}
