"""A program that loads and unloads a package, and is killed on the way: `python -m tests.system.crashing_loader`.

It reads one scenario per line of its input and prints how each ended, as an exit code. A scenario runs in a fork, which
starts without delay. It kills itself with SIGKILL right after a deploy step has had its effect.
"""

import asyncio
import os
import signal
import sys

import msgspec

import tidemill as tm
from tests.service.whole_package import whole
from tidemill.testing.faults.deploy_steps import DeployFaults


class Scenario(msgspec.Struct, frozen=True):
    """What to do, and where to crash: after a verb of a step, counted from 1."""

    store: str
    version: int
    """The version to load; 0 to unload version 1 again."""
    verb: str = ""
    step: int = 0


async def run(scenario: Scenario) -> None:
    """Load version 1, and then crash on the way to the next state."""
    async with tm.Node(scenario.store) as node:
        if scenario.version != 1:
            await node.load(whole(1).module)
        faults = DeployFaults(node)
        killed_after = faults.steps[scenario.step - 1].title if scenario.step else None

        async def die(verb: str, title: str) -> None:
            if (verb, title) == (scenario.verb, killed_after):
                os.kill(os.getpid(), signal.SIGKILL)

        faults.on_effect = die
        await (node.load(whole(scenario.version).module) if scenario.version else node.unload("whole"))


def main() -> None:
    """Run one scenario after the other."""
    for line in sys.stdin.buffer:
        if (child := os.fork()) == 0:
            os.close(0)
            asyncio.run(run(msgspec.json.decode(line, type=Scenario)))
            os._exit(0)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
