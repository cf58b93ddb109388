"""A program whose lives load and unload a package, and are killed on the way: `python -m tests.system.dying_loader`.

It takes one life per line of its input and says how each ended, as waitpid has it. A life is a fork, so that it is born
at once; where it is to die it kills itself as -9 does, right after a step of the pipeline has had its effect.
"""

import asyncio
import os
import signal
import sys

import msgspec

import tidemill as tm
from tests.service.whole_package import whole
from tidemill.testing.faults.deploy_steps import DeployFaults


class Life(msgspec.Struct, frozen=True):
    """What to do, and where to die: after the verb of a step, counted from 1."""

    store: str
    version: int
    """Which version to load; 0 to unload again what was loaded first."""
    verb: str = ""
    step: int = 0


async def live(life: Life) -> None:
    """Load version 1, and then, on the way to the next state, die."""
    async with tm.Node(life.store) as node:
        if life.version != 1:
            await node.load(whole(1).module)
        faults = DeployFaults(node)
        deadly = faults.steps[life.step - 1].title if life.step else None

        async def die(verb: str, title: str) -> None:
            if (verb, title) == (life.verb, deadly):
                os.kill(os.getpid(), signal.SIGKILL)

        faults.on_effect = die
        await (node.load(whole(life.version).module) if life.version else node.unload("whole"))


def main() -> None:
    """Let one life follow the other."""
    for line in sys.stdin.buffer:
        if (child := os.fork()) == 0:
            os.close(0)
            asyncio.run(live(msgspec.json.decode(line, type=Life)))
            os._exit(0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
