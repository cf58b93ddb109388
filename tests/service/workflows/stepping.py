"""A workflow whose tasks die at each point of a step, in a module that another process can import."""

import os
import signal
from pathlib import Path

import tidemill as tm

dying = tm.Workflow("dying")


def once(folder: str, name: str) -> bool:
    """Return whether it is called for the first time, over all processes; each call adds a line to a file."""
    path = Path(folder) / name
    with path.open("a") as file:
        file.write(f"{name}\n")
    return path.read_text().count("\n") == 1


def die() -> None:
    """Kill this process, as a machine that loses its power does."""
    os.kill(os.getpid(), signal.SIGKILL)


def works(folder: str, name: str) -> int:
    """Return the number of its calls."""
    once(folder, name)
    return (Path(folder) / name).read_text().count("\n")


def dies_before_its_commit(folder: str) -> int:
    """Do the work, and die before the value is committed."""
    if once(folder, "dies_before_its_commit"):
        die()
    return 7


@dying.task(retry=tm.Retry(2, delay="10ms"))
def work(ctx: tm.Context) -> list[int]:
    folder = ctx["folder"]
    first = ctx.step(works, folder, "first")
    died = ctx.step(dies_before_its_commit, folder)
    last = ctx.step(works, folder, "last")
    if once(folder, "after the commit"):
        die()
    return [first, died, last, ctx.step(works, folder, "end", key="end")]
