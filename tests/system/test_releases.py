"""W-19: a release with every process killed and started again strands no run: SQLite, and PostgreSQL with a worker."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tests.service.package_folders import package
from tests.system.server_process import ServerProcess, server_process
from tests.system.workflow_nodes import opened, until
from tidemill.client import Client
from tidemill.kernel.clock import SystemClock
from tidemill.packages.format.archive import read_folder
from tidemill.packages.format.signature import TrustPolicy
from tidemill.packages.publishing import Publisher
from tidemill.workflows.states import TaskState

PATIENCE = "30s"
FLOW = """\
import os
import tidemill as tm

class Gate(tm.Params):
    path: str

flow = tm.Workflow("flow", params=Gate)

@flow.task
def first() -> int:
    return {number}

@flow.task
def held(first: int, params: Gate, ctx: tm.Context) -> int:
    ctx.defer(poll=lambda: os.path.exists(params.path), every="100ms")
    return {number}

@flow.task{options}
def last(held: int) -> list[int]:
    return [held, {number}]
"""


async def publish(store: str, folder: Path, number: int, options: str) -> None:
    """Publish a version of the package; a store without tables gets them."""
    code = FLOW.format(number=number, options=options)
    async with opened(store) as registry:
        publisher = Publisher(registry.packages, TrustPolicy(), SystemClock())
        await publisher.publish(read_folder(package(folder / "shop", code, f"{number}.0.0")), "public")


@contextmanager
def installation(store: str, workers: int) -> Iterator[ServerProcess]:
    """Run a server and workers, and kill all of them with SIGKILL in the end."""
    command = [sys.executable, "-m", "tidemill", "worker", "--store", store]
    with ExitStack() as stack:
        server = stack.enter_context(server_process(store, "--no-auth"))
        for _ in range(workers):
            worker = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL))
            stack.callback(worker.kill)
        server.wait_until_ready()
        yield server


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_release_with_a_restart_of_everything_strands_no_run(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The run goes on after the release, in its own version, on a server and a worker that never had it before."""
    store, workers, options = f"sqlite:///{tmp_path / 'tidemill.db'}", 0, ""
    if kind == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        store, workers, options = await postgres.fresh_store(), 1, '(executor="worker")'
    gate = tmp_path / "gate"
    await publish(store, tmp_path, 1, options)
    with installation(store, workers) as server, Client(server.url) as client:
        run = client.start("flow", path=str(gate)).id
        await until(
            lambda: client.run_handle(run).state().tasks["held"].state is TaskState.DEFERRED, "the run is deferred"
        )
    await publish(store, tmp_path, 2, options)
    with installation(store, workers) as server, Client(server.url) as client:
        fresh = client.start("flow", path=str(gate))
        gate.touch()
        assert client.run_handle(run).wait(PATIENCE).raise_for_status().outputs == {
            "first": 1,
            "held": 1,
            "last": [1, 1],
        }
        assert fresh.wait(PATIENCE).outputs["last"] == [2, 2]
        history = {one.version: one.unfinished_runs for one in client.package_history("shop")}
        assert history == {"2.0.0": 0, "1.0.0": 0}
        assert client.rollback_package("shop").version == "1.0.0"
        again = client.start("flow", path=str(gate)).wait(PATIENCE)
        assert again.outputs["last"] == [1, 1]
        assert "package.rollback" in [one.action for one in client.audit()]
