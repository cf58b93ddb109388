"""Source readers: bring a source's events to an accumulator, and report when its connection changes."""

import importlib
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, nullcontext
from types import ModuleType
from typing import Any, Protocol

from tidemill.access.principal import INSTANCE_TENANT
from tidemill.graphs.definition import Accumulator, Kafka, KafkaShare, Nats, Source
from tidemill.kernel.author_errors import Fail
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.kernel.settings import Settings
from tidemill.sources.interface import Delivery, Encoding, Moved, SourceContext

MAX_SHOWN = 80  # characters of a value in a message


class SourceListener(Protocol):
    """The accumulator, as its reader sees it."""

    def on_connected(self) -> None:
        """The source is connected."""

    def on_disconnected(self, reason: str) -> float:
        """The source is lost or cannot be reached; return the delay before the reader's next try, in seconds."""

    async def on_event(self, event: Any, checkpoint: Any) -> None:
        """Process an event; return when it has reached the reactors, so that the source may acknowledge it."""

    async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
        """Process events with their checkpoints, in order; return when all have reached the reactors."""

    def on_moved(self, checkpoint: Any) -> None:
        """Keep a position that has moved without an event."""

    def on_gap(self, reason: str) -> None:
        """Record that the source has lost events."""

    def on_history_lost(self) -> None:
        """Expect new events: the source may no longer have those that followed the checkpoint."""
        return


class SourceReader(Protocol):
    """Reads a source until it ends or fails."""

    encoding: Encoding = "json"
    """How the bytes of its events are decoded."""
    replays: bool | None = None
    """Whether it delivers the same events again when it is started with an older checkpoint; None if it cannot say."""

    @property
    def upstream_lag(self) -> int | None:
        """The number of events that the source has, and that were not delivered yet, as it last said.

        None if it cannot say, or has not said it yet. It is read for people who look, and costs no request.
        """
        return None

    async def run(self, listener: SourceListener, checkpoint: Any) -> None:
        """Deliver every event after `checkpoint`; return when the source has ended, raise when it fails.

        The accumulator calls this again after an error, unless that is `Fail`: then a retry cannot help.
        """


class IteratorReader(SourceReader):
    """Reads a source by iterating over what its `start` returns: those of `tm.sources`, and those of authors.

    It counts as connected from its first event on: nothing else shows that a generator has connected. A `start` that
    is a coroutine and returns the iterator is connected when it returns.
    """

    def __init__(
        self, source: Source, name: str, settings: Settings, clock: Clock, tenant: str = INSTANCE_TENANT
    ) -> None:
        self._source = source
        self._name = name
        self._title = f"the source of accumulator '{name}'"
        self._client_name = f"tidemill-{_qualified_name(tenant, name)}"
        self._settings = settings
        self._clock = clock
        self._context: SourceContext | None = None
        self.encoding = getattr(source, "encoding", "json")
        self.replays = getattr(source, "replays", None)
        self._takes_context = "context" in inspect.signature(source.start).parameters

    @property
    def upstream_lag(self) -> int | None:
        return None if self._context is None else self._context.lag

    async def run(self, listener: SourceListener, checkpoint: Any) -> None:
        context = SourceContext(self._name, self._settings, self._clock, listener.on_gap, self._client_name)
        self._context = context
        try:
            deliveries: Any = self._source.start(checkpoint, **({"context": context} if self._takes_context else {}))
            has_connected = inspect.isawaitable(deliveries)
            if has_connected:
                deliveries = await deliveries
            if not hasattr(deliveries, "__aiter__"):
                raise Fail(f"{self._title}: `start` returns {_shorten(deliveries)}, not an async iterator")
            if has_connected:
                listener.on_connected()
            async with _closing_iterator(deliveries):
                async for delivery in deliveries:
                    listener.on_connected()
                    await self._deliver(delivery, listener)
        finally:
            self._context = None

    async def _deliver(self, delivery: Delivery, listener: SourceListener) -> None:
        if isinstance(delivery, Moved):
            listener.on_moved(delivery.checkpoint)
        elif isinstance(delivery, list):
            for one in delivery:
                self._check_event(one)
            await listener.on_events(delivery)
        else:
            self._check_event(delivery)
            await listener.on_event(*delivery)

    def _check_event(self, event: Any) -> None:
        """Raise Fail if a source yields something else than an event with its checkpoint."""
        if not _is_pair(event):
            raise Fail(f"{self._title} yields {_shorten(event)}, not a pair (event, checkpoint), or a list of pairs")
        if all(map(_is_pair, event)):
            raise Fail(f"{self._title} yields {_shorten(event)}: yield several events as a list of pairs, not a tuple")


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _shorten(value: Any) -> str:
    return repr(value)[:MAX_SHOWN]


def _closing_iterator(deliveries: AsyncIterator[Any]) -> Any:
    """Close a generator when the loop ends early; other iterators cannot be closed."""
    return aclosing(deliveries) if hasattr(deliveries, "aclose") else nullcontext()


def open_reader(accumulator: Accumulator, tenant: str, settings: Settings, clock: Clock) -> SourceReader:
    """Return the reader of a stream, or raise OperationError with what is missing."""
    source = accumulator.source
    if isinstance(source, Kafka | KafkaShare):
        topic, share = (source.source, source) if isinstance(source, KafkaShare) else (source, None)
        servers = _resolve_servers(accumulator.name, topic.servers, settings.kafka_servers, "kafka")
        name = _qualified_name(tenant, accumulator.declared_name)
        reader: SourceReader = _import_client("kafka").KafkaReader(topic, name, servers, clock, share)
        return reader
    if isinstance(source, Nats):
        servers = _resolve_servers(accumulator.name, source.servers, settings.nats_servers, "nats")
        reader = _import_client("nats").NatsReader(source, _qualified_name(tenant, accumulator.name), servers)
        return reader
    if source is None:
        raise OperationError(f"accumulator '{accumulator.name}' has no source to read")
    return IteratorReader(source, accumulator.name, settings, clock, tenant)


def _qualified_name(tenant: str, name: str) -> str:
    """Return a name for the other side that no accumulator of another tenant has: they would share its events."""
    return name if tenant == INSTANCE_TENANT else f"{tenant}-{name}"


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
        raise OperationError(f"reading {extra} needs its client: pip install 'tidemill[{extra}]' ({error})") from error
