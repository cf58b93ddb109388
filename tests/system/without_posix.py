"""Runs commands and an embedded node as if this were a system without the modules that only Unix has."""

import asyncio
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

MODULES = frozenset({"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"})
FLOW = """
import tidemill as tm

flow = tm.Workflow("flow")


@flow.task
def answer() -> int:
    return 42
"""


class Hidden:
    """Finds no module of Unix."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise for a module of Unix; leave others to the next finder."""
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def hide() -> None:
    """Hide the modules; asyncio has its own for each system, and is here already."""
    sys.meta_path.insert(0, Hidden())
    for name in MODULES:
        sys.modules.pop(name, None)
    del os.fork


def run_command(words: list[str]) -> int:
    """Run a command to its end; return its exit code."""
    from tidemill.cli.main import main

    sys.argv = ["tidemill", *words]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


async def use_node() -> None:
    """Run a graph and a workflow on an embedded node with a store."""
    import tidemill as tm

    flow = importlib.import_module("flow").flow

    @tm.passthrough
    def prices(event: int) -> int:
        return event

    async with tm.Node(store="sqlite:///node.db", load=[tm.Reactor("desk", [prices]), flow]) as node:
        await node.push("prices", 3)
        result = await (await node.start(flow)).wait()
        print(node.reactor("desk").state().cache, result.outputs)


if __name__ == "__main__":
    hide()
    Path("flow.py").write_text(FLOW)
    sys.path.insert(0, "")
    for line in sys.stdin.read().splitlines():
        print(f"{run_command(shlex.split(line))}: {line}", flush=True)
    asyncio.run(use_node())
