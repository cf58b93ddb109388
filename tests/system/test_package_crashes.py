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
from tests.system import dying_loader
from tests.system.dying_loader import Life
from tidemill.testing.probes import PackageProbe

STEPS = range(1, 7)
OLDER = [("daily", "hourly"), ("older", "hourly"), ("older", "other")]
NEWER = [("daily", "hourly"), ("newer", "hourly"), ("newer", "other")]
KILLED = -9


class Mother:
    """Gives birth to lives of the program, one after the other."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def let_live(self, life: Life) -> int:
        """Let a life come to its end; return how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(life) + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@pytest.fixture(scope="module")
def mother() -> Iterator[Mother]:
    """The program, without a life so far."""
    command = [sys.executable, "-m", dying_loader.__name__]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Mother(process)


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database that outlives every kill."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'tidemill.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return await server.fresh_database()


async def check_version(node: tm.Node, keys: list[tuple[str, str]]) -> None:
    """See that one version is loaded, and nothing else is left in the store."""
    found = await rows(node)
    assert list(found) == keys
    assert all(row.armed for row in found.values())
    [page] = await PackageProbe.of(node).store.package_states.list_all()
    assert (page.phase, page.owner) == ("loaded", node._workflows.owner.id)


@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_load_leaves_nothing(mother: Mother, store: str, step: int) -> None:
    """Nothing half loaded at the next start; what was armed by then is gone on with, and goes with the package."""
    assert mother.let_live(Life(store, 1, "apply", step)) == KILLED
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
async def test_a_killed_reload_leaves_one_version(mother: Mother, store: str, verb: str, step: int) -> None:
    """Whichever is loaded then has its rows, and there are no others."""
    assert mother.let_live(Life(store, 2, verb, step)) == KILLED
    async with tm.Node(store, load=[whole(2).module]) as node:
        await check_version(node, NEWER)


@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_unload_is_finished(mother: Mother, store: str, step: int) -> None:
    """At the next start; and a package that is wanted there is loaded anew."""
    assert mother.let_live(Life(store, 0, "remove", step)) == KILLED
    async with tm.Node(store) as node:
        assert await rows(node) == {}
        assert await PackageProbe.of(node).store.package_states.list_all() == []
        await node.load(whole().module)
        await check_version(node, OLDER)


async def test_a_life_that_is_not_killed_ends_by_itself(mother: Mother, store: str) -> None:
    """Or the tests above would show nothing."""
    assert mother.let_live(Life(store, 0)) == 0
    async with tm.Node(store) as node:
        assert await rows(node) == {}
