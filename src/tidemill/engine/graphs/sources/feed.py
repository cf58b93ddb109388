"""A feed brings a source's events to an accumulator, and says when the connection comes and goes."""

import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, nullcontext
from typing import Any, Protocol

from tidemill.graphs.definition import Source


class Listener(Protocol):
    """The accumulator, as its feed sees it."""

    def connected(self) -> None:
        """The source is there."""

    def lost(self, reason: str) -> None:
        """The source is gone for now; the feed goes on trying."""

    async def event(self, event: Any, checkpoint: Any) -> None:
        """Take an event; returns when it reached the reactors, so that the source may forget it."""

    async def many(self, events: Sequence[tuple[Any, Any]]) -> None:
        """Take events with their checkpoints, in order; returns when all reached the reactors."""


class Feed(Protocol):
    """Something that follows a source until it ends or breaks."""

    async def follow(self, listener: Listener, checkpoint: Any) -> None:
        """Bring every event after `checkpoint`; return when the source has ended, raise when it broke."""


class AuthorFeed(Feed):
    """Follows a source of the author's own.

    It counts as connected from its first event on: nothing else tells that a generator has got through. A `start` that
    is a coroutine and returns the iterator has connected when it returns.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    async def follow(self, listener: Listener, checkpoint: Any) -> None:
        events: Any = self._source.start(checkpoint)
        if inspect.isawaitable(events):
            events = await events
            listener.connected()
        async with _closing(events):
            async for event, position in events:
                listener.connected()
                await listener.event(event, position)


def _closing(events: AsyncIterator[Any]) -> Any:
    """Close a generator when it is left early; other iterators know nothing of closing."""
    return aclosing(events) if hasattr(events, "aclose") else nullcontext()
