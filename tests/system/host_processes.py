"""Processes that host partitions, and who owns which."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

import tidemill as tm
from tests.system.partition_host import HostSpec
from tidemill.access.principal import Caller

PUBLIC = Caller("public", "test")


@asynccontextmanager
async def host(spec: HostSpec) -> AsyncIterator[Process]:
    """Run a process that hosts partitions."""
    command = [sys.executable, "-m", "tests.system.partition_host", msgspec.json.encode(spec).decode()]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        await expect(process, "ready")
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def expect(process: Process, line: str) -> None:
    """Wait for a line of a process."""
    assert process.stdout is not None, "it is a pipe"
    assert (await process.stdout.readline()).decode().strip() == line


async def owners(node: tm.Node) -> list[str | None]:
    """Return the owner of each partition."""
    state = await node.graph_client.reactor_state(PUBLIC, "counters")
    return [one.owner for one in state.partitions]


async def until_shared(node: tm.Node, hosts: int) -> None:
    """Wait until so many hosts share the partitions evenly."""
    while True:
        found = await owners(node)
        counts = [found.count(one) for one in set(found) if one is not None]
        if None not in found and len(counts) == hosts and max(counts) - min(counts) <= 1:
            return
        await asyncio.sleep(0.1)
