"""A task that the kernel seems to kill for lack of memory: it counts the kill itself."""

import os
import signal
from pathlib import Path

import tidemill as tm

greedy = tm.Workflow("greedy")


@greedy.task(executor="kubernetes")
def grow() -> None:
    """Write what the kernel would, and die as it would."""
    if "MEMORY_EVENTS" in os.environ:
        Path(os.environ["MEMORY_EVENTS"]).write_text("low 0\noom 1\noom_kill 1\noom_group_kill 0\n")
    os.kill(os.getpid(), signal.SIGKILL)
