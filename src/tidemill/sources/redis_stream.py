"""A stream of Redis read from the checkpoint alone: the id of the last delivered entry.

A stream may be trimmed while its reader is away or slow, a server may lose its newest entries in a crash, and a stream
may be deleted and created again. Each batch is therefore read in one transaction with the entry of the position. If
that has gone, two facts of the checkpoint tell what happened: how many entries the stream had ever had, and an anchor,
which is the oldest entry of the stream. An anchor that is still there belongs to the stream that was read.
"""

from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import msgspec

from tidemill.sources.interface import Delivery, Event, Moved, SourceContext, read_checkpoint

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


class Anchor(msgspec.Struct, frozen=True, array_like=True):
    """An entry that a stream had."""

    id: str
    checksum: int


class StreamPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checkpoint: the id of an entry, and what tells whether it still is one of this stream."""

    id: str
    count: int | None = None
    """The number of entries that the stream had ever had at this one; None while it is not known."""
    anchor: Anchor | None = None


class Look(NamedTuple):
    """A stream as one transaction has found it."""

    info: dict[str, Any]
    has_position: bool
    has_anchor: bool
    has_another: bool
    """Whether the id of the anchor is that of another entry: no entry of a stream ever changes."""

    @property
    def newest(self) -> str:
        """The id of the newest entry that it has ever had."""
        newest: str = self.info["last-generated-id"].decode()
        return newest

    @property
    def added(self) -> int | None:
        """How many entries it has ever had; None if the server, before 7.0, does not count."""
        return self.info.get("entries-added")

    @property
    def oldest(self) -> Anchor | None:
        """Its oldest entry."""
        first = self.info["first-entry"]
        return None if first is None else Anchor(first[0].decode(), _checksum(first[1]))


class StreamReader:
    """Reads one stream; writes nothing."""

    def __init__(self, access: StreamAccess) -> None:
        self._client = access.client
        self._stream = access.stream
        self._field = access.field
        self._title = access.title
        self._context = access.context
        self._position = StreamPosition(START)

    async def prepare(self, checkpoint: Any) -> None:
        """Set the position, and read once: a key that is not a stream is refused."""
        self._position = read_checkpoint(checkpoint, StreamPosition, self._title) or self._position
        await self._client.xlen(self._stream)

    async def next_batch(self) -> Delivery:
        """Return the next entries; wait for some if there are none, and return an empty list when they came."""
        look, entries = await self._look()
        if look is not None:  # else there is no stream yet, or no longer
            before = self._position.id
            self._check_continuity(look)
            if self._position.id != before:
                return Moved(msgspec.to_builtins(self._position))
        if entries:
            return self._take(entries, None if look is None else look.added)
        await self._client.xread({self._stream: self._position.id}, count=1, block=BLOCK_TIME)
        return []

    async def _look(self) -> tuple[Look | None, list[Entry]]:
        position, anchor = self._position.id, self._position.anchor
        anchor_id = START if anchor is None else anchor.id
        async with self._client.pipeline(transaction=True) as pipeline:
            pipeline.xinfo_stream(self._stream)
            pipeline.xrange(self._stream, position, position)
            pipeline.xrange(self._stream, anchor_id, anchor_id)
            pipeline.xread({self._stream: position}, count=BATCH_SIZE)
            info, current, anchored, streams = await pipeline.execute(raise_on_error=False)
        if isinstance(streams, Exception):
            raise streams
        if isinstance(info, Exception):
            return None, find_entries(streams)
        has_anchor = any(Anchor(found.decode(), _checksum(fields)) == anchor for found, fields in anchored)
        has_another = bool(anchored) and anchor is not None and not has_anchor
        return Look(info, bool(current), has_anchor, has_another), find_entries(streams)

    def _take(self, entries: list[Entry], added: int | None) -> list[Event]:
        """Return the events of new entries, and move behind them."""
        count, anchor = self._position.count, self._position.anchor
        first = {} if anchor is None else {"anchor": msgspec.to_builtins(anchor)}
        batch: list[Event] = []
        for number, entry in enumerate(entries, start=1):
            known = {} if count is None else {"count": count + number}
            batch.append((event_of(entry.fields, self._field), {"id": entry.id, **known, **first}))
        count = None if count is None else count + len(entries)
        self._position = StreamPosition(entries[-1].id, count, anchor)
        if count is not None and added is not None:
            self._context.lag = added - count
        return batch

    def _check_continuity(self, look: Look) -> None:
        """Set the position to where the stream continues, and report what is missing."""
        position = self._position
        if look.newest == position.id:
            self._position = StreamPosition(position.id, look.added, look.oldest or position.anchor)
            self._context.lag = 0
            return
        if position.id == START:
            count = None if look.added is None else look.added - look.info["length"]
            self._position = StreamPosition(START, count, look.oldest)
            return
        if look.has_another or not look.has_position:
            self._position, gap = continue_after(position, look)
            if gap is not None:
                self._context.report_gap(f"{self._title}: {gap}")
        self._position = msgspec.structs.replace(self._position, anchor=look.oldest or self._position.anchor)

    async def acknowledge(self) -> None:
        """Do nothing: the checkpoint decides."""


def continue_after(before: StreamPosition, look: Look) -> tuple[StreamPosition, str | None]:
    """Return where to continue in a stream without an entry at the position, or with another anchor, and the gap."""
    is_behind = parse_id(look.newest) < parse_id(before.id)
    has_fewer = before.count is not None and look.added is not None and look.added < before.count
    if _has_begun_anew(before, look, has_lost=is_behind or has_fewer):
        return StreamPosition(START), (
            f"it ends at {look.newest}, and entries up to {before.id} were read; it has restarted, so it is read from "
            "its start"
        )
    if is_behind:
        return StreamPosition(look.newest, look.added), (
            f"it ends at {look.newest}, and entries up to {before.id} were read; the server has lost its newest "
            f"entries, so reading continues after {look.newest}"
        )
    if has_fewer:
        return StreamPosition(before.id), (
            f"it has lost its newest entries, and entries up to {before.id} were read: some after that may be missing"
        )
    return _continue_after_trim(before, look)


def _has_begun_anew(before: StreamPosition, look: Look, *, has_lost: bool) -> bool:
    """Return whether another stream has this name now: its entries differ, or it cannot be the one that was read."""
    is_complete = look.info["length"] == look.added  # no entry was ever removed, and the position was not there
    cannot_be_it = has_lost or (is_complete and before.anchor is not None)
    return look.has_another or (cannot_be_it and not look.has_anchor)


def _continue_after_trim(before: StreamPosition, look: Look) -> tuple[StreamPosition, str | None]:
    """Return where to continue in a stream whose entry at the position was trimmed, and the gap if others were, too."""
    if before.count is not None and look.added is not None and look.added - before.count <= look.info["length"]:
        return before, None
    position = before if look.oldest is not None else StreamPosition(look.newest, look.added)
    begin = look.newest if look.oldest is None else look.oldest.id
    return position, (
        f"entries up to {before.id} were read, and the oldest one now is {begin}; those in between were trimmed"
    )


def _checksum(fields: dict[bytes, bytes]) -> int:
    return crc32(b"\0".join(part for field in fields.items() for part in field))


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
