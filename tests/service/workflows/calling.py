"""Workflows whose tasks push and start, in a module that another process can import."""

import os
import signal
from pathlib import Path

import tidemill as tm

called = tm.Workflow("called")


@called.task
def greet(ctx: tm.Context) -> str:
    return f"hello {ctx['name']}"


caller = tm.Workflow("caller")


@caller.task(retry=tm.Retry(2, delay="10ms"))
def start_twice_and_die(ctx: tm.Context) -> list[str]:
    ids = [ctx.start("called", name="a").id, ctx.start("called", name="b").id]
    marker = Path(ctx["marker"])
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return ids


@caller.task(after=[start_twice_and_die])
async def push_and_start(ctx: tm.AsyncContext) -> list[object]:
    receipt = await ctx.push("numbers", 7)
    return [receipt.outcome, (await ctx.start(called, name="c")).id]
