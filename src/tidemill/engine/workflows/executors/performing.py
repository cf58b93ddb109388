"""Carries out what calls of a context have to do: on the event loop of a task, or on its thread."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from typing import Any

from tidemill.workflows.node_calls import CallNode, NodeCall, StepsCall
from tidemill.workflows.steps import Procedure


class LoopPerformer:
    """Carries calls of one attempt out on its event loop."""

    def __init__(self, call_node: CallNode | None) -> None:
        self._call_node = call_node
        self._running: set[asyncio.Task[Any]] = set()
        self._records: Any = None
        self._reading = asyncio.Lock()

    async def perform(self, work: Procedure) -> Any:
        """Carry work out, and return its result."""
        task = asyncio.current_task()
        if task is None or task in self._running:
            return await self._advance(work)
        self._running.add(task)
        try:
            return await self._advance(work)
        finally:
            self._running.discard(task)

    async def _advance(self, work: Procedure) -> Any:
        advance: Callable[[], Any] = partial(work.send, None)
        while True:
            try:
                wanted = advance()
            except StopIteration as end:
                return end.value
            try:
                answer = await (wanted if isawaitable(wanted) else self._answer(wanted))
                advance = partial(work.send, answer)
            except BaseException as error:  # of any kind: it belongs to the work
                advance = partial(work.throw, error)

    async def _answer(self, call: NodeCall) -> Any:
        assert self._call_node is not None, "a context without a node has no work"
        if not isinstance(call, StepsCall):
            return await self._call_node(call)
        async with self._reading:  # calls side by side share one read
            if self._records is None:
                self._records = await self._call_node(call)
        return self._records

    async def cancel(self) -> None:
        """Cancel the other tasks that make calls: the execution is over."""
        left = self._running - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.sleep(0)


def perform_now(call_node: CallNode | None, wait_for: Callable[[Awaitable[Any]], Any], work: Procedure) -> Any:
    """Carry work out on a thread without an event loop, and return its result."""
    assert call_node is not None, "as above"
    advance: Callable[[], Any] = partial(work.send, None)
    while True:
        try:
            wanted = advance()
        except StopIteration as end:
            return end.value
        try:
            advance = partial(work.send, wait_for(wanted) if isawaitable(wanted) else call_node(wanted))
        except BaseException as error:  # as above
            advance = partial(work.throw, error)
