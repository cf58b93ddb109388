"""A program that owns a reactor: it pushes numbers until it is killed, and prints what became of each."""

import asyncio
import sys
from itertools import count

import tidemill as tm


@tm.passthrough
def numbers(event: int) -> int:
    """Take a number."""
    return event


reactor = tm.Reactor("r", [numbers], durability="boundary")


async def main(address: str) -> None:
    """Push until the end of the process."""
    async with tm.Node(address, load=[reactor]) as node:
        for number in count(1):
            receipt = await node.push("numbers", number)
            print(number if receipt.accepted else f"rejected: {receipt.reason}", flush=True)
            await asyncio.sleep(0.001)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
