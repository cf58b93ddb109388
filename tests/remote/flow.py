"""Workflows whose tasks run in units, in a module that another process can import."""

import time
from pathlib import Path

import tidemill as tm
from tidemill.workflows.definition import Params
from tidemill.workflows.workflow import Workflow


class Files(Params, frozen=True, kw_only=True):
    """Where a task says that it has begun, and what it waits for."""

    folder: str


remote = Workflow("remote", params=Files)


@remote.task(executor="kubernetes")
def count(params: Files, ctx: tm.Context) -> int:
    """Say that it runs, and wait for the gate."""
    folder = Path(params.folder)
    with open(folder / "starts", "a", encoding="utf-8") as file:
        file.write(f"{ctx.attempt}\n")
    ctx.log.info("begun")
    print("printed")
    while not (folder / "gate").exists():
        time.sleep(0.01)  # noqa: TID251 - author code
    return 7


@remote.task
def double(count: int) -> int:
    """Continue on the node."""
    return 2 * count


flaky = Workflow("flaky", params=Files)


@flaky.task(executor="kubernetes", retry=tm.Retry(2, delay="10ms"))
def fail_once(params: Files, ctx: tm.Context) -> str:
    """Fail at the first try."""
    if ctx.attempt == 1:
        raise ValueError(f"broken on purpose in {Path(params.folder).name}")
    return "recovered"


talkative = Workflow("talkative", params=Files)


@talkative.task(executor="kubernetes")
def tell(ctx: tm.Context) -> list[str]:
    """Use what the node offers, and say a secret aloud."""
    secret = ctx.secret("password")
    print(f"the password is {secret}")
    started = ctx.start("flaky", folder="/nowhere")
    return [ctx.variable("region"), started.id]


ALL = (remote, flaky, talkative)
