"""A program with a node of its own behind an HTTP server, as one of several workers on one store."""

import asyncio
import sys

import tidemill as tm
from tidemill.server import asgi
from tidemill.server.serving import serving


@tm.passthrough
def numbers(event: int) -> int:
    """Take a number."""
    return event


@tm.passthrough
def others(event: int) -> int:
    """Take a number for the other reactor."""
    return event


first = tm.Reactor("first", [numbers], durability="boundary")
second = tm.Reactor("second", [others], durability="boundary")


async def main(address: str) -> None:
    """Serve until the end of the process; each line that comes in is a number to push here."""
    async with (
        tm.Node(address, load=[first, second]) as node,
        serving(asgi(node, auth=False), "127.0.0.1", 0) as url,
    ):
        print(url, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            receipt = await node.push(numbers, int(line))
            state = await node.reactor_anywhere("first").pause()
            await node.reactor_anywhere("first").resume()
            print(receipt.accepted, state.paused, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
