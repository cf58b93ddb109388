"""Workflows for the executor contract, in a module that another process can import."""

import asyncio
import contextlib
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

import tidemill as tm
from tidemill.kernel.author_errors import Fail
from tidemill.workflows.definition import Params, Skip
from tidemill.workflows.workflow import Workflow


class Row(tm.Boundary):
    """An element of a list."""

    number: int


class Small(tm.Boundary):
    """One way."""

    rows: int


class Large(tm.Boundary):
    """The other way."""

    rows: int


class RunParams(Params):
    """The params of a run."""

    day: str
    limit: int = 7


class Thing:
    """Something that cannot be stored."""


class WithoutRepr:
    """Something that cannot be shown."""

    def __repr__(self) -> str:
        raise ValueError("no")


QUIET = "executor_workflows.quiet"
logging.getLogger(QUIET).setLevel(logging.ERROR)


class MuteError(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise ValueError("no")


PAUSE = threading.Event()

flow = Workflow("flow", params=RunParams)
loose = Workflow("loose")


def mark(file: str) -> None:
    """Create a file to show that this line was reached."""
    Path(file).touch()


def wait_for(file: str) -> None:
    """Block until a file exists."""
    while not Path(file).exists():
        PAUSE.wait(0.002)


# -- arguments


@flow.task
def rows(params: RunParams) -> list[Row]:
    return [Row(number) for number in range(params.limit)]


@flow.task(each="rows")
def double(rows: Row) -> Row:
    return Row(2 * rows.number)


@flow.task
def total(double: list[Row]) -> int:
    return sum(one.number for one in double)


@flow.task
def day(params: RunParams, *, ctx: tm.Context) -> list[Any]:
    return [params.day, params.limit, ctx.attempt, ctx.run_id, ctx.token, ctx.slot and ctx.slot.isoformat()]


@flow.task
def facts(params: RunParams) -> dict[str, int]:
    return {"limit": 1, "extra": 2}


@flow.task
def merged(facts: dict[str, int] | None, ctx: tm.Context) -> list[Any]:
    return [ctx["day"], ctx["limit"]]


@flow.task
def unknown_key(ctx: tm.Context) -> int:
    value: int = ctx["limmit"]
    return value


@loose.task
def anything(ctx: tm.Context) -> str:
    return f"{ctx['who']} and {ctx['count']}"


@flow.task
def fallback(facts: dict[str, int] | None = None, total: int = 5) -> list[Any]:
    return [facts, total]


@flow.task
def change(facts: dict[str, int]) -> dict[str, int]:
    facts["changed"] = 1
    return facts


# -- results


@flow.task
def choose(total: int) -> Small | Large | None:
    return None if total == 0 else Small(total) if total < 10 else Large(total)


@flow.task
def small(choose: Small) -> int:
    return choose.rows


@flow.task
def large(choose: Large) -> int:
    return choose.rows


@flow.task
def nothing():
    return None


@flow.task
async def on_a_loop(params: RunParams) -> str:
    await asyncio.sleep(0)
    return params.day


@flow.task
def wrong_class() -> int:
    return "text"


@flow.task
def wrong_inside() -> list[int]:
    return ["text"]


@flow.task
def wrong_bool() -> int:
    return True


@flow.task
def wrong_literal() -> Literal["a", "b"]:
    return "c"


@flow.task
def wrong_range() -> Annotated[int, msgspec.Meta(ge=0)]:
    return -1


@flow.task(retry=3)
def unstorable() -> Any:
    return Thing()


@flow.task(retry=3)
def unstorable_class() -> Thing:
    return Thing()


# -- raising


@flow.task
def skipped() -> None:
    raise Skip("not today")


@flow.task(retry=3)
def gives_up() -> None:
    raise Fail("no use")


@flow.task
def fails() -> None:
    helper()


def helper() -> None:
    """Fail one frame deeper."""
    raise ValueError("broken on purpose")


@flow.task(retry=tm.Retry(3, on=(ConnectionError,)))
def picky_fits() -> None:
    raise ConnectionResetError("again")


@flow.task(retry=tm.Retry(3, on=(ConnectionError,)))
def picky_misfits() -> None:
    raise KeyError("never")


@flow.task
def says_much() -> None:
    raise ValueError("x" * 1_000_000)


@flow.task
def mute() -> None:
    raise MuteError


@flow.task
def leaves() -> None:
    sys.exit(3)


@flow.task
def interrupts() -> None:
    raise KeyboardInterrupt


@flow.task
async def leaves_the_loop() -> None:
    sys.exit(3)


@flow.task
async def interrupts_the_loop() -> None:
    raise KeyboardInterrupt


@flow.task
async def raises_a_cancellation() -> None:
    raise asyncio.CancelledError


@flow.task
async def cancels_itself() -> None:
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


@flow.task
async def awaits_what_it_cancelled() -> None:
    """Await a cancelled task after this task was cancelled once and went on, as Python 3.11 leaves it after a group."""
    own = asyncio.current_task()
    assert own is not None
    own.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    assert own.cancelling()
    other = asyncio.get_running_loop().create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    other.cancel()
    await other


@flow.task
async def closes_itself() -> None:
    raise GeneratorExit


# -- deferring


@flow.task
def naps(ctx: tm.Context) -> str:
    try:
        ctx.defer(for_="2h")
        ctx.defer(until=datetime(2030, 1, 1, tzinfo=UTC))
    except Exception:
        return "caught"
    return "rested"


@loose.task
def polls(ctx: tm.Context) -> str:
    ctx.defer(poll=lambda: Path(ctx["file"]).exists(), every="30s")
    return "found"


@loose.task
def polls_a_coroutine(ctx: tm.Context) -> str:
    async def is_there() -> bool:
        return Path(ctx["file"]).exists()

    ctx.defer(poll=is_there, every="30s")
    return "found"


@loose.task
async def polls_on_a_loop(ctx: tm.Context) -> str:
    async def is_there() -> bool:
        return Path(ctx["file"]).exists()

    ctx.defer(poll=is_there, every="30s")
    return "found"


@flow.task
def defers_badly(ctx: tm.Context) -> None:
    ctx.defer(for_="2h", every="1s")


@flow.task
async def pushes(ctx: tm.AsyncContext) -> list[object]:
    first = await ctx.push("prices", Row(number=1))
    others = await asyncio.gather(*(ctx.push("prices", number) for number in range(5)))
    return [first.outcome, *(one.sequence for one in others)]


@flow.task
def pushes_without_await(ctx: tm.Context) -> list[object]:
    ctx.log.info("before")
    receipts = [ctx.push("prices", event) for event in (1, b"2", {"at": datetime(2026, 1, 1, tzinfo=UTC)}, "x" * 10**6)]
    return [one.sequence for one in receipts]


@flow.task
async def starts(ctx: tm.AsyncContext) -> list[str]:
    return [(await ctx.start("report", day=date(2026, 1, 1))).id, (await ctx.start("report")).id]


@flow.task
def starts_without_await(ctx: tm.Context) -> list[str]:
    return [ctx.start("report", day=1).id, ctx.start("report").id]


async def fetched(number: int) -> Row:
    """Return a row, as a step that is awaited."""
    await asyncio.sleep(0)
    return Row(number)


def long_text() -> str:
    """Return a value that the list of steps leaves out."""
    return "x" * 5000


def fails_as_a_step() -> None:
    """Raise an error."""
    raise LookupError("not there")


@flow.task
async def steps(ctx: tm.AsyncContext) -> list[Any]:
    rows = await asyncio.gather(*(ctx.step(fetched, number, key=number) for number in (1, 2)))
    text = await ctx.step(long_text)
    try:
        await ctx.step(fails_as_a_step)
    except tm.StepError as error:
        return [*(row.number for row in rows), len(text), error.type, error.message, error.name]
    return []


@flow.task
def steps_without_await(ctx: tm.Context) -> list[Any]:
    rows = [ctx.step(fetched, number, key=number) for number in (1, 2)]
    text = ctx.step(long_text)
    try:
        ctx.step(fails_as_a_step)
    except tm.StepError as error:
        return [*(row.number for row in rows), len(text), error.type, error.message, error.name]
    return []


@flow.task
def steps_too_late(ctx: tm.Context) -> str:
    try:
        ctx.step(long_text, key="late")
    except Exception:
        return "went on"
    return "went on"


@flow.task
async def asks(ctx: tm.AsyncContext) -> list[Any]:
    factor = await ctx.wait_for("factor", int, text="How many?", timeout="1h", default=3, by="role:admin")
    return [factor, *(answer.by for answer in ctx.answers)]


@flow.task
def asks_without_await(ctx: tm.Context) -> list[Any]:
    factor = ctx.wait_for("factor", int, text="How many?", timeout="1h", default=3, by="role:admin")
    return [factor, *(answer.by for answer in ctx.answers)]


@flow.task
def waits_for_a_started_run(ctx: tm.Context) -> None:
    ctx.start("report").wait()  # type: ignore[attr-defined]


@flow.task
def pushes_to_an_unknown_accumulator(ctx: tm.Context) -> list[object]:
    try:
        ctx.push("unknown", 1)
    except tm.RequestError as error:
        return [str(error), error.code, error.status, error.facts]
    return []


@flow.task
def pushes_into_a_defect(ctx: tm.Context) -> None:
    ctx.push("defect", 1)


@flow.task
def pushes_in_vain(ctx: tm.Context) -> None:
    ctx.push("full", os.getpid())


# -- logging


@flow.task
def talks(ctx: tm.Context) -> None:
    for number in range(20):
        ctx.log.info("line %d", number, extra={"number": number, "thing": Thing, "name": "n"})
    ctx.log.error("bad")


@flow.task
def talks_of_odd_things(ctx: tm.Context) -> None:
    ctx.log.info("before")
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    odd = {"big": 2**80, "within": [1, {"big": 2**70, -(2**70): 2}], "half": "\ud800", "things": [1, Thing()]}
    ctx.log.info("odd", **odd, mute=WithoutRepr(), last=2**64 - 1, deep=deep)
    ctx.log.info("after")


@flow.task
def talks_much(ctx: tm.Context) -> None:
    for _ in range(300):
        ctx.log.info("%s", "x" * 60_000)
    ctx.log.info("the end")


@flow.task
async def talks_on_a_loop(ctx: tm.Context) -> None:
    ctx.log.info("here")
    await asyncio.to_thread(ctx.log.info, "there")


@flow.task
def prints(ctx: tm.Context) -> None:
    print("one")
    print("two", end="")
    sys.stdout.flush()
    os.write(2, b"three\n\xff\xfe")


@loose.task
def prints_much(ctx: tm.Context) -> None:
    block = b"a" * 65535 + b"\n"
    for _ in range(ctx["blocks"]):
        os.write(1, block)
    print("the end")


@flow.task
def prints_a_long_line() -> None:
    print("b" * 1_000_000)
    print("short")


# -- long tasks


@loose.task
def blocks(ctx: tm.Context) -> str:
    mark(ctx["started"])
    wait_for(ctx["gate"])
    mark(ctx["ended"])
    return "done"


@loose.task
async def waits(ctx: tm.Context) -> str:
    mark(ctx["started"])
    await asyncio.to_thread(wait_for, ctx["gate"])
    mark(ctx["ended"])
    return "done"


@loose.task
async def swallows(ctx: tm.Context) -> str:
    mark(ctx["started"])
    while not Path(ctx["gate"]).exists():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.005)
    return "done"


@loose.task
def ignores_signals(ctx: tm.Context) -> str:
    with contextlib.suppress(ValueError):  # not on the main thread, where signals do not come anyway
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    mark(ctx["started"])
    wait_for(ctx["gate"])
    return "done"


@loose.task
def has_a_child(ctx: tm.Context) -> str:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(ctx["pids"]).write_text(f"{os.getpid()} {child.pid} {os.getppid()}", encoding="utf-8")
    mark(ctx["started"])
    child.wait()
    return "done"


@loose.task
def closes_everything(ctx: tm.Context) -> str:
    os.closerange(3, 256)
    Path(ctx["pids"]).write_text(f"{os.getpid()} {os.getppid()}", encoding="utf-8")
    mark(ctx["started"])
    wait_for(ctx["gate"])
    return "done"


@loose.task
def leaves_a_child(ctx: tm.Context) -> str:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(ctx["pids"]).write_text(str(child.pid), encoding="utf-8")
    return "done"


@loose.task
def leaves_a_flood(ctx: tm.Context) -> str:
    """Return while a process that has left the process group prints without end."""
    child = subprocess.Popen(["yes"], start_new_session=True)
    Path(ctx["pids"]).write_text(str(child.pid), encoding="utf-8")
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(0.2)
    return "done"


# -- forking


@flow.task
def forks(params: RunParams) -> int:
    """Return the exit code of a forked copy that leaves this function in the requested way."""
    if (copy := os.fork()) == 0:
        return leave(params.day)
    return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])


@flow.task
async def forks_on_a_loop(params: RunParams) -> int:
    """Do the same on a loop."""
    if (copy := os.fork()) == 0:
        return leave(params.day)
    return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])  # noqa: ASYNC222 - it ends at once


def leave(how: str) -> int:
    """Leave a function in one of several ways."""
    if how == "raises":
        raise ValueError("in the copy")
    if how == "exits":
        sys.exit(7)
    return 99


# -- leaving something behind


@flow.task
async def leaves_a_thread() -> str:
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    return "done"


@flow.task
async def leaves_a_stubborn_task() -> str:
    """Return while a task on the loop swallows its cancellation and prints that it did."""

    async def stay() -> None:
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                print("no", flush=True)

    stubborn = asyncio.get_running_loop().create_task(stay())
    await asyncio.sleep(0)
    return "left" if not stubborn.done() else "ended"


# -- ending a process


@flow.task
def exits() -> None:
    os._exit(3)


@flow.task
def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@flow.task
def crashes() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@flow.task
def writes_garbage() -> None:
    for descriptor in os.listdir("/proc/self/fd"):
        if int(descriptor) > 2:
            with contextlib.suppress(OSError):
                os.write(int(descriptor), b"\x00\x00\x00\x04junk")
    PAUSE.wait(60)


@flow.task
def announces_too_much() -> None:
    for descriptor in os.listdir("/proc/self/fd"):
        if int(descriptor) > 2:
            with contextlib.suppress(OSError):
                os.write(int(descriptor), b"\xff\xff\xff\xff")
    PAUSE.wait(60)


@flow.task
def returns_too_much() -> bytes:
    return b"x" * (65 * 1024 * 1024)


@flow.task
def returns_much() -> bytes:
    return b"x" * 5_000_000


@flow.task
def measures(returns_much: bytes) -> int:
    return len(returns_much)


@flow.task
def descriptors() -> list[str]:
    targets = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that listed them is closed
            targets.append(os.readlink(f"/proc/self/fd/{fd}") if int(fd) > 2 else "")
    return [target for target in targets if target]


@flow.task
def descriptors_of_a_program() -> list[str]:
    program = "import os; print(*os.listdir('/proc/self/fd'))"
    done = subprocess.run([sys.executable, "-c", program], close_fds=False, capture_output=True, text=True, check=True)
    return sorted(done.stdout.split())


@flow.task
def draws_a_random_number() -> int:
    return random.getrandbits(64)


@flow.task
def environment() -> dict[str, str]:
    return dict(os.environ)


@flow.task
def forks_with_threads() -> int:
    """Return the number of threads in a process that was forked while this one had two."""
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait)
    thread.start()
    pid = os.fork()
    if pid == 0:
        os._exit(threading.active_count())
    gate.set()
    thread.join()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@flow.task
def stdin() -> str:
    return sys.stdin.read()


@flow.task
def noop() -> None:
    return None


def hidden() -> Workflow:
    """Return a workflow that another process cannot import."""
    hidden = Workflow("hidden")

    @hidden.task
    def one() -> int:
        return 1

    return hidden


@flow.task
def writes_everywhere(ctx: tm.Context) -> None:
    """Write in every way that there is."""
    print("printed")
    print("to stderr", file=sys.stderr)
    logging.getLogger("library").info("read %d rows", 3, extra={"rows": 3})
    logging.getLogger("library").debug("not this")
    logging.getLogger(QUIET).warning("nor this")
    logging.getLogger(QUIET).error("loud enough")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", stacklevel=1)
    ctx.log.error("of the context")
    sys.stdout.write("without an end")
    sys.stdout.flush()


@flow.task
async def says_on_a_loop() -> None:
    """Write on a loop, and on a thread with its context."""
    print("on the loop")
    await asyncio.to_thread(print, "on a thread of the loop")
