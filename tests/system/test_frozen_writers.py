"""A process that is frozen in the middle of a SQLite write blocks the file for all, and is named to the operator."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tidemill as tm
from tests.system.workflow_nodes import until
from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.store_client import make_store_client
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.errors import StoreError
from tidemill.kernel.settings import Settings
from tidemill.storage.sqlite.store import SqliteStore
from tidemill.storage.sqlite.write_lock import find_lock_holder

WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE leases SET until = until")
print("writing", flush=True)
sys.stdin.read()
"""


@contextmanager
def writing(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that is in the middle of a write."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
            yield process
        finally:
            process.kill()


def freeze(process: subprocess.Popen[str]) -> None:
    """Stop a process, and wait until it is stopped."""
    process.send_signal(signal.SIGSTOP)
    with open(f"/proc/{process.pid}/stat") as stat:
        while ") T" not in stat.read():
            stat.seek(0)


def gated() -> tuple[tm.Workflow, asyncio.Event]:
    """Return a workflow whose first task waits for an event, and the event."""
    flow, gate = tm.Workflow("flow"), asyncio.Event()

    @flow.task
    async def first() -> None:
        await gate.wait()

    @flow.task(after=[first])
    def second() -> None:
        pass

    return flow, gate


async def test_a_frozen_writer_is_named_in_errors_logs_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """W-17: nothing can be written meanwhile, and everything goes on when the process does."""
    path, (flow, gate) = tmp_path / "tidemill.db", gated()
    async with tm.Node(f"sqlite:///{path}", load=[flow]) as node:
        run = await node.start("flow")
        with writing(path) as process:
            freeze(process)
            blocker = f"process {process.pid}, which is stopped"
            with pytest.raises(StoreError, match=f"{blocker}; continue it with kill -CONT {process.pid}, or end it"):
                await node.start("flow")
            assert f"SQLite database {path} cannot be written: {blocker} holds its write lock" in " ".join(
                await run.why("second")
            )
            store = SqliteStore(str(path))
            await store.open_read_only()
            client = make_store_client(store, SystemClock(), Settings(), executor="in_process")
            assert blocker in " ".join(await client.explainer.why(Caller("public", "test"), run.id, "second"))
            await store.close()
            await until(lambda: any(blocker in str(vars(record).get("error")) for record in caplog.records), "a log")
            gate.set()
            process.send_signal(signal.SIGCONT)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait() == 0
        assert (await run.wait(10)).ok
        assert find_lock_holder(str(path)) is None
        assert not any("write lock" in sentence for sentence in await run.why("second"))


async def test_a_writer_that_is_killed_blocks_nothing(tmp_path: Path) -> None:
    """W-9: the system releases the lock of a process that has ended."""
    path, (flow, gate) = tmp_path / "tidemill.db", gated()
    gate.set()
    async with tm.Node(f"sqlite:///{path}", load=[flow]) as node:
        with writing(path) as process:
            freeze(process)
            holder = find_lock_holder(str(path))
            assert holder is not None
            assert holder == (process.pid, True)
        run = await node.start("flow")
        assert (await run.wait(10)).ok
