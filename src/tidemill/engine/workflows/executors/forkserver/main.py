"""The entry point of a fork server: run with `python -m`, and the socket to the node as the only argument.

Modules that register at-fork hooks must not be imported before `defer_fork_hooks` has run. So this module imports
almost nothing, and the packages above it import nothing.
"""

import importlib
import os
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.engine.workflows.executors.forkserver.protocol import ForkHooks

HOOKING_MODULES = "threading", "logging"


def defer_fork_hooks() -> "list[ForkHooks]":
    """Import the modules that register at-fork hooks, and return those hooks instead of registering them.

    Modules that were imported before keep their hooks.
    """
    deferred: list[ForkHooks] = []
    register = os.register_at_fork
    os.register_at_fork = lambda **hooks: deferred.append(hooks)
    try:
        for name in HOOKING_MODULES:
            importlib.import_module(name)
    finally:
        os.register_at_fork = register
    return deferred


BIND_NOW_VARIABLE = "LD_BIND_NOW"
"""Makes the dynamic linker resolve Python's symbols at the start; else each child resolves those that it uses."""

if __name__ == "__main__":
    os.environ.pop(BIND_NOW_VARIABLE, None)  # it is for this process, not for programs that tasks execute
    deferred_hooks = defer_fork_hooks()
    from tidemill.engine.workflows.executors.forkserver.server import ForkServer

    ForkServer(socket.socket(fileno=int(sys.argv[1])), deferred_hooks).serve()
