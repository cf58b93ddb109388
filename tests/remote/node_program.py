"""A served node in a process of its own, which a test kills: begins a run, and serves until its end.

Arguments: the store, the folder of units, the folder of the run, and the port.
"""

import asyncio
import sys
from pathlib import Path

from tests.remote.local_launcher import LocalLauncher
from tests.remote.remote_node import remote_node


async def main(store: str, units: str, folder: str, port: int) -> None:
    """Begin a run, print its id and the URL of the server, and wait to be killed."""
    async with remote_node(store, LocalLauncher(Path(units)), port) as server:
        run = await server.begin(Path(folder))
        print(run.id, server.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
