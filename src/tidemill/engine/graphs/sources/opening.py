"""Opening the feed that a declared source stands for; clients of brokers are imported only when one is used."""

import importlib
from types import ModuleType

from tidemill.engine.graphs.sources.feed import AuthorFeed, Feed
from tidemill.graphs.definition import Accumulator, Kafka, Nats
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.kernel.settings import Settings


def open_feed(accumulator: Accumulator, settings: Settings, clock: Clock) -> Feed:
    """Return the feed of a stream, or say what is missing to follow it."""
    source = accumulator.source
    if isinstance(source, Kafka):
        servers = _servers(accumulator.name, source.servers, settings.kafka_servers, "kafka")
        feed: Feed = _client("kafka").KafkaFeed(source, accumulator.name, servers, clock)
        return feed
    if isinstance(source, Nats):
        servers = _servers(accumulator.name, source.servers, settings.nats_servers, "nats")
        feed = _client("nats").NatsFeed(source, accumulator.name, servers)
        return feed
    if source is None:
        raise OperationError(f"accumulator '{accumulator.name}' has no source to follow")
    return AuthorFeed(source)


def _servers(name: str, declared: str | None, setting: str | None, extra: str) -> str:
    servers = declared or setting
    if servers is None:
        raise OperationError(
            f"accumulator '{name}': no {extra} servers; pass servers= to the source, or set {extra}_servers "
            f"(TIDEMILL_{extra.upper()}_SERVERS)"
        )
    return servers


def _client(extra: str) -> ModuleType:
    try:
        return importlib.import_module(f"tidemill.engine.graphs.sources.{extra}")
    except ImportError as error:
        raise OperationError(
            f"following {extra} needs its client: pip install 'tidemill[{extra}]' ({error})"
        ) from error
