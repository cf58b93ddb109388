"""One workflow for each kind of executor, in a module that another process can import."""

import time
from pathlib import Path

import tidemill as tm
from tests.remote.flow import Files
from tidemill.workflows.workflow import Workflow


def work(params: Files, ctx: tm.Context) -> int:
    """Say that it runs, and wait for the gate."""
    folder = Path(params.folder)
    with open(folder / "starts", "a", encoding="utf-8") as file:
        file.write(f"{ctx.attempt}\n")
    while not (folder / "gate").exists():
        time.sleep(0.01)  # noqa: TID251 - author code
    return 7


def _make(executor: str) -> Workflow:
    flow = Workflow(f"on_{executor}", params=Files)
    flow.task(executor=executor)(work)
    return flow


on_in_process, on_subprocess, on_worker, on_kubernetes, on_ray = map(
    _make, ("in_process", "subprocess", "worker", "kubernetes", "ray")
)

BY_EXECUTOR = {
    flow.name.removeprefix("on_"): flow for flow in (on_in_process, on_subprocess, on_worker, on_kubernetes, on_ray)
}
"""A node loads those whose executor it has."""
