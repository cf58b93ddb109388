"""Workflows for workers: at the top level of a module, so that the processes of a worker can import them."""

import os
import threading
from pathlib import Path

import tidemill as tm


class Place(tm.Params, frozen=True):
    """The folder in which tasks leave signs of life, and wait for the test."""

    folder: str = ""


def sign(place: Place, name: str) -> Path:
    """Return the file by which a task and the test tell each other something."""
    return Path(place.folder) / name


def wait_for(file: Path) -> None:
    """Wait until the test has made a file."""
    pause = threading.Event()
    while not file.exists():  # the test makes it, or the process is ended
        pause.wait(0.005)


mixed = tm.Workflow("mixed")


@mixed.task
def here() -> int:
    """Run on the node."""
    return os.getpid()


@mixed.task(executor="worker")
def anywhere(here: int, ctx: tm.Context) -> list[int]:
    """Run on any worker; take the value of the node's task, and log."""
    print("printed there")
    ctx.log.info("logged there", node=here)
    return [here, os.getpid()]


@mixed.task(executor="worker", labels=["gpu"])
def on_gpu(anywhere: list[int]) -> int:
    """Run on a worker with a label."""
    return len(anywhere)


held = tm.Workflow("held", params=Place, max_active_runs=100)


@held.task(executor="worker")
def hold(params: Place) -> str:
    """Say that it runs, and wait for the test."""
    sign(params, f"began-{os.getpid()}").touch()
    wait_for(sign(params, "gate"))
    return "held"


shaky = tm.Workflow("shaky", params=Place)


@shaky.task(executor="worker", retry=1)
def fails_once(params: Place) -> str:
    """Fail at the first try."""
    if not sign(params, "failed").exists():
        sign(params, "failed").touch()
        raise ConnectionError("try again")
    return "at last"


@shaky.task(executor="worker", timeout="100ms", rule="always")
def too_slow(fails_once: str | None) -> None:
    """Take too long."""
    threading.Event().wait()


calling = tm.Workflow("calling")


@calling.task(executor="worker")
def starts(ctx: tm.Context) -> str:
    """Start a run of another workflow."""
    return str(ctx.start("mixed").id)


@calling.task(executor="worker")
def pushes(ctx: tm.Context) -> str:
    """Push an event to a reactor of the node, and say what became of it."""
    return str(ctx.push("orders", 7).outcome)


@calling.task(executor="worker")
def pushes_astray(ctx: tm.Context) -> None:
    """Push an event to an accumulator that does not exist."""
    ctx.push("order", 7)


@tm.passthrough
def orders(event: int) -> int:
    """Take an order."""
    return event


till = tm.Reactor("till", [orders], durability="boundary")
totals = tm.Graph("totals", reactor=till)


@totals.node
def total(orders: int) -> int:
    """Return the last order."""
    return orders


wide = tm.Workflow("wide", params=Place)


@wide.task
def numbers() -> list[int]:
    """Return as many elements as one claim can hold."""
    return list(range(12))


@wide.task(executor="worker", each=numbers)
def square(numbers: int) -> int:
    """Run once per element."""
    return numbers * numbers
