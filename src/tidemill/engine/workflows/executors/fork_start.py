"""How a fork server begins: `python -m` this, with a socket to the node as its only argument."""

import os
import socket
import sys

from tidemill.engine.workflows.executors.fork_hooks import hold_back

BIND_NOW = "LD_BIND_NOW"
"""Lets the linker look up the symbols of Python when it starts: else each child does that, for those it meets."""

if __name__ == "__main__":
    os.environ.pop(BIND_NOW, None)  # it was meant for this process, not for what tasks execute
    repairs = hold_back()
    from tidemill.engine.workflows.executors.forkserver import Server

    Server(socket.socket(fileno=int(sys.argv[1])), repairs).serve()
