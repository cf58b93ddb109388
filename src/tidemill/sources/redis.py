"""Redis and Valkey: reads a stream, from the checkpoint alone or as a consumer of a group.

Without a group nothing is written to the server: the checkpoint has the id of the last entry, and it alone decides
where to continue. With a group the server remembers what was delivered and acknowledged, other consumers share the
entries, and each is acknowledged after it has reached the reactors.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from tidemill.kernel.author_errors import Fail
from tidemill.kernel.durations import Duration, parse_positive_duration
from tidemill.kernel.errors import DefinitionError
from tidemill.sources.clients import explaining_errors, import_client, resolve_url, server_name
from tidemill.sources.interface import Delivery, SourceContext
from tidemill.sources.options import check_duration, check_text
from tidemill.sources.redis_group import GroupReader
from tidemill.sources.redis_stream import StreamAccess, StreamReader

if TYPE_CHECKING:
    from redis.asyncio import Redis as Client  # extra: redis

CONNECT_TIMEOUT = 5.0  # seconds
SILENCE_TIMEOUT = 15.0  # seconds; a blocking read lasts less, so a server that is silent for this long is lost
FINAL_WORDS = ("WRONGTYPE", "NOPERM", "NOAUTH", "WRONGPASS")
"""What answers begin with that a retry cannot change."""


class Redis(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of Redis or Valkey; the address from here or from the setting `redis_url`."""

    stream: str
    """The key of the stream."""
    field: str | None = None
    """The field of an entry that holds the event. By default the event is a dict of all fields, as texts."""
    group: str | None = None
    """A consumer group to read in. By default the checkpoint alone decides, and the server keeps nothing."""
    consumer: str | None = None
    """The name of this consumer in its group; `tidemill-` and the name of the accumulator by default."""
    claim_after: Duration = "1m"
    """The idle time after which an entry of another consumer of the group counts as abandoned."""
    url: str | None = None

    def __post_init__(self) -> None:
        check_text("Redis", "stream", self.stream)
        check_duration("Redis", "claim_after", self.claim_after)
        if self.consumer is not None and self.group is None:
            raise DefinitionError.single("Redis", "consumer= names a member of a group; pass group=, too")

    @property
    def replays(self) -> bool:
        """Whether it reads the entries after a checkpoint again: a group does not give out again what it has."""
        return self.group is None

    def __repr__(self) -> str:
        return f"Redis(stream={self.stream!r})"  # its address may hold a password

    async def start(self, checkpoint: Any, context: SourceContext) -> AsyncIterator[Delivery]:
        """Connect, join the group if there is one, and return the entries after `checkpoint`."""
        url = resolve_url("redis", self.url, context)
        title = f"Redis stream '{self.stream}' at {server_name(url)}"
        client = _make_client(url, context.name)
        try:
            with _explaining_errors(title):
                async with asyncio.timeout(SILENCE_TIMEOUT):
                    reader = self._make_reader(StreamAccess(client, self.stream, self.field, title, context))
                    await reader.prepare(checkpoint)
        except BaseException:
            await client.aclose()
            raise
        return _read(reader, client, title)

    def _make_reader(self, access: StreamAccess) -> StreamReader | GroupReader:
        if self.group is None:
            return StreamReader(access)
        consumer = self.consumer or access.context.client_name
        return GroupReader(access, self.group, consumer, parse_positive_duration(self.claim_after))


async def _read(reader: StreamReader | GroupReader, client: "Client", title: str) -> AsyncIterator[Delivery]:
    try:
        with _explaining_errors(title):
            while True:
                async with asyncio.timeout(SILENCE_TIMEOUT):
                    batch = await reader.next_batch()
                if batch:
                    yield batch
                    async with asyncio.timeout(SILENCE_TIMEOUT):
                        await reader.acknowledge()
    finally:
        await client.aclose()


def _make_client(url: str, name: str) -> "Client":
    """Return a client that reports a lost connection, and retries nothing: the accumulator does."""
    asyncio_client = import_client("redis.asyncio", extra="redis")
    backoff = import_client("redis.backoff", extra="redis")
    try:
        client: Client = asyncio_client.Redis.from_url(
            url,
            client_name=f"tidemill-source-{name}",
            socket_connect_timeout=CONNECT_TIMEOUT,
            socket_timeout=None,  # with one, its `wait_for` swallows cancellations before Python 3.12
            retry=asyncio_client.retry.Retry(backoff.NoBackoff(), 0),
        )
    except ValueError as error:
        raise Fail(f"the address at {server_name(url)} cannot be read: {error}; write redis://HOST:PORT") from error
    return client


def _explaining_errors(title: str) -> AbstractContextManager[None]:
    errors = import_client("redis.exceptions", extra="redis")
    return explaining_errors(title, errors.RedisError, find_remedy=_find_remedy)


def _find_remedy(error: Exception) -> str | None:
    errors = import_client("redis.exceptions", extra="redis")
    if isinstance(error, errors.AuthenticationError):
        return "correct the credentials in its address"
    is_final = isinstance(error, errors.ResponseError) and str(error).startswith(FINAL_WORDS)
    return "" if is_final or isinstance(error, errors.NoPermissionError) else None
