"""A reactor whose owner is killed or frozen: another process takes it over, and nothing acknowledged is lost."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.service.workflows.pairs import PATIENCE, until
from tests.system.owning_program import reactor
from tidemill.access.principal import Caller


@pytest.fixture(params=["sqlite", "postgres"])
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tidemill.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return await server.fresh_store()


@asynccontextmanager
async def owner(address: str) -> AsyncIterator[Process]:
    """Run a process that owns the reactor."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.system.owning_program", address, stdout=PIPE
    )
    try:
        assert await next_line(process) == "1"
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def next_line(process: Process) -> str:
    """Return the next line that a process prints; empty at its end."""
    assert process.stdout is not None, "it is a pipe"
    async with asyncio.timeout(PATIENCE):
        return (await process.stdout.readline()).decode().strip()


async def take_over(node: tm.Node) -> int:
    """Wait until a node runs the reactor; return the last number in it."""

    async def is_running() -> bool:
        return "r" in node.registry.reactors()

    await until(is_running)
    return int(node.reactor("r").state().cache["numbers"])


async def test_a_killed_owner_is_replaced_without_a_loss(address: str) -> None:
    """G-31, G-24: another process continues from the last acknowledged event."""
    async with owner(address) as process, tm.Node(address, load=[reactor]) as node:
        assert (await node.push("numbers", 0)).accepted

        async def has_gone_on() -> bool:
            state = await node.graph_client.reactor_state(Caller("public", "test"), "r")
            return state.cache["numbers"] > 0

        await until(has_gone_on)
        process.kill()
        await process.wait()
        acknowledged = 1
        while line := await next_line(process):
            acknowledged = int(line)
        assert await take_over(node) >= acknowledged


async def test_a_frozen_owner_is_replaced_and_forwards_when_it_wakes_up(address: str) -> None:
    """G-31, W-8: it writes nothing itself any more; every event that it acknowledges is applied once, by the owner."""
    async with owner(address) as process, tm.Node(address, load=[reactor]) as node:
        process.send_signal(signal.SIGSTOP)
        last = await take_over(node)
        assert (await node.push("numbers", 1_000_000)).accepted
        process.send_signal(signal.SIGCONT)
        acknowledged = [1]
        while acknowledged[-1] < last + 20:
            line = await next_line(process)
            assert line.isdecimal() or line.startswith("rejected: ")  # a write on its way may have lost its connection
            acknowledged += [int(line)] if line.isdecimal() else []
        process.kill()
        while line := await next_line(process):
            acknowledged += [int(line)] if line.isdecimal() else []
        emitted = node.reactor("r").state().accumulators["numbers"].emitted
        assert len(acknowledged) + 1 <= emitted <= len(acknowledged) + 2  # it may have been killed before it said so
        final = node.reactor("r").state().cache
    async with tm.Node(address, load=[reactor]) as successor:
        assert {"numbers": await take_over(successor)} == final
