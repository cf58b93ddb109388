"""What the processes of all attempts say, heard with one ear of the loop.

To tell an event loop about a descriptor, and to take that back, costs it more than to read from one. An attempt has
three, most of them for a few milliseconds. So they have a selector of their own, and the loop knows of nothing else.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector


class Ears:
    """Calls back whenever there is something to be read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._selector = DefaultSelector()
        loop.add_reader(self._selector.fileno(), self._hear)

    def close(self) -> None:
        """Hear nothing any more."""
        self._loop.remove_reader(self._selector.fileno())
        self._selector.close()

    def add(self, descriptor: int, call: Callable[[], object]) -> None:
        """Call whenever there is something to be read here, or the other side has gone."""
        self._selector.register(descriptor, EVENT_READ, call)

    def remove(self, descriptor: int) -> None:
        """Do not any more, if it was wanted at all; to be said before the descriptor is closed."""
        with suppress(KeyError):
            self._selector.unregister(descriptor)

    def _hear(self) -> None:
        wanted = self._selector.get_map()
        for key, _ in self._selector.select(0):
            if wanted.get(key.fd) is key:  # a call before this one may have changed that
                key.data()
