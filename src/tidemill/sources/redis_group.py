"""A stream of Redis read by a consumer of a group: delivered, then acknowledged.

The server keeps the entries that a consumer was given and has not acknowledged. They come first, after a restart or a
crash. The checkpoint names those of the last batch that were delivered, and whose acknowledgement may not have reached
the server: they are acknowledged, and not delivered again. A consumer that stays away leaves its entries behind; the
others of its group claim them after a while.
"""

from typing import Any

import msgspec

from tidemill.sources.clients import import_client
from tidemill.sources.interface import Event, read_checkpoint
from tidemill.sources.redis_stream import BLOCK_TIME, START, Entry, StreamAccess, event_of, find_entries, parse_id

BATCH_SIZE = 32  # entries that are acknowledged together; a checkpoint lists up to that many
GROUP_EXISTS = "BUSYGROUP"
MAX_SHOWN = 10  # ids in a message


class GroupPosition(msgspec.Struct, frozen=True):
    """A checkpoint: the entries of the last batch that were delivered, and the newest one of all batches."""

    delivered: list[str]
    newest: str


class GroupReader:
    """Reads one stream as one consumer."""

    def __init__(self, access: StreamAccess, group: str, consumer: str, claim_after: float) -> None:
        self._access = access
        self._client = access.client
        self._stream = access.stream
        self._group = group
        self._consumer = consumer
        self._claim_after = claim_after
        self._delivered: frozenset[str] = frozenset()
        """The entries that the checkpoint names."""
        self._newest = START
        self._batch: list[str] = []
        self._has_pending = True
        self._uncounted = 0
        """Entries that the server does not count as read: before 7.2.6 it forgets those that were trimmed unread."""
        self._next_claim = 0.0
        self._claim_cursor = START

    async def prepare(self, checkpoint: Any) -> None:
        """Create the group if there is none; it begins with the oldest entry, or after what was delivered."""
        before = read_checkpoint(checkpoint, GroupPosition, self._access.title)
        if before is not None:
            self._delivered, self._newest = frozenset(before.delivered), before.newest
        begin = await self._find_begin()
        try:
            await self._client.xgroup_create(self._stream, self._group, begin, mkstream=True)
        except import_client("redis.exceptions", extra="redis").ResponseError as error:
            if not str(error).startswith(GROUP_EXISTS):
                raise
            return
        if before is not None:
            self._delivered, self._newest = frozenset(), begin
            self._access.context.report_gap(
                f"{self._access.title}: group '{self._group}' was destroyed after entry {before.newest} was delivered; "
                f"it begins again after {begin}, and entries that its consumers had not acknowledged may be missing"
            )

    async def _find_begin(self) -> str:
        """Return after which entry a new group begins: the newest delivered one, if the stream has got there."""
        if self._newest == START or not await self._client.exists(self._stream):
            return START
        reached = (await self._client.xinfo_stream(self._stream))["last-generated-id"].decode()
        return self._newest if parse_id(reached) >= parse_id(self._newest) else START

    async def next_batch(self) -> list[Event]:
        """Return the next entries: pending ones of this consumer, then abandoned and new ones. There may be none."""
        if not self._has_pending:
            await self._claim_abandoned()
        entries = await self._read_pending() if self._has_pending else await self._read_new()
        self._has_pending = self._has_pending and bool(entries)
        deliverable = await self._acknowledge_others(entries)
        self._batch = []
        return [(event_of(entry.fields, self._access.field), self._move_behind(entry)) for entry in deliverable]

    def _move_behind(self, entry: Entry) -> Any:
        """Return the checkpoint after an entry."""
        self._batch.append(entry.id)
        self._newest = max(self._newest, entry.id, key=parse_id)
        return {"delivered": self._batch.copy(), "newest": self._newest}

    async def acknowledge(self) -> None:
        """Acknowledge the batch, which has reached the reactors."""
        await self._client.xack(self._stream, self._group, *self._batch)

    async def _read_pending(self) -> list[Entry]:
        return find_entries(
            await self._client.xreadgroup(self._group, self._consumer, {self._stream: "0"}, count=BATCH_SIZE)
        )

    async def _read_new(self) -> list[Entry]:
        """Return new entries. Together with them the server says how many the group has not read."""
        async with self._client.pipeline(transaction=True) as pipeline:
            pipeline.xinfo_stream(self._stream)
            pipeline.xinfo_groups(self._stream)
            pipeline.xreadgroup(self._group, self._consumer, {self._stream: ">"}, count=BATCH_SIZE)
            info, groups, streams = await pipeline.execute()
        self._check_trimmed(info, next(one for one in groups if one["name"].decode() == self._group))
        if entries := find_entries(streams):
            return entries
        return find_entries(
            await self._client.xreadgroup(
                self._group, self._consumer, {self._stream: ">"}, count=BATCH_SIZE, block=BLOCK_TIME
            )
        )

    def _check_trimmed(self, info: dict[str, Any], group: dict[str, Any]) -> None:
        """Report entries that were trimmed before any consumer of the group was given them.

        A stream is trimmed from its beginning: while the last delivered entry is not before the oldest one, none is
        missing, whatever the server counts. If it is the newest one, the group has read as many as were ever added.
        """
        self._access.context.lag = group.get("lag")
        read, added = group.get("entries-read"), info.get("entries-added")
        last = group["last-delivered-id"].decode()
        if read is None or added is None or parse_id(last) == parse_id(START):  # an older server, or a new group
            return
        if info["last-generated-id"].decode() == last:
            self._uncounted = added - read
            return
        oldest = info["first-entry"]
        if oldest is not None and parse_id(oldest[0].decode()) <= parse_id(last):
            return
        if (missing := added - info["length"] - read - self._uncounted) > 0:
            self._access.context.report_gap(
                f"{self._access.title}: {missing} entries after {last} were trimmed before group '{self._group}' "
                "read them"
            )

    async def _claim_abandoned(self) -> None:
        """Make entries of consumers that stay away pending ones of this consumer: now and then, all that there are."""
        clock = self._access.context.clock
        if self._claim_cursor == START and clock.monotonic() < self._next_claim:
            return
        self._next_claim = clock.monotonic() + self._claim_after
        idle = int(self._claim_after * 1000)
        while not self._has_pending:
            cursor, claimed, *deleted = await self._client.xautoclaim(
                self._stream, self._group, self._consumer, idle, self._claim_cursor, count=BATCH_SIZE
            )
            self._claim_cursor = cursor.decode()
            self._has_pending = bool(claimed)
            self._report_deleted([one.decode() for ids in deleted for one in ids])
            if self._claim_cursor == START:
                return

    async def _acknowledge_others(self, entries: list[Entry]) -> list[Entry]:
        """Acknowledge entries that were delivered before, or that were deleted meanwhile; return the rest."""
        deleted = [entry.id for entry in entries if not entry.fields]
        self._report_deleted(deleted)
        skipped = {*deleted, *(entry.id for entry in entries if entry.id in self._delivered)}
        if skipped:
            await self._client.xack(self._stream, self._group, *skipped)
        return [entry for entry in entries if entry.id not in skipped]

    def _report_deleted(self, ids: list[str]) -> None:
        """Report entries that are gone although no consumer has acknowledged them."""
        if ids:
            shown = ", ".join(ids[:MAX_SHOWN]) + (f" and {len(ids) - MAX_SHOWN} more" if len(ids) > MAX_SHOWN else "")
            self._access.context.report_gap(
                f"{self._access.title}: entries {shown} were deleted before they were delivered"
            )
