"""Workflows whose tasks need nothing but a pod: no folder is shared with the node."""

import os
import time

import tidemill as tm

MEBIBYTE = 2**20

steps = tm.Workflow("steps")


@steps.task(executor="kubernetes", resources={"cpu": "100m", "memory": "128Mi"})
def where(ctx: tm.Context) -> str:
    """Say in which pod it runs."""
    ctx.log.info("begun")
    print("printed")
    return os.environ.get("HOSTNAME", "")


@steps.task
def measured(where: str) -> int:
    """Continue on the node."""
    return len(where)


flaky = tm.Workflow("flaky")


@flaky.task(executor="kubernetes", retry=tm.Retry(2, delay="10ms"))
def fail_once(ctx: tm.Context) -> int:
    """Fail at the first try."""
    if ctx.attempt == 1:
        raise ValueError("broken on purpose")
    return ctx.attempt


endless = tm.Workflow("endless")


@endless.task(executor="kubernetes")
def wait(ctx: tm.Context) -> None:
    """Run until it is stopped."""
    ctx.log.info("begun")
    while True:
        time.sleep(0.1)  # noqa: TID251 - author code


greedy = tm.Workflow("greedy")


@greedy.task(executor="kubernetes", resources={"memory": "128Mi"})
def fill_memory() -> int:
    """Use more memory than it has reserved."""
    return sum(len(one) for one in [bytearray(64 * MEBIBYTE) for _ in range(16)])


imageless = tm.Workflow("imageless")


@imageless.task(executor="kubernetes", image="registry.invalid/there-is-none:1")
def never() -> None:
    """Need an image that does not exist."""
