"""Sources that deliver, fail and pause in any order: every event arrives once, and each start continues after it."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tidemill.graphs.definition import Durability

QUICK = {"backoff_base": "1ms", "backoff_max": "1ms"}
STEPS = ("one", "batch", "invalid", "raise", "pause", "refuse", "restart")


class Log:
    """A log whose event at each position is the position; a script says how it is delivered, over all starts."""

    def __init__(self, script: list[str]) -> None:
        self.script = list(script)
        self.starts: list[int] = []
        self.position = 0
        self.is_done = asyncio.Event()
        self.wants_restart = asyncio.Event()

    async def start(self, checkpoint: int | None) -> AsyncIterator[Any]:
        self.starts.append(checkpoint or 0)
        if self.script and self.script[0] == "refuse":
            self.script.pop(0)
            raise ConnectionError("refused")
        return self.read(checkpoint or 0)

    async def read(self, position: int) -> AsyncIterator[Any]:
        self.position = position
        while self.script:
            step = self.script.pop(0)
            size = {"one": 1, "batch": 3, "invalid": 1}.get(step, 0)
            if size:
                events = [(b"{" if step == "invalid" else number, number + 1) for number in self.next_numbers(size)]
                yield events if step == "batch" else events[0]
                self.position += size
            elif step == "pause":
                raise tm.sources.Disconnected("a pause", retry_after=0.0)
            elif step == "restart":
                self.wants_restart.set()
                await asyncio.Event().wait()
            else:
                raise ConnectionError(step)
        self.is_done.set()
        await asyncio.Event().wait()

    def next_numbers(self, size: int) -> range:
        return range(self.position, self.position + size)


async def play(script: list[str], durability: Durability, store: str | None) -> None:
    """Read a log to its end, and compare what arrived with what it delivered."""
    log = Log(script)
    seen: list[int] = []

    @tm.stream(log)
    def numbers(event: int) -> int:
        seen.append(event)
        return event

    reactor = tm.Reactor("r", [numbers], strategy="sequential", durability=durability)
    async with tm.Node(store=store, load=[reactor], settings=QUICK) as node, asyncio.timeout(20):
        while not log.is_done.is_set():
            await asyncio.sleep(0.001)
            if log.wants_restart.is_set():
                log.wants_restart.clear()
                await node.restart_accumulator("numbers")
        state = node.reactor("r").state().accumulators["numbers"]
    invalid = script.count("invalid")
    assert (state.emitted, state.dead_letters) == (log.position - invalid, invalid)
    assert seen == sorted(set(seen)), "an event was repeated, or came out of order"
    assert len(seen) == log.position - invalid
    assert log.starts == sorted(log.starts)


@given(st.lists(st.sampled_from(STEPS), max_size=25))
@settings(max_examples=30)
def test_every_event_arrives_once_through_any_failures_of_its_source(script: list[str]) -> None:
    """G-6, G-20: the checkpoint of the last delivered event is where the next start continues."""
    asyncio.run(play(script, "none", None))


@given(st.lists(st.sampled_from(STEPS), max_size=25))
@settings(max_examples=15)
def test_every_event_is_committed_once_through_any_failures_of_its_source(script: list[str]) -> None:
    """G-6, G-24: the same, with every event in the journal."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(script, "boundary", f"sqlite:///{folder}/node.db"))
