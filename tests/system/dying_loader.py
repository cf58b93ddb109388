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
from tidemill.packages.deploy.change import PackageChange
from tidemill.packages.deploy.steps import DeployStep


class Life(msgspec.Struct, frozen=True):
    """What to do, and where to die: after the verb of a step, counted from 1."""

    store: str
    version: int
    """Which version to load; 0 to unload again what was loaded first."""
    verb: str = ""
    step: int = 0


class Deadly(DeployStep):
    """A step after which the process is no more."""

    def __init__(self, step: DeployStep, verb: str) -> None:
        self.title = step.title
        self.awaits_author_code = step.awaits_author_code
        self._step = step
        self._verb = verb

    async def apply(self, exchange: PackageChange) -> None:
        await self._step.apply(exchange)
        self._die("apply")

    async def roll_back(self, exchange: PackageChange) -> None:
        await self._step.roll_back(exchange)

    async def remove(self, exchange: PackageChange) -> None:
        await self._step.remove(exchange)
        self._die("remove")

    def _die(self, verb: str) -> None:
        if verb == self._verb:
            os.kill(os.getpid(), signal.SIGKILL)


async def live(life: Life) -> None:
    """Load version 1, and then, on the way to what is wanted, die."""
    async with tm.Node(life.store) as node:
        if life.version != 1:
            await node.load(whole(1).module)
        pipeline = node._packages.pipeline
        steps = list(pipeline.steps)
        if life.step:
            steps[life.step - 1] = Deadly(steps[life.step - 1], life.verb)
        pipeline.steps = tuple(steps)
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
