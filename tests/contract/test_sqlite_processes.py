"""Several processes on one SQLite file, and one that is killed."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from tests.contract.samples import journal
from tidemill.storage.sqlite.store import SqliteStore

# Waits for a line; then opens the file, and appends so many entries to its journal. Prints what was acknowledged.
WRITER = """
import asyncio, sys
from tidemill.storage.graph_ports import JournalBlock, JournalKey
from tidemill.storage.sqlite.store import SqliteStore

async def write(path, first, step, count):
    store = SqliteStore(path)
    await store.open()
    key = JournalKey("public", "a")
    for position in range(first, first + step * count, step):
        await store.checkpoints.append([JournalBlock(key=key, position=position, checksum=b"", payload=b"event")])
        print(position, flush=True)
    await store.close()

print("ready", flush=True)
input()
asyncio.run(write(sys.argv[1], *map(int, sys.argv[2:])))
"""


async def start_writer(path: Path, first: int, step: int, count: int) -> Process:
    """Start a process that will write, and wait until it is about to."""
    numbers = [str(number) for number in (first, step, count)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), *numbers, stdin=PIPE, stdout=PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


async def stored(path: Path) -> list[int]:
    """Open the file and return the positions in it."""
    store = SqliteStore(str(path))
    await store.open()
    found = [entry.position for entry in await store.checkpoints.read_blocks([journal()])]
    assert await store.check_integrity() == []
    await store.close()
    return found


async def test_processes_that_open_a_new_file_at_once_share_it(tmp_path: Path) -> None:
    """One makes the schema, the others wait and find it done; no write is lost."""
    path = tmp_path / "tidemill.db"
    writers = [await start_writer(path, first, 3, 30) for first in range(3)]
    ends = await asyncio.gather(*(writer.communicate(b"go\n") for writer in writers))
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert [len(said.split()) for said, _ in ends] == [30, 30, 30]
    assert await stored(path) == list(range(90))


async def test_what_a_killed_process_had_acknowledged_is_there(tmp_path: Path) -> None:
    """G-24: kill -9 loses nothing that was acknowledged, and leaves no gap before it."""
    path = tmp_path / "tidemill.db"
    writer = await start_writer(path, 0, 1, 1_000_000)
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write(b"go\n")
    for _ in range(100):
        await writer.stdout.readline()
    writer.kill()
    rest, _ = await writer.communicate()
    acknowledged = 100 + rest.count(b"\n")
    found = await stored(path)
    assert found == list(range(len(found)))
    assert acknowledged <= len(found) <= acknowledged + 1
