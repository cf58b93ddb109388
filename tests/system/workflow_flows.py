"""Workflows for nodes in processes of their own, whose tasks write down when they begin and end.

Every line in the journal (the file that JOURNAL names) is one write to a file opened for appending, so a kill never
tears one. Its times are those of the clock that all processes of the machine share.
"""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

import tidemill as tm
from tests.system.journal_lines import complete_lines

JOURNAL = "JOURNAL"
GIGABYTE = 1024**3
PAUSE = threading.Event()


class Note(msgspec.Struct, frozen=True):
    """The start or end of an attempt's code, with process and time."""

    what: str  # "begin" or "end"
    token: str
    node: int  # the process id of the node
    pid: int
    at: float
    slot: str = ""


def write_down(what: str, ctx: tm.Context) -> None:
    """Write one line of the journal."""
    node = int(os.environ["NODE"])
    note = Note(what, ctx.token, node, os.getpid(), time.monotonic(), str(ctx.slot or ""))
    file = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, msgspec.json.encode(note) + b"\n")
    finally:
        os.close(file)


@contextmanager
def noted(ctx: tm.Context) -> Iterator[None]:
    """Record the start and the end of the enclosed code; interrupted code has no end."""
    write_down("begin", ctx)
    yield
    write_down("end", ctx)


def is_first(ctx: tm.Context) -> bool:
    """Return whether an attempt is the first of its task run."""
    return ctx.token.endswith("#1")


# -- load: three tasks in a row, the second one mapped

load = tm.Workflow("load", max_active_runs=64)


@load.task
def split(ctx: tm.Context) -> list[int]:
    with noted(ctx):
        return [1, 2, 3]


@load.task(each="split")
def work(split: int, ctx: tm.Context) -> int:
    with noted(ctx):
        PAUSE.wait(0.02 * split)
        return split * 10


@load.task
async def total(work: list[int], ctx: tm.Context) -> int:
    with noted(ctx):
        return sum(work)


# -- patient: its first attempt waits for the release file

patient = tm.Workflow("patient", max_active_runs=64)


@patient.task
def hold(ctx: tm.Context) -> str:
    with noted(ctx):
        while is_first(ctx) and not gate().exists():
            PAUSE.wait(0.02)
        return ctx.token


# -- greedy: its first attempt blocks the event loop of its node until the release file exists

greedy = tm.Workflow("greedy")


@greedy.task
async def hog(ctx: tm.Context) -> str:
    with noted(ctx):
        while is_first(ctx) and not gate().exists():
            PAUSE.wait(0.02)  # and awaits nothing
        return ctx.token


# -- market: a durable reactor, which one node owns


@tm.passthrough
def price(event: float) -> float:
    """Return the price."""
    return event


market = tm.Reactor("market", [price])


# -- mute: its first attempt holds the interpreter lock until the release pipe is opened

mute = tm.Workflow("mute")


@mute.task
def holds(ctx: tm.Context) -> str:
    with noted(ctx):
        if is_first(ctx):
            c_library = ctypes.PyDLL(None)  # unlike CDLL, it does not release the lock during a call
            c_library.close(c_library.open(os.fsencode(pipe()), os.O_RDONLY))
        return ctx.token


def pipe() -> Path:
    """Return the pipe that, once a writer opens it, releases code that holds the interpreter lock."""
    return Path(os.environ[JOURNAL]).with_name("pipe")


def gate() -> Path:
    """Return the file whose existence releases everything that waits."""
    return Path(os.environ[JOURNAL]).with_name("gate")


# -- short: an attempt that is running when its node is frozen has ended when it wakes up

short = tm.Workflow("short", max_active_runs=64)


@short.task
def nap(ctx: tm.Context) -> None:
    with noted(ctx):
        PAUSE.wait(0.5)


# -- clockwork: a slot every second, none left out

clockwork = tm.Workflow("clockwork", schedule=tm.Every("1s", catchup="all"), max_active_runs=64)


@clockwork.task
def tick(ctx: tm.Context) -> None:
    with noted(ctx):
        pass


# -- tasks with faults

gushing = tm.Workflow("gushing")


@gushing.task
def gush() -> int:
    page = b"x" * 1023 + b"\n"
    block = page * 1024
    for _ in range(GIGABYTE // len(block)):
        os.write(1, block)
    return GIGABYTE


exiting = tm.Workflow("exiting")


@exiting.task
def leave() -> None:
    os._exit(3)


dying = tm.Workflow("dying")


@dying.task
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)  # as the system does when memory runs out


stubborn = tm.Workflow("stubborn")


@stubborn.task(timeout="500ms")
def ignore(ctx: tm.Context) -> None:
    for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sent, signal.SIG_IGN)
    write_down("begin", ctx)
    while True:
        PAUSE.wait(60)


def read_journal(path: Path) -> list[Note]:
    """Return all complete lines of a journal."""
    return [msgspec.json.decode(line, type=Note) for line in complete_lines(path)]
