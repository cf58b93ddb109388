"""A feed brings a source's events to an accumulator, and says when the connection comes and goes."""

import importlib
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, nullcontext
from types import ModuleType
from typing import Any, Protocol

from tidemill.graphs.definition import Accumulator, Kafka, Nats, Source
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.kernel.settings import Settings


class SourceListener(Protocol):
    """The accumulator, as its feed sees it."""

    def on_connected(self) -> None:
        """The source is there."""

    def on_disconnected(self, reason: str) -> None:
        """The source is gone for now; the feed goes on trying."""

    async def on_event(self, event: Any, checkpoint: Any) -> None:
        """Take an event; returns when it reached the reactors, so that the source may forget it."""

    async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
        """Take events with their checkpoints, in order; returns when all reached the reactors."""


class SourceReader(Protocol):
    """Something that follows a source until it ends or breaks."""

    async def run(self, listener: SourceListener, checkpoint: Any) -> None:
        """Bring every event after `checkpoint`; return when the source has ended, raise when it broke."""


class CustomSourceReader(SourceReader):
    """Follows a source of the author's own.

    It counts as connected from its first event on: nothing else tells that a generator has got through. A `start` that
    is a coroutine and returns the iterator has connected when it returns.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    async def run(self, listener: SourceListener, checkpoint: Any) -> None:
        events: Any = self._source.start(checkpoint)
        if inspect.isawaitable(events):
            events = await events
            listener.on_connected()
        async with _closing_iterator(events):
            async for event, position in events:
                listener.on_connected()
                await listener.on_event(event, position)


def _closing_iterator(events: AsyncIterator[Any]) -> Any:
    """Close a generator when it is left early; other iterators know nothing of closing."""
    return aclosing(events) if hasattr(events, "aclose") else nullcontext()


def open_reader(accumulator: Accumulator, settings: Settings, clock: Clock) -> SourceReader:
    """Return the feed of a stream, or say what is missing to follow it."""
    source = accumulator.source
    if isinstance(source, Kafka):
        servers = _resolve_servers(accumulator.name, source.servers, settings.kafka_servers, "kafka")
        feed: SourceReader = _import_client("kafka").KafkaReader(source, accumulator.name, servers, clock)
        return feed
    if isinstance(source, Nats):
        servers = _resolve_servers(accumulator.name, source.servers, settings.nats_servers, "nats")
        feed = _import_client("nats").NatsReader(source, accumulator.name, servers)
        return feed
    if source is None:
        raise OperationError(f"accumulator '{accumulator.name}' has no source to follow")
    return CustomSourceReader(source)


def _resolve_servers(name: str, declared: str | None, setting: str | None, extra: str) -> str:
    servers = declared or setting
    if servers is None:
        raise OperationError(
            f"accumulator '{name}': no {extra} servers; pass servers= to the source, or set {extra}_servers "
            f"(TIDEMILL_{extra.upper()}_SERVERS)"
        )
    return servers


def _import_client(extra: str) -> ModuleType:
    try:
        return importlib.import_module(f"tidemill.engine.graphs.sources.{extra}")
    except ImportError as error:
        raise OperationError(
            f"following {extra} needs its client: pip install 'tidemill[{extra}]' ({error})"
        ) from error
