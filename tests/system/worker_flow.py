"""A workflow for workers, whose task notes when it begins and ends; a file for `--load`, complete in itself."""

import os
import threading
import time
from pathlib import Path

import tidemill as tm


class Journal(tm.Params, frozen=True):
    """The file in which tasks note what they do, and what ends them: a file that appears, or the time."""

    file: str
    gate: str = ""
    seconds: float = 0.0


held = tm.Workflow("held", params=Journal, max_active_runs=1000)


def note(what: str, params: Journal, ctx: tm.Context) -> None:
    """Write one line at once, so that a kill never tears one."""
    line = f"{what} {ctx.token} {os.environ['WORKER']} {os.getpid()} {time.monotonic()}\n"
    file = os.open(params.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@held.task(executor="worker")
def hold(params: Journal, ctx: tm.Context) -> str:
    """Note the beginning, wait, and note the end."""
    note("begin", params, ctx)
    pause = threading.Event()
    pause.wait(params.seconds)
    while params.gate and not Path(params.gate).exists():
        pause.wait(0.005)
    note("end", params, ctx)
    return os.environ["WORKER"]
