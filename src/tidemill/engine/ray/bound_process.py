"""Replaces itself by a Python program that the kernel kills when the parent dies: run with `python -m`.

    python -m tidemill.engine.ray.bound_process PARENT_PID ARGUMENT...

Ray ends workers by SIGKILL, such as when memory runs out. What the worker has started would run on, without the
resources that Ray has already given to another.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def bind_to_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies; end at once if that has happened. Only Linux can."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    bind_to_parent(int(sys.argv[1]))
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
