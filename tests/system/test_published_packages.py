"""P-10, P-12: what is published, or lies in a folder, is loaded everywhere; what is broken is said and harms none."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.service.package_files import BROKEN, publish, shop_in
from tests.system.workflow_nodes import opened, until
from tidemill.kernel.clock import SystemClock
from tidemill.packages.format.signature import TrustPolicy
from tidemill.packages.publishing import Publisher
from tidemill.packages.status import PackageStatus
from tidemill.storage.store import Store
from tidemill.storage.tables.schedules import ScheduleKey
from tidemill.testing.probes import PackageProbe
from tidemill.testing.probes.workflows import WorkflowProbe

PATIENCE = 30.0  # seconds for anything at all
KEY = ScheduleKey("public", "daily", "hourly")


@pytest.fixture(params=["sqlite", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """The address of an empty database, and the settings of nodes: only PostgreSQL wakes them by itself."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'tidemill.db'}", {"load_published": True, "package_poll_interval": 0.1}
    server: PostgresServer = request.getfixturevalue("postgres")
    return await server.fresh_store(), {"load_published": True, "package_poll_interval": 3600}


async def withdraw(store: Store) -> None:
    """Want the package on no node."""
    await Publisher(store.packages, TrustPolicy(), SystemClock()).withdraw("public", "shop")


def status(node: tm.Node) -> PackageStatus | None:
    """Return how things stand with the package on a node."""
    return next((one for one in node.packages() if one.name == "shop"), None)


async def all_have(nodes: list[tm.Node], state: str, version: str) -> None:
    """Wait until the package is in a state on every node."""

    def is_so() -> bool:
        found = [status(node) for node in nodes]
        return all(one is not None and (one.state, one.version) == (state, version) for one in found)

    await until(is_so, f"{version} is {state}")


async def number_of(node: tm.Node) -> int:
    """Return the number of the version that runs begin with on a node."""
    result = await (await node.start("daily")).wait(PATIENCE)
    return int(result.outputs["count"])


async def pages(store: Store) -> list[tuple[str, str]]:
    """Return what is written down about the package, for every node."""
    return sorted((one.phase, one.version) for one in await store.package_states.list_all())


async def pages_are(store: Store, expected: list[tuple[str, str]]) -> None:
    """Wait until that is written down, and nothing else."""

    async def is_so() -> bool:
        return await pages(store) == expected

    await until(is_so, f"the pages are {expected}")


@asynccontextmanager
async def nodes_on(address: str, settings: dict[str, Any]) -> AsyncIterator[list[tm.Node]]:
    """Yield two nodes on one store."""
    async with tm.Node(address, settings=settings) as first, tm.Node(address, settings=settings) as second:
        yield [first, second]


async def test_what_is_published_is_loaded_on_every_node(place: tuple[str, dict[str, Any]]) -> None:
    """P-12, P-10, P-3: a newer one is swapped, a broken one leaves the last good one, and withdrawn it goes."""
    address, settings = place
    async with opened(address) as store, nodes_on(address, settings) as nodes:
        await publish(store, "1.0.0", 1)
        await all_have(nodes, "loaded", "1.0.0")
        assert [await number_of(node) for node in nodes] == [1, 1]
        await pages_are(store, [("loaded", "1.0.0")] * 2)
        await publish(store, "2.0.0", flows=BROKEN)
        await all_have(nodes, "failed", "1.0.0")
        for node in nodes:
            found = status(node)
            assert found is not None
            assert found.wanted == "2.0.0"
            [problem] = found.problems
            assert str(problem.location).endswith("shop/flows.py:3")
            assert "shop/flows.py:3" in found.reason
            assert "this_name_is_not_defined" in found.reason
        assert [await number_of(node) for node in nodes] == [1, 1]
        assert await pages(store) == [("loaded", "1.0.0")] * 2
        await publish(store, "3.0.0", 3)
        await all_have(nodes, "loaded", "3.0.0")
        assert [await number_of(node) for node in nodes] == [3, 3]
        await withdraw(store)
        await until(lambda: not any(node.registry.packages() for node in nodes), "it is gone")
        await pages_are(store, [])
        assert await store.schedules.get_cursor(*KEY) is None
        assert [node.registry.workflows() for node in nodes] == [[], []]


async def test_what_was_withdrawn_while_no_node_ran_leaves_nothing(place: tuple[str, dict[str, Any]]) -> None:
    """P-3: a node that is stopped unloads nothing; its next life does, if the registry wants it no more."""
    address, settings = place
    async with opened(address) as store:
        async with tm.Node(address, settings=settings) as node:
            await publish(store, "1.0.0")
            await all_have([node], "loaded", "1.0.0")
        row = await store.schedules.get_cursor(*KEY)
        assert row is not None
        async with tm.Node(address, settings=settings) as node:
            await all_have([node], "loaded", "1.0.0")
            assert await store.schedules.get_cursor(*KEY) == row
            await pages_are(store, [("loaded", "1.0.0")])
        await withdraw(store)
        async with tm.Node(address, settings=settings) as node:
            await pages_are(store, [])
            assert await store.schedules.get_cursor(*KEY) is None
            assert node.registry.packages() == []


async def test_what_is_withdrawn_is_gone_for_nodes_that_have_ended_too(place: tuple[str, dict[str, Any]]) -> None:
    """P-3: the registry is the same for all of them, so none comes back with the package."""
    address, settings = place
    async with opened(address) as store, tm.Node(address, settings=settings) as staying:
        async with tm.Node(address, settings=settings) as leaving:
            await publish(store, "1.0.0")
            await all_have([staying, leaving], "loaded", "1.0.0")
        await pages_are(store, [("loaded", "1.0.0")] * 2)
        await withdraw(store)
        await pages_are(store, [])
        assert await store.schedules.get_cursor(*KEY) is None


async def test_a_folder_is_watched(tmp_path: Path) -> None:
    """P-10, P-12: saved is loaded, broken is said with file and line, deleted is gone."""
    folder = tmp_path / "packages"
    folder.mkdir()
    async with tm.Node(f"sqlite:///{tmp_path / 'tidemill.db'}", settings={"packages": str(folder)}) as node:
        shop_in(folder / "shop", "1.0.0", 1)
        await all_have([node], "loaded", "1.0.0")
        assert await number_of(node) == 1
        shop_in(folder / "shop", "1.1.0", flows=BROKEN)
        await all_have([node], "failed", "1.0.0")
        found = status(node)
        assert found is not None
        assert "shop/flows.py:3" in found.reason
        assert await number_of(node) == 1
        shop_in(folder / "shop", "1.1.0", 2)
        await all_have([node], "loaded", "1.1.0")
        assert await number_of(node) == 2
        shutil.rmtree(folder / "shop")
        await until(lambda: not node.registry.packages(), "it is gone")
        assert await PackageProbe.of(node).store.schedules.get_cursor(*KEY) is None


UNFINISHED_FLOWS = """\
import tidemill as tm

daily = tm.Workflow("daily", triggers=["new_files"], max_active_runs=1{options})

@daily.task(retry=tm.Retry(3, delay="1h"))
def count() -> int:
    {body}

daily.call("scoring", name="scored")
"""


@pytest.mark.parametrize("policy", ["pin", "upgrade"])
async def test_a_begun_run_of_a_replaced_version_is_not_stuck_in_silence(
    place: tuple[str, dict[str, Any]], policy: str
) -> None:
    """W-19: published while no node was running; it goes on with the new version, or keeps its code and may change."""
    address, settings = place
    settings |= {"unfinished": policy}
    async with opened(address) as store:
        await publish(store, "1.0.0", flows=UNFINISHED_FLOWS.format(options="", body="raise ValueError('a mistake')"))
        async with nodes_on(address, settings) as nodes:
            await all_have(nodes, "loaded", "1.0.0")
            begun, queued = await nodes[0].start("daily"), await nodes[1].start("daily")

            async def has_failed_once() -> bool:
                return (await begun.state()).tasks["count"].state == "up_for_retry"

            await until(has_failed_once, "the task waits for its retry")
        await publish(store, "2.0.0", flows=UNFINISHED_FLOWS.format(options="", body="return 2"))
        async with nodes_on(address, settings) as nodes:
            await all_have(nodes, "loaded", "2.0.0")
            first, second = nodes[1].run_handle(begun.id), nodes[1].run_handle(queued.id)
            if policy == "pin":
                versions = [WorkflowProbe.of(node).versions for node in nodes]
                await until(lambda: all(len(one.loaded) == 2 for one in versions), "the older code is loaded")
                assert (await first.why("count"))[0].startswith("it is retried")
                await first.retry(latest=True)
            assert (await first.wait(PATIENCE)).outputs["count"] == 2
            assert (await second.wait(PATIENCE)).outputs["count"] == 2
