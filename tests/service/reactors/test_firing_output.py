"""What nodes print, log and warn about is kept with the firing that they ran in."""

import asyncio
import logging
import sys
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import single, slow
from tidemill.engine.graphs.firing import firing_output
from tidemill.kernel.copied_stream import CopiedStream

library = logging.getLogger("firing_output.library")


def say(value: int) -> None:
    """Write something for odd values."""
    if value % 2:
        print(f"saw {value}")
        library.info("logged %d", value)


async def say_later(value: int) -> None:
    """Write something on the loop and on a thread."""
    await asyncio.sleep(0)
    await asyncio.to_thread(say, value)


def texts(firing: tm.Firing) -> list[str]:
    """Return what was written in a firing."""
    return [one.message for one in firing.log]


@pytest.mark.parametrize(
    "sample",
    [single(say), single(say, strategy="sequential"), slow(say_later), slow(say_later, strategy="sequential")],
    ids=["fast path", "sequential", "async", "async sequential"],
)
async def test_each_firing_has_what_its_nodes_wrote(sample: Any) -> None:
    """D6: and one whose nodes wrote nothing has nothing."""
    async with tm.testing.node(load=sample.load) as node:
        for value in (1, 2, 3):
            await node.push("a", value)
            await node.settle()
        newest = node.reactor("r").firings()
        assert [texts(one) for one in reversed(newest)] == [["saw 1", "logged 1"], [], ["saw 3", "logged 3"]]
        printed, logged = newest[0].log
        assert (printed.stream, printed.level, printed.logger) == ("stdout", "info", "")
        assert (logged.stream, logged.level, logged.logger) == ("log", "info", "firing_output.library")


async def test_tries_of_one_firing_are_kept_apart() -> None:
    @tm.passthrough
    def price(event: int) -> int:
        return event

    desk = tm.Reactor("desk", [price], on_error=tm.Retry(1, delay="1s"))
    graph = tm.Graph("graph", reactor=desk)
    calls = []

    @graph.node
    def work(price: int, ctx: tm.Context) -> None:
        calls.append(price)
        ctx.log.info("try", number=len(calls))
        if len(calls) == 1:
            raise ValueError("again")

    async with tm.testing.node(load=[desk, graph]) as node:
        await node.push("price", 1)
        await node.advance("5s")
        second, first = node.reactor("desk").firings()
        assert (first.id, first.attempt, second.attempt) == (second.id, 1, 2)
        assert [[(line.message, line.fields, line.logger) for line in one.log] for one in (first, second)] == [
            [("try", {"number": 1}, "")],
            [("try", {"number": 2}, "")],
        ]


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A firing has the beginning of what it wrote and a note, and old firings lose theirs."""
    monkeypatch.setattr(firing_output, "FIRING_SIZE_LIMIT", 2000)
    monkeypatch.setattr(firing_output, "REACTOR_SIZE_LIMIT", 5000)
    sample = single(lambda value: print("\n".join(["x" * 99] * value)))
    async with tm.testing.node(load=sample.load) as node:
        for _ in range(4):
            await node.push("a", 1000)
            await node.settle()
        newest, second, *older = node.reactor("r").firings()
        assert texts(newest)[-1].startswith("[... the rest")
        assert len(texts(newest)) == len(texts(second)) < 20
        assert [texts(one) for one in older] == [[], []]


async def test_a_setting_turns_it_off() -> None:
    sample = single(say)
    async with tm.testing.node(load=sample.load, settings={"capture_output": False}) as node:
        assert not isinstance(sys.stdout, CopiedStream)
        await node.push("a", 1)
        await node.settle()
        assert [texts(one) for one in node.reactor("r").firings()] == [[]]
