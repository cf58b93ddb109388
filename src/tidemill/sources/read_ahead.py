"""Reading ahead: takes small parts from a network as they come, while earlier ones are delivered."""

import asyncio
from collections.abc import AsyncIterator

LIMIT = 262_144  # bytes that are read ahead; then TCP makes the server wait


class ReadAhead:
    """Reads parts of a response in a task of its own, until it is closed.

    An event waits for its commit. Whatever arrives meanwhile is delivered together, and shares the next one.
    """

    def __init__(self, parts: AsyncIterator[bytes], name: str) -> None:
        self._read: list[bytes] = []
        self._size = 0
        self._has_news = asyncio.Event()
        self._has_space = asyncio.Event()
        self._has_space.set()
        self._task = asyncio.get_running_loop().create_task(self._read_all(parts), name=name)

    async def _read_all(self, parts: AsyncIterator[bytes]) -> None:
        try:
            async for part in parts:
                self._read.append(part)
                self._size += len(part)
                self._has_news.set()
                if self._size >= LIMIT:
                    self._has_space.clear()
                await self._has_space.wait()
        finally:
            self._has_news.set()

    async def take(self) -> bytes:
        """Wait for something, and return all that has come; nothing at the end. Raise the error of the reading."""
        await self._has_news.wait()
        taken, self._read, self._size = b"".join(self._read), [], 0
        self._has_space.set()
        if self._task.done():
            if not taken:
                self._task.result()
        else:
            self._has_news.clear()
        return taken

    async def close(self) -> None:
        """Stop reading."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # it is known already, or comes too late
