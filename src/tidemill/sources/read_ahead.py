"""Reading ahead: takes small parts from a network as they come, while earlier ones are delivered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

LIMIT = 262_144  # bytes that are read ahead; then TCP makes the server wait


class ReadAhead:
    """The parts of a response that have been read.

    An event waits for its commit. Whatever arrives meanwhile is delivered together, and shares the next one.
    """

    def __init__(self) -> None:
        self._read: list[bytes] = []
        self._size = 0
        self._has_ended = False
        self._error: Exception | None = None
        self._has_news = asyncio.Event()
        self._has_space = asyncio.Event()
        self._has_space.set()

    async def read_all(self, parts: AsyncIterator[bytes]) -> None:
        """Read to the end; an error is kept for `take`."""
        try:
            async for part in parts:
                self._read.append(part)
                self._size += len(part)
                self._has_news.set()
                if self._size >= LIMIT:
                    self._has_space.clear()
                await self._has_space.wait()
        except Exception as error:  # raised again by `take`
            self._error = error
        finally:
            self._has_ended = True
            self._has_news.set()

    async def take(self) -> bytes:
        """Wait for something, and return all that has come; nothing at the end. Raise the error of the reading."""
        await self._has_news.wait()
        taken, self._read, self._size = b"".join(self._read), [], 0
        self._has_space.set()
        if not self._has_ended:
            self._has_news.clear()
        elif self._error is not None and not taken:
            raise self._error
        return taken


@asynccontextmanager
async def reading_ahead(parts: AsyncIterator[bytes], name: str) -> AsyncIterator[ReadAhead]:
    """Read parts in a separate task within the block."""
    ahead = ReadAhead()
    error: BaseException | None = None
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(ahead.read_all(parts), name=name)
        try:
            yield ahead
        except BaseException as raised:  # raised again below: the group would wrap it, even the end of a generator
            error = raised
        task.cancel()
    if error is not None:
        raise error
