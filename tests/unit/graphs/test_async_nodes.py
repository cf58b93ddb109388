"""Nodes that wait: concurrently where they can, on threads where they block, and failing together."""

import asyncio
import threading
import traceback
from typing import Any

import pytest

import tidemill as tm


class A(tm.Boundary):
    """One variant."""


class B(tm.Boundary):
    """Another."""


async def test_independent_async_nodes_run_at_the_same_time() -> None:
    """cloacina 77: three nodes that each wait for the other two come to their end only together."""
    barrier = asyncio.Barrier(3)
    graph = tm.Graph("together")
    for name in ("one", "two", "three"):
        graph.node(_meeting(name, barrier))

    @graph.node
    async def join(one: str, two: str, three: str) -> str:
        return one + two + three

    result = await asyncio.wait_for(graph(), 5)
    assert result.outputs == {"join": "onetwothree"}


def _meeting(name: str, barrier: asyncio.Barrier) -> Any:
    async def meet() -> str:
        await barrier.wait()
        return name

    meet.__name__ = name
    return meet


async def test_chains_run_beside_each_other() -> None:
    """The second node of one chain does not wait for the first of another."""
    passed = asyncio.Event()
    graph = tm.Graph("chains")

    @graph.node
    async def slow(x: int) -> int:
        await passed.wait()
        return x

    @graph.node
    async def quick(x: int) -> int:
        return x

    @graph.node
    def after_quick(quick: int) -> int:
        passed.set()
        return quick

    assert (await asyncio.wait_for(graph(x=1), 5)).outputs == {"slow": 1, "after_quick": 1}


async def test_nodes_behind_a_taken_branch_run_at_the_same_time() -> None:
    """Two waiting consumers of one variant meet; the untaken branch is skipped."""
    barrier = asyncio.Barrier(2)
    graph = tm.Graph("routed")

    @graph.node
    def route(x: int) -> A | B:
        return A() if x else B()

    @graph.node
    async def one(route: A) -> int:
        return await barrier.wait()

    @graph.node
    async def two(route: A) -> int:
        return await barrier.wait()

    @graph.node
    async def other(route: B) -> str:
        return "b"

    result = await asyncio.wait_for(graph(x=1), 5)
    assert sorted(result.outputs.values()) == [0, 1]
    assert result.skipped == ("other",)
    assert (await graph(x=0)).outputs == {"other": "b"}


async def test_an_async_router_routes() -> None:
    """A routed value may come from a node that waits, while another one waits too."""
    graph = tm.Graph("router")

    @graph.node
    async def route(x: int) -> A | B | None:
        return [A(), B(), None][x]

    @graph.node
    async def beside(x: int) -> int:
        return x

    @graph.node
    async def on_a(route: A, beside: int) -> str:
        return f"a{beside}"

    @graph.node
    def on_b(route: B) -> str:
        return "b"

    @graph.node
    async def join(on_a: str | None, on_b: str = "-") -> tuple[str | None, str]:
        return (on_a, on_b)

    assert [(await graph(x=x)).outputs for x in (0, 1)] == [{"join": ("a0", "-")}, {"join": (None, "b")}]
    assert (await graph(x=2)).skipped == ("on_a", "on_b", "join")


async def test_an_undeclared_variant_of_an_async_router_names_it() -> None:
    """cloacina 67: node and class are named where nodes wait, too."""
    graph = tm.Graph("router")

    @graph.node
    async def route(x: int) -> A | B:
        return x

    @graph.node
    async def beside(x: int) -> int:
        return x

    @graph.node
    async def on_a(route: A) -> str:
        return "a"

    @graph.node
    async def on_b(route: B) -> str:
        return "b"

    error = (await graph(x=1)).error
    assert error is not None
    assert error.node == "route"
    assert "int" in str(error)
    assert "A | B" in str(error)


async def test_a_blocking_node_on_a_thread_does_not_hold_the_loop() -> None:
    """cloacina 77: `thread=True` sends a blocking node to a thread, and the loop continues."""
    released = threading.Event()
    graph = tm.Graph("blocking")

    @graph.node(thread=True)
    def block(x: int) -> bool:
        return released.wait(5) and threading.current_thread() is not threading.main_thread()

    @graph.node
    async def release(x: int) -> str:
        released.set()
        return threading.current_thread().name

    result = await graph(x=1)
    assert result.outputs == {"block": True, "release": threading.current_thread().name}


async def test_two_blocking_nodes_run_at_the_same_time() -> None:
    """Threads run beside each other: each waits for the other one."""
    barrier = threading.Barrier(2, timeout=5)
    graph = tm.Graph("threads")

    @graph.node(thread=True)
    def one() -> int:
        return barrier.wait()

    @graph.node(thread=True)
    def two() -> int:
        return barrier.wait()

    assert sorted((await graph()).outputs.values()) == [0, 1]


async def test_one_thread_node_makes_the_call_awaitable() -> None:
    """A graph is awaitable if any node must be waited for."""
    graph = tm.Graph("awaitable")

    @graph.node
    def first(x: int) -> int:
        return x

    @graph.node(thread=True)
    def second(first: int, *, function: int = 3) -> tuple[int, int]:
        return (first, function)

    call = graph(x=1)
    assert asyncio.iscoroutine(call)
    assert (await call).outputs == {"second": (1, 3)}


async def test_thread_on_an_async_node_changes_nothing() -> None:
    """An awaited node needs no thread."""
    graph = tm.Graph("redundant")

    @graph.node(thread=True)
    async def first(x: int) -> bool:
        await asyncio.sleep(0)
        return threading.current_thread() is threading.main_thread()

    assert (await graph(x=1)).outputs == {"first": True}


async def test_an_error_cancels_waiting_nodes() -> None:
    """Tasks fail together: a sibling that would wait forever is cancelled, and counts as skipped."""
    cancelled = asyncio.Event()
    started = asyncio.Event()
    graph = tm.Graph("failing")

    @graph.node
    async def patient(x: int) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    @graph.node
    async def hasty(x: int) -> None:
        await started.wait()
        raise ValueError("enough")

    @graph.node
    def behind(hasty: None) -> int:
        return 1

    result = await asyncio.wait_for(graph(x=1), 5)
    assert result.error is not None
    assert (result.error.node, str(result.error.cause)) == ("hasty", "enough")
    assert cancelled.is_set()
    assert set(result.skipped) == {"patient", "behind"}


async def test_nodes_that_finished_before_an_error_have_run() -> None:
    """`ran` and `outputs` keep the nodes that finished before a sibling failed."""
    finished = asyncio.Event()
    graph = tm.Graph("partly")

    @graph.node
    async def good(x: int) -> int:
        return x

    @graph.node
    async def after_good(good: int) -> int:
        finished.set()
        return good

    @graph.node
    async def bad(x: int) -> int:
        await finished.wait()
        await asyncio.sleep(0)
        raise ValueError("late")

    result = await asyncio.wait_for(graph(x=7), 5)
    assert result.error is not None
    assert result.error.node == "bad"
    assert set(result.ran) == {"good", "after_good"}
    assert result.outputs == {"after_good": 7}


async def test_a_node_that_several_wait_for_is_the_one_that_failed() -> None:
    """G-18: the error of a node reaches all that wait for it, and still points at the node itself."""
    graph = tm.Graph("awaited")

    @graph.node
    async def source(x: int) -> int:
        raise LookupError("source")  # the author's line

    @graph.node
    async def one(source: int) -> int:
        return 1

    @graph.node
    async def two(source: int, one: int) -> int:
        return 2

    @graph.node
    async def three(source: int) -> int:
        return 3

    @graph.node
    async def beside(x: int) -> int:
        return x

    error = (await graph(x=1)).error
    assert error is not None
    assert error.node == "source"
    frames = traceback.extract_tb(error.cause.__traceback__)
    assert (frames[-1].filename, frames[-1].name) == (__file__, "source")
    assert any(frame.filename.startswith("<graph awaited") and frame.line for frame in frames)


async def test_cancelling_a_call_cancels_its_nodes() -> None:
    """A caller that stops waiting for a graph stops it."""
    started, cancelled = asyncio.Event(), asyncio.Event()
    graph = tm.Graph("cancelled")

    @graph.node
    async def wait(x: int) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    @graph.node
    async def beside(x: int) -> int:
        return x

    async with asyncio.TaskGroup() as group:
        task = group.create_task(graph(x=1))
        await started.wait()
        task.cancel()
    assert cancelled.is_set()
    assert task.cancelled()


async def test_a_call_cancelled_before_its_first_step_leaves_nothing_behind() -> None:
    """No warning about a coroutine that was never awaited (warnings are errors here)."""
    graph = tm.Graph("early")

    @graph.node
    async def one(x: int) -> int:
        return x

    @graph.node
    async def two(x: int) -> int:
        return x

    async with asyncio.TaskGroup() as group:
        task = group.create_task(graph(x=1))
        asyncio.get_running_loop().call_soon(task.cancel)
    assert task.cancelled()


async def test_validation_errors_are_raised_when_awaited() -> None:
    """A missing or wrong input of an async graph is a RequestError too."""
    graph = tm.Graph("admission")

    @graph.node
    async def one(x: int) -> int:
        return x

    for inputs, code in [({}, "missing_input"), ({"x": "a"}, "invalid_input"), ({"x": 1, "z": 2}, "unknown_input")]:
        with pytest.raises(tm.RequestError) as caught:
            await graph(**inputs)
        assert caught.value.code == code


async def test_mixed_nodes_keep_their_order() -> None:
    """Synchronous nodes between waiting ones get their inputs."""
    graph = tm.Graph("mixed")

    @graph.node
    def first(x: int) -> int:
        return x + 1

    @graph.node
    async def second(first: int) -> int:
        return first * 2

    @graph.node
    def third(second: int, first: int) -> int:
        return second + first

    @graph.node(thread=True)
    def fourth(third: int) -> int:
        return third * 10

    result = await graph(x=1)
    assert result.outputs == {"fourth": 60}
    assert result.ran == ("first", "second", "third", "fourth")


async def test_calls_of_one_graph_do_not_disturb_each_other() -> None:
    """A graph has no state between or during calls."""
    barrier = asyncio.Barrier(2)
    graph = tm.Graph("twice")

    @graph.node
    async def one(x: int) -> int:
        await barrier.wait()
        return x

    @graph.node
    async def two(x: int) -> int:
        return -x

    results = await asyncio.wait_for(asyncio.gather(graph(x=1), graph(x=2)), 5)
    assert [result.outputs for result in results] == [{"one": 1, "two": -1}, {"one": 2, "two": -2}]
