"""Workflows whose tasks run on Ray, in a module that another process can import."""

import os
import time
from pathlib import Path

import tidemill as tm


class Files(tm.Params):
    """Where a task says that it has begun, and what it waits for."""

    folder: str


def work(params: Files, name: str) -> int:
    """Say which process runs, and wait for the gate."""
    folder = Path(params.folder)
    (folder / f"{name}.{os.getpid()}").touch()
    while not (folder / "gate").exists():
        time.sleep(0.01)  # noqa: TID251 - author code
    return 7


on_ray = tm.Workflow("on_ray", params=Files)


@on_ray.task(executor="ray", resources={"cpu": "100m"})
def count(params: Files, ctx: tm.Context) -> int:
    """Work with a tenth of a core."""
    ctx.log.info("begun")
    return work(params, "count")


@on_ray.task
def double(count: int) -> int:
    """Continue on the node."""
    return 2 * count


exclusive = tm.Workflow("exclusive", params=Files)


@exclusive.task(executor="ray", resources={"cpu": "100m", "near": 1})
def first(params: Files) -> int:
    """Take the only one of a custom resource."""
    return work(params, "exclusive")


@exclusive.task(executor="ray", resources={"cpu": "100m", "near": 1})
def second(params: Files) -> int:
    """Take it too."""
    return work(params, "exclusive")


far = tm.Workflow("far", params=Files)


@far.task(executor="ray", resources={"cpu": "100m", "far": 1})
def distant(params: Files) -> int:
    """Work on another node of the cluster."""
    return work(params, "distant")


slow = tm.Workflow("slow", params=Files)


@slow.task(executor="ray", resources={"cpu": "100m"}, timeout="500ms")
def endless(params: Files) -> int:
    """Work for longer than allowed."""
    return work(params, "endless")


huge = tm.Workflow("huge", params=Files)


@huge.task(executor="ray", resources={"cpu": 1000})
def thousand(params: Files) -> int:
    """Ask for more than the cluster has."""
    return work(params, "thousand")
