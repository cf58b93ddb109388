"""How a fork server begins: `python -m` this, with a socket to the node as its only argument."""

import importlib
import os
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.engine.workflows.executors.forkserver.protocol import ForkHooks

HOOKING_MODULES = "threading", "logging"


def defer_fork_hooks() -> "list[ForkHooks]":
    """Import who would repair, and return what they want done at every fork: nothing of it is done yet.

    Those that were imported before have had their way.
    """
    held: list[ForkHooks] = []
    register = os.register_at_fork
    os.register_at_fork = lambda **hooks: held.append(hooks)
    try:
        for name in HOOKING_MODULES:
            importlib.import_module(name)
    finally:
        os.register_at_fork = register
    return held


BIND_NOW_VARIABLE = "LD_BIND_NOW"
"""Lets the linker look up the symbols of Python when it starts: else each child does that, for those it meets."""

if __name__ == "__main__":
    os.environ.pop(BIND_NOW_VARIABLE, None)  # it was meant for this process, not for what tasks execute
    deferred_hooks = defer_fork_hooks()
    from tidemill.engine.workflows.executors.forkserver.server import ForkServer

    ForkServer(socket.socket(fileno=int(sys.argv[1])), deferred_hooks).serve()
