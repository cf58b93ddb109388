"""The frames of a connection that have come and are not answered yet: a bounded number, and bounded bytes.

A full buffer stops the reading of its connection, so that the client's own buffers fill, and the client waits.
"""

import asyncio
from collections import deque

MAX_FRAMES = 64
MAX_BYTES = 8 * 1024 * 1024


class FrameBuffer:
    """A queue of frames between the task that reads a connection and the one that answers."""

    def __init__(self) -> None:
        self._frames: deque[bytes | str] = deque()
        self._bytes = 0
        self._error: BaseException | None = None
        self._has_frames = asyncio.Event()
        self._has_space = asyncio.Event()
        self._has_space.set()

    async def put(self, frame: bytes | str) -> None:
        """Add a frame, then wait until there is space for another."""
        self._frames.append(frame)
        self._bytes += len(frame)
        self._has_frames.set()
        if len(self._frames) >= MAX_FRAMES or self._bytes >= MAX_BYTES:
            self._has_space.clear()
            await self._has_space.wait()

    def end(self, error: BaseException) -> None:
        """Let the taker raise an error after the last frame."""
        self._error = self._error or error
        self._has_frames.set()

    def fail(self, error: BaseException) -> None:
        """Drop what is left, and let the taker raise an error."""
        self._frames.clear()
        self._error = error

    @property
    def is_empty(self) -> bool:
        """Whether no frame waits."""
        return not self._frames

    async def wait(self) -> None:
        """Wait for a frame; raise the error of the end if none is left."""
        while not self._frames:
            if self._error is not None:
                raise self._error
            self._has_frames.clear()
            await self._has_frames.wait()

    def take(self) -> bytes | str:
        """Return the oldest frame; there must be one."""
        frame = self._frames.popleft()
        self._bytes -= len(frame)
        self._has_space.set()
        return frame

    def put_back(self, frame: bytes | str) -> None:
        """Make a frame that was taken the oldest again."""
        self._frames.appendleft(frame)
        self._bytes += len(frame)
