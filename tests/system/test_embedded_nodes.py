"""Several workers of one web application, each with a node on the same store, as `uvicorn --workers 2` starts them."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tidemill.client import AsyncClient

PATIENCE = 60.0  # seconds; two processes start at once, on a machine that may be busy


@asynccontextmanager
async def worker(address: str) -> AsyncIterator[tuple[Process, str]]:
    """Run a process that serves its node; yield it with its address."""
    command = [sys.executable, "-m", "tests.system.embedding_program", address]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        yield process, await next_line(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def next_line(process: Process) -> str:
    """Return the next line that a process prints."""
    assert process.stdout is not None, "it is a pipe"
    async with asyncio.timeout(PATIENCE):
        return (await process.stdout.readline()).decode().strip()


async def say(process: Process, number: int) -> str:
    """Let the program of a worker push a number, and pause and resume the reactor; return what it prints."""
    assert process.stdin is not None
    process.stdin.write(b"%d\n" % number)
    await process.stdin.drain()
    return await next_line(process)


async def test_every_worker_takes_pushes_commands_and_reads(tmp_path: Path) -> None:
    """Whichever of them owns the reactor, over HTTP and from the program; the other takes over from a killed one."""
    address = f"sqlite:///{tmp_path}/tidemill.db"
    async with (
        worker(address) as (one, url),
        worker(address) as (other, other_url),
        AsyncClient(url) as client,
        AsyncClient(other_url) as other_client,
    ):
        for number, at in enumerate([client, other_client] * 2, 1):
            assert (await at.push("numbers", number)).accepted
            assert (await at.reactor("first").state()).cache["numbers"] == number
            assert (await at.reactor("first").pause()).paused
            assert not (await at.reactor("first").resume()).paused
        assert [await say(process, 9) for process in (one, other)] == ["True True"] * 2
        assert [(await at.reactor("first").state()).fires for at in (client, other_client)] == [6, 6]
        one.kill()
        await one.wait()
        assert (await other_client.push("numbers", 10)).accepted
        assert (await other_client.reactor("first").state()).cache["numbers"] == 10
