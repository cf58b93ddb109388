"""Every way to push gives the same: one by one, many at once, by a handle, and many by a handle.

Hypothesis writes a story of pushes, pauses and resumes; each way plays it on a node of its own. Receipts, problems,
firings, dead letters and counters are compared at its end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.service.accumulators.test_handles import report

SUPPRESSED, RAISES, FAILS, PUSHES = -1, 7, 13, 21
EVENTS = st.sampled_from([1, 2, 3, SUPPRESSED, RAISES, FAILS, PUSHES, "x", None, b"5", b"{", 4.5, True])
STEPS = st.one_of(
    st.lists(EVENTS, min_size=1, max_size=8),
    st.lists(st.integers(1, 3), min_size=3, max_size=12),
    st.sampled_from(["pause", "resume"]),
)
STORIES = st.lists(STEPS, min_size=1, max_size=8)
OPTIONS = [
    {"strategy": "latest"},
    {"strategy": "latest", "when": "all"},
    {"strategy": "sequential", "capacity": 3, "overflow": "reject"},
    {"strategy": "sequential", "capacity": 3, "overflow": "drop_oldest"},
    {"strategy": "sequential", "capacity": 3, "overflow": "block"},
]


class World:
    """Reactor `r` over accumulators `a` and `b`, and graph `g`, one of whose nodes pushes to `a` itself."""

    def __init__(self, *, event: Any = int, **options: Any) -> None:
        self.push_inside: Callable[[Any], Any] = lambda _: None

        def a(event: Any) -> int | None:
            if event == RAISES:
                raise ValueError("not this one")
            return None if event == SUPPRESSED else event

        def b(event: int) -> int:
            return event

        a.__annotations__ = {"event": event, "return": int | None}
        reactor = tm.Reactor("r", [tm.passthrough(a), tm.passthrough(b)], **options)
        graph = tm.Graph("g", reactor=reactor)

        @graph.node
        def half(a: int, b: int | None) -> int | str:
            return str(a) if a == FAILS else a + (b or 0)

        @graph.node
        def number(half: int) -> int:
            if half == PUSHES:
                self.push_inside(2)
            return half * 10

        @graph.node
        def text(half: str) -> str:
            raise ValueError(half)

        self.load = [reactor, graph]


Way = Callable[[tm.testing.TestNode, list[Any]], Awaitable[list[tm.Receipt]]]


async def await_or_resume(node: tm.testing.TestNode, work: Coroutine[Any, Any, Any]) -> Any:
    """Await a push; one that has to wait for space resumes the reactor."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work, name="push")
        for _ in range(50):
            if task.done():
                return task.result()
            await asyncio.sleep(0)
        await node.reactor("r").resume()
    return task.result()


async def one_by_one(node: tm.testing.TestNode, events: list[Any]) -> list[tm.Receipt]:
    return [await await_or_resume(node, node.push("a", event)) for event in events]


async def many(node: tm.testing.TestNode, events: list[Any]) -> list[tm.Receipt]:
    summary = await await_or_resume(node, node.push_many("a", events))
    check_summary(summary, events)
    return list(summary.receipts)


async def by_handle(node: tm.testing.TestNode, events: list[Any]) -> list[tm.Receipt]:
    push = node.handle("a")
    return [await push_or_resume(node, push, event) for event in events]


async def push_or_resume(node: tm.testing.TestNode, push: Callable[[Any], int | None], event: Any) -> tm.Receipt:
    """Call a handle; where it says that the queue is full, push. A handle answers with the number of a boundary."""
    try:
        sequence = push(event)
    except tm.FullError:
        receipt: tm.Receipt = await await_or_resume(node, node.push("a", event))
        return receipt
    return tm.Receipt(True, sequence or 0, "emitted" if sequence else "suppressed")


async def many_by_handle(node: tm.testing.TestNode, events: list[Any]) -> list[tm.Receipt]:
    try:
        summary = node.handle("a").many(iter(events))
    except tm.FullError as full:  # the receipts of the events before are lost; the rest is pushed as the error says
        return [tm.Receipt(True, 0, "buffered")] * full.taken + await many(node, events[full.taken :])
    check_summary(summary, events)
    return list(summary.receipts)


def check_summary(summary: tm.PushSummary, events: list[Any]) -> None:
    """A summary says of each event what its receipts say."""
    receipts = summary.receipts
    assert len(receipts) == len(events)
    assert [(one.index, one.outcome, one.reason) for one in summary.problems] == [
        (index, one.outcome, one.reason) for index, one in enumerate(receipts) if not one.accepted
    ]
    assert summary.counts == {
        outcome: sum(one.outcome == outcome for one in receipts) for outcome in {one.outcome for one in receipts}
    }


async def play(way: Way, story: Iterable[Any], world: World) -> dict[str, Any]:
    """Play a story one way; return everything that must not depend on the way."""
    async with tm.testing.node(load=world.load) as node:
        world.push_inside = node.handle("a")
        await node.push("b", 0)
        receipts: list[Any] = []
        for step in story:
            if isinstance(step, list):
                receipts += [msgspec.to_builtins(one) for one in await way(node, step)]
            else:
                await getattr(node.reactor("r"), step)()
        await node.reactor("r").resume()
        await node.settle()
        letters = [(one.kind, one.event, one.inputs, one.error) for one in await node.reactor("r").dead_letters()]
        return {"receipts": receipts, "letters": letters, **report(node)}


@pytest.mark.parametrize("event", [int, Any], ids=["one class", "any class"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda one: " ".join(map(str, one.values())))
@settings(max_examples=20)
@given(story=STORIES)
def test_every_way_to_push_gives_the_same(options: dict[str, Any], event: Any, story: list[Any]) -> None:
    """G-1, G-4, G-12: receipts with their numbers and reasons, firings, dead letters, drops and counters."""

    async def run() -> None:
        ways: list[Way] = [one_by_one, many, by_handle, many_by_handle]
        expected, *others = [await play(way, story, World(event=event, **options)) for way in ways]
        for way, other in zip(ways[1:], others, strict=True):
            if way is by_handle:  # it answers with numbers
                assert numbers(other.pop("receipts")) == numbers(expected["receipts"])
            elif options.get("overflow") == "block" and way is many_by_handle:  # a full queue has cost some receipts
                assert len(other.pop("receipts")) == len(expected["receipts"])
            assert {**expected, **other} == expected

    asyncio.run(run())


def numbers(receipts: list[dict[str, Any]]) -> list[int | None]:
    """Return the number of each emitted boundary."""
    return [one["sequence"] if one["outcome"] == "emitted" else None for one in receipts]


class PausedQueue:
    """Reactor `r` over `a`, keyed or not, with room for one boundary; its accumulator tells what it is called with."""

    def __init__(self, overflow: str, *, is_keyed: bool) -> None:
        self.calls: list[int] = []

        @tm.passthrough
        def a(event: int) -> int | None:
            self.calls.append(event)
            if event == RAISES:
                raise ValueError("not this one")
            return None if event == SUPPRESSED else event

        options: Any = {"key": parity} if is_keyed else {}
        reactor = tm.Reactor("r", [a], strategy="sequential", capacity=1, overflow=overflow, **options)
        graph = tm.Graph("g", reactor=reactor)

        @graph.node
        def seen(a: int) -> int:
            return a

        self.load = [reactor, graph]


def parity(event: int) -> int:
    return event % 2


@pytest.mark.parametrize("is_keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize("overflow", ["reject", "block"])
async def test_a_handle_checks_for_space_before_it_calls_the_function(overflow: str, is_keyed: bool) -> None:
    """G-4, G-12: as `push` and `many` do; an event that raises, or that the function suppresses, is no exception."""
    queue = PausedQueue(overflow, is_keyed=is_keyed)
    async with tm.testing.node(load=queue.load) as node:
        push = node.handle("a")
        await node.push("a", 1)
        await node.reactor("r").pause()
        push(3)
        for event in (RAISES, SUPPRESSED, 5):
            if overflow == "block":
                with pytest.raises(tm.FullError):
                    push(event)
            else:
                assert push(event) is None
        state = node.reactor("r").state()
        counted = state.accumulators["a"]
    assert queue.calls == [1, 3]
    assert (counted.dead_letters, counted.suppressed, counted.emitted) == (0, 0, 2)
    assert state.dropped == ({} if overflow == "block" else {"full": 3})
