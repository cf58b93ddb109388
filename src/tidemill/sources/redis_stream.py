"""A stream of Redis read from the checkpoint alone: the id of the last delivered entry.

A stream may be trimmed while its reader is away or slow. Each batch is therefore read in one transaction with the entry
of the position. If that has gone, entries after it may have gone as well, unread; the server counts entries, and so
tells whether they have.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from tidemill.kernel.author_errors import Fail
from tidemill.sources.interface import Event, SourceContext

if TYPE_CHECKING:
    from redis.asyncio import Redis as Client  # extra: redis

BATCH_SIZE = 256
BLOCK_TIME = 5_000  # milliseconds that the server waits for an entry
START = "0-0"


class Entry(NamedTuple):
    """An entry of a stream. It has no fields if it was deleted while it was pending."""

    id: str
    fields: dict[bytes, bytes]


class StreamAccess(NamedTuple):
    """A stream, and how to reach it."""

    client: "Client"
    stream: str
    field: str | None
    title: str
    context: SourceContext


class StreamReader:
    """Reads one stream; writes nothing."""

    def __init__(self, access: StreamAccess) -> None:
        self._client = access.client
        self._stream = access.stream
        self._field = access.field
        self._title = access.title
        self._context = access.context
        self._position = START
        self._read_count: int | None = None
        """The number of entries that the stream had ever had at the position; None while it is not known."""

    async def prepare(self, checkpoint: Any) -> None:
        """Set the position, and read once: a key that is no stream is refused."""
        if checkpoint is not None and not isinstance(checkpoint, str):
            raise Fail(f"{self._title}: the checkpoint {checkpoint!r} is of another source; rename the accumulator")
        self._position = checkpoint or START
        await self._client.xlen(self._stream)

    async def next_batch(self) -> list[Event]:
        """Return the next entries; wait for some if there are none, and return an empty list when they came."""
        async with self._client.pipeline(transaction=True) as pipeline:
            pipeline.xinfo_stream(self._stream)
            pipeline.xrange(self._stream, self._position, self._position)
            pipeline.xread({self._stream: self._position}, count=BATCH_SIZE)
            info, current, streams = await pipeline.execute(raise_on_error=False)
        if isinstance(streams, Exception):
            raise streams
        entries = find_entries(streams)
        if not isinstance(info, Exception):  # else there is no stream yet, or no longer
            self._check_continuity(info, is_there=bool(current))
        if not entries:
            await self._client.xread({self._stream: self._position}, count=1, block=BLOCK_TIME)
            return []
        self._position = entries[-1].id
        if self._read_count is not None:
            self._read_count += len(entries)
            self._context.lag = info["entries-added"] - self._read_count
        return [(event_of(entry.fields, self._field), entry.id) for entry in entries]

    def _check_continuity(self, info: dict[str, Any], *, is_there: bool) -> None:
        """Report entries that were trimmed before they were read, and a stream that began anew."""
        newest = info["last-generated-id"].decode()
        if newest == self._position:
            self._read_count = info.get("entries-added")  # servers before 7.0 do not count
            self._context.lag = 0
        elif parse_id(newest) < parse_id(self._position):
            self._context.report_gap(
                f"{self._title}: it ends at {newest}, and entries up to {self._position} were read; it has begun anew, "
                "so it is read from its start"
            )
            self._position, self._read_count = START, None
        elif not is_there and self._position != START and self._has_lost_entries(info):
            begin = info["first-entry"][0].decode() if info["first-entry"] else newest
            self._context.report_gap(
                f"{self._title}: entries up to {self._position} were read, and the oldest one now is {begin}; those in "
                "between were trimmed"
            )
            if not info["first-entry"]:
                self._position, self._read_count = newest, info.get("entries-added")

    def _has_lost_entries(self, info: dict[str, Any]) -> bool:
        """Return whether entries after the position have gone; True if the server's counts cannot tell."""
        added: int | None = info.get("entries-added")
        return added is None or self._read_count is None or added - self._read_count > info["length"]

    async def acknowledge(self) -> None:
        """Do nothing: the checkpoint decides."""


def find_entries(streams: Any) -> list[Entry]:
    """Return the entries of an answer about one stream."""
    return [Entry(entry_id.decode(), fields or {}) for entry_id, fields in streams[0][1]] if streams else []


def event_of(fields: dict[bytes, bytes], field: str | None) -> Any:
    """Return the event of an entry: the bytes of a field, or all fields.

    An entry without that field is delivered with those it has: it does not fit, and becomes a dead letter.
    """
    if field is not None and (value := fields.get(field.encode())) is not None:
        return value
    return {_as_text(name): _as_text(value) for name, value in fields.items()}


def parse_id(id: str) -> tuple[int, int]:
    """Return the two numbers of an entry's id, by which ids are ordered."""
    milliseconds, _, sequence = id.partition("-")
    return int(milliseconds), int(sequence or 0)


def _as_text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
