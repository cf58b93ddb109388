"""Concurrent steps inside one awaitable call: strands that start together and fail as one."""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self


class Strands:
    """A task group whose failure is the first error itself, not a group around it."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    def start(self, name: str, strand: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Start a strand; awaiting what comes back gives its result."""
        return self._group.create_task(strand, name=name)


async def in_thread(function: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """Call a blocking function on a thread and wait for it without holding the loop."""
    return await asyncio.to_thread(function, *values, **named)
