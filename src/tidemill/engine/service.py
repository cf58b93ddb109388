"""Tasks with names, owned by the node: started here, stopped here, never forgotten."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class Tasks:
    """The tasks of one node. All of them end before the node does."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Begin to accept tasks."""
        await self._group.__aenter__()

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Start a task; its error, if nobody awaits it, is the node's own bug and is logged as such."""
        task = self._group.create_task(_guarded(work), name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def close(self) -> None:
        """Cancel what still runs and wait for it."""
        for task in tuple(self._running):
            task.cancel()
        await self._group.__aexit__(None, None, None)

    def __len__(self) -> int:
        return len(self._running)


async def _guarded(work: Coroutine[Any, Any, Any]) -> Any:
    """Run work so that its failure never takes the node's other tasks with it."""
    try:
        return await work
    except asyncio.CancelledError:
        raise
    except Exception:  # the last line of defence: a bug in one service must not stop the others
        logger.exception("task failed")
        return None


async def stop(task: "asyncio.Task[Any] | None") -> None:
    """Cancel a task and wait until it is gone."""
    if task is None or task.done():
        return
    task.cancel()
    await asyncio.wait({task})
