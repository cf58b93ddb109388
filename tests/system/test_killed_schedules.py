"""P-3, W-13: the cursors of schedules outlive all servers, even if a worker starts before the next one."""

import asyncio
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tests.service.package_files import publish
from tests.system.server_process import server_process
from tests.system.workflow_nodes import all_runs, opened, until
from tidemill.kernel.clock import SystemClock
from tidemill.storage.store import Store

INTERVAL = timedelta(seconds=0.5)
FLOWS = """\
import tidemill as tm

ticks = tm.Workflow("ticks", schedule=tm.Every("500ms", key="ticks", catchup="all"))

@ticks.task
def tick() -> None:
    pass
"""


@pytest.fixture(params=["sqlite", "postgres"])
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'tidemill.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return await server.fresh_store()


async def slots_of(store: Store) -> list[datetime]:
    """Return the slots that have a run."""
    return sorted(run.slot for run in await all_runs(store) if run.slot is not None)


async def until_slots_after(store: Store, moment: datetime) -> None:
    """Wait until slots after a moment have their runs."""

    async def have_runs() -> bool:
        return sum(slot > moment for slot in await slots_of(store)) >= 2

    await until(have_runs, f"slots after {moment} have runs")


async def until_loaded_by_worker(store: Store) -> None:
    """Wait until a worker has loaded the package."""

    async def is_loaded() -> bool:
        workers = {one.id for one in await store.owners.list_all() if one.is_worker}
        return any(one.owner in workers and one.phase == "loaded" for one in await store.package_states.list_all())

    await until(is_loaded, "the worker has the package")


async def test_a_worker_that_starts_while_all_servers_are_dead_leaves_their_schedules(address: str) -> None:
    """P-3: a worker loads no schedules, and takes none away."""
    async with opened(address) as store:
        await publish(store, flows=FLOWS)
        clock = SystemClock()
        with server_process(address, "--no-auth") as first, server_process(address, "--no-auth") as second:
            await until_slots_after(store, clock.now())
            for server in (first, second):
                server.process.kill()
                server.process.wait()
        worker = await asyncio.create_subprocess_exec(sys.executable, "-m", "tidemill", "worker", "--store", address)
        try:
            await until_loaded_by_worker(store)
            with server_process(address, "--no-auth"):
                await until_slots_after(store, clock.now())
        finally:
            worker.kill()
            await worker.wait()
        slots = await slots_of(store)
        assert slots == [slots[0] + number * INTERVAL for number in range(len(slots))]
