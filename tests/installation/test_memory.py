"""Memory of a server whose store fails again and again, beside that of a server with the same load and no faults.

A part of `make soak`: minutes must pass. `TIDEMILL_TEST_SOAK_SECONDS=600` gives those of docs/explanation/scale.md.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.installation.faults import PATIENCE
from tests.installation.front import Front
from tests.installation.journal import Journal
from tests.installation.package_under_test import write_package
from tests.installation.processes import Place, installed, resident
from tests.installation.producers import push_over_http
from tests.installation.readers import READERS, Reader, keep_reading
from tests.installation.test_installation import SOAK_SECONDS, make_key
from tests.postgres import PostgresServer
from tests.system.workflow_nodes import until

RESTART_INTERVAL = 8.0  # seconds between two crashes of the database
SAMPLES = 20  # of the memory, at equal distances
PRODUCERS = 3  # of each reactor
MORE_BY_FAULTS = 3.0
"""Megabytes by which a server with faults may grow more than the other. Both grow, until they remember all they may."""

pytestmark = [
    pytest.mark.timeout(SOAK_SECONDS + 600),
    pytest.mark.skipif(SOAK_SECONDS < 60, reason="memory is compared over minutes: TIDEMILL_TEST_SOAK_SECONDS=600"),
]


@asynccontextmanager
async def loaded_server(postgres: PostgresServer, folder: Path) -> AsyncIterator[Place]:
    """Run a server with reactors and workflows; clients push events, which start runs, and read the feed."""
    folder.mkdir()
    store = await postgres.fresh_store()
    key = make_key(store)
    async with installed(store, folder, servers=1, workers=0) as installation:
        await installation.until_ready(installation.servers, PATIENCE)
        front = Front(installation, Journal(folder / "journal"), key)
        for number, name in enumerate(("mill", "annex")):
            await front.upload(write_package(folder, folder, name, number))
        readers = [Reader(front, name) for name in READERS]
        async with asyncio.TaskGroup() as group:
            for reactor, accumulator in [("ledger", "entries"), ("accounts", "movements")]:
                for name in (f"{reactor}-{number}" for number in range(PRODUCERS)):
                    group.create_task(push_over_http(front, name, reactor, accumulator), name=name)
            reading = [group.create_task(keep_reading(one), name=one.name) for one in readers]
            await until(lambda: all(one.seen for one in readers), "all readers read", PATIENCE)
            yield installation.servers[0]
            front.is_closing.set()
            front.is_over.set()
            for task in reading:
                task.cancel()
        await front.aclose()
        front.journal.close()
        print(f"{folder.name}: {front.journal.counts}")


async def crash_again_and_again(postgres: PostgresServer) -> None:
    """Restart a database, as if it had crashed."""
    for _ in range(int(SOAK_SECONDS / RESTART_INTERVAL)):
        await asyncio.sleep(RESTART_INTERVAL)  # real time: the store is well
        await asyncio.to_thread(postgres.restart, "immediate")


async def test_faults_of_the_store_take_no_memory(
    own_postgres: PostgresServer, postgres: PostgresServer, tmp_path: Path
) -> None:
    """Whatever is made for a call that fails is freed with it."""
    series: list[tuple[float, float]] = []
    async with (
        loaded_server(own_postgres, tmp_path / "faults") as hit,
        loaded_server(postgres, tmp_path / "steady") as spared,
        asyncio.TaskGroup() as group,
    ):
        pids, began = (hit.pid, spared.pid), time.monotonic()
        group.create_task(crash_again_and_again(own_postgres), name="crashes")
        for number in range(SAMPLES + 1):
            await asyncio.sleep(began + number * SOAK_SECONDS / SAMPLES - time.monotonic())  # real time: memory
            series.append((resident(hit), resident(spared)))
            faults, none = series[-1]
            print(f"{time.monotonic() - began:.0f} s: {faults:.1f} MB with faults, {none:.1f} without", flush=True)
        assert pids == (hit.pid, spared.pid), "the servers were started again"
    (first_hit, first_spared), (last_hit, last_spared) = series[0], series[-1]
    assert last_hit - first_hit < last_spared - first_spared + MORE_BY_FAULTS
