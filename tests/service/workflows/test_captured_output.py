"""What tasks in this process print, log and warn about is in their logs, and goes where it went before."""

import asyncio
import logging
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest

import tidemill as tm
from tidemill.api.handles import AsyncRun


async def lines(run: AsyncRun, task: str) -> list[tuple[str, str, str]]:
    """Return stream, level and message of what a task wrote."""
    return [(one.stream, one.level, one.message) async for one in run.logs(task)]


async def test_tasks_at_the_same_time_are_not_mixed() -> None:
    """D6: threads and coroutines write in turns, and each has its own lines in its log, in order."""
    flow = tm.Workflow("chorus")
    barrier = threading.Barrier(3)
    turns = asyncio.Barrier(3)
    library = logging.getLogger("chorus.library")

    def on_a_thread(voice: str) -> None:
        for number in range(20):
            sys.stdout.write(f"{voice} ")  # half a line: the others write before it ends
            barrier.wait(10)
            print(number)
            library.info("%s %d", voice, number)

    async def on_the_loop(voice: str) -> None:
        for number in range(20):
            sys.stdout.write(f"{voice} ")
            await turns.wait()
            print(number)
            library.info("%s %d", voice, number)

    voices = {"a": on_a_thread, "b": on_a_thread, "c": on_a_thread, "d": on_the_loop, "e": on_the_loop}
    voices |= {"f": on_the_loop}
    for name, function in voices.items():
        _declare(flow, name, function)
    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("chorus")
        assert (await run.wait()).ok
        for name in voices:
            written = await lines(run, name)
            assert [text for stream, _, text in written if stream == "stdout"] == [f"{name} {n}" for n in range(20)]
            assert [text for stream, _, text in written if stream == "log"] == [f"{name} {n}" for n in range(20)]


def _declare(flow: tm.Workflow, name: str, function: Any) -> None:
    if asyncio.iscoroutinefunction(function):

        async def sing() -> None:
            await function(name)
    else:

        def sing() -> None:  # type: ignore[misc]
            function(name)

    sing.__name__ = name
    flow.task(sing)


async def test_each_attempt_has_what_it_wrote() -> None:
    flow = tm.Workflow("again")

    @flow.task(retry=tm.Retry(1, delay="1s"))
    def work(ctx: tm.Context) -> None:
        print(f"try {ctx.attempt}")
        if ctx.attempt == 1:
            raise ValueError("again")

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("again")
        await node.advance("5s")
        assert [(one.attempt, one.message) async for one in run.logs("work") if one.stream == "stdout"] == [
            (1, "try 1"),
            (2, "try 2"),
        ]


async def test_the_terminal_and_handlers_get_what_they_got(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    """D6: an INFO record that no handler would have had is in the task's log only, and no line is there twice."""
    flow = tm.Workflow("shown")
    plain, console = logging.getLogger("shown.plain"), logging.getLogger("shown.console")
    handler = logging.StreamHandler(sys.stderr)
    console.addHandler(handler)
    console.propagate = False

    @flow.task
    def work() -> None:
        handler.setStream(sys.stderr)
        print("printed")
        plain.info("hidden from handlers")
        plain.warning("seen by handlers")
        console.error("by its own handler")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", stacklevel=1)

    with caplog.at_level(logging.WARNING, logger=""):
        async with tm.testing.node(load=[flow]) as node:
            run = await node.start("shown")
            assert (await run.wait()).ok
            written = await lines(run, "work")
    console.removeHandler(handler)
    out, err = capsys.readouterr()
    assert out == "printed\n"
    assert err.count("by its own handler") == 1
    assert [str(one.message) for one in recwarn] == ["old"]
    assert [one.message for one in caplog.records if one.name == "shown.plain"] == ["seen by handlers"]
    assert [(stream, level) for stream, level, _ in written] == [
        ("stdout", "info"),
        ("log", "info"),
        ("log", "warning"),
        ("log", "error"),
        ("log", "warning"),
    ]


async def test_a_setting_turns_it_off(capsys: pytest.CaptureFixture[str]) -> None:
    flow = tm.Workflow("private")
    streams = sys.stdout, sys.stderr

    @flow.task
    def work(ctx: tm.Context) -> None:
        print("printed")
        logging.getLogger("private").warning("logged")
        ctx.log.info("of the context")

    async with tm.testing.node(load=[flow], settings={"capture_output": False}) as node:
        assert (sys.stdout, sys.stderr) == streams
        run = await node.start("private")
        assert (await run.wait()).ok
        assert await lines(run, "work") == [("log", "info", "of the context")]
    assert capsys.readouterr().out == "printed\n"


PROGRAM = """
import asyncio, logging, sys, warnings
import tidemill as tm

def shared():
    return sys.stdout, sys.stderr, logging.Logger.callHandlers, logging.Logger.isEnabledFor, warnings.showwarning

flow = tm.Workflow("tidy")

@flow.task
def work() -> None:
    print("printed")

async def main():
    async with tm.testing.node(load=[flow]) as first, tm.testing.node(load=[flow]) as second:
        for node in (first, second):
            run = await node.start("tidy")
            await run.wait()
            print([one.message async for one in run.logs("work")])

before = shared()
asyncio.run(main())
print(shared() == before)
"""


def test_everything_is_put_back() -> None:
    """A program that ends its nodes has its own streams, and logging as Python has it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["printed", "['printed']"] * 2 + ["True"]


async def test_records_of_tidemill_take_no_detour() -> None:
    """They are for operators: whether they are made depends on the level alone, as before."""
    own: Any = logging.getLogger("tidemill.server")
    author: Any = logging.getLogger("author")
    plain = logging.Logger.isEnabledFor
    flow = tm.Workflow("quiet")
    _declare(flow, "a", lambda _: None)
    async with tm.testing.node(load=[flow]) as node:
        await (await node.start("quiet")).wait()
        assert own.isEnabledFor.__func__ is plain
        assert author.isEnabledFor.__func__ is not plain
    assert author.isEnabledFor.__func__ is plain
    assert "isEnabledFor" not in vars(own)
