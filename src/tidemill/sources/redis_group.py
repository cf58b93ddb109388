"""A stream of Redis read by a consumer of a group: delivered, then acknowledged.

The server keeps the entries that a consumer was given and has not acknowledged. They come first, after a restart or a
crash. The checkpoint names those of the last batch that were delivered, and whose acknowledgement may not have reached
the server: they are acknowledged, and not delivered again. A consumer that stays away leaves its entries behind; the
others of its group claim them after a while.
"""

from typing import Any

from tidemill.kernel.author_errors import Fail
from tidemill.sources.clients import import_client
from tidemill.sources.interface import Event
from tidemill.sources.redis_stream import BLOCK_TIME, START, Entry, StreamAccess, event_of, find_entries, parse_id

BATCH_SIZE = 32  # entries that are acknowledged together; a checkpoint lists up to so many
GROUP_EXISTS = "BUSYGROUP"


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
        self._batch: list[str] = []
        self._has_pending = True
        self._next_claim = 0.0
        self._claim_cursor: str | bytes = START

    async def prepare(self, checkpoint: Any) -> None:
        """Create the group if there is none; it begins with the oldest entry."""
        if checkpoint is not None and not isinstance(checkpoint, list):
            raise Fail(
                f"{self._access.title}: the checkpoint {checkpoint!r} is of another source; rename the accumulator"
            )
        self._delivered = frozenset(checkpoint or ())
        try:
            await self._client.xgroup_create(self._stream, self._group, START, mkstream=True)
        except import_client("redis.exceptions", extra="redis").ResponseError as error:
            if not str(error).startswith(GROUP_EXISTS):
                raise

    async def next_batch(self) -> list[Event]:
        """Return the next entries: pending ones of this consumer, then abandoned and new ones. There may be none."""
        if not self._has_pending:
            await self._claim_abandoned()
        entries = await self._read_pending() if self._has_pending else await self._read_new()
        self._has_pending = self._has_pending and bool(entries)
        deliverable = await self._acknowledge_others(entries)
        self._batch = [entry.id for entry in deliverable]
        return [
            (event_of(entry.fields, self._access.field), self._batch[:count])
            for count, entry in enumerate(deliverable, start=1)
        ]

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
        """Report entries that were trimmed before any consumer of the group was given them."""
        self._access.context.lag = group.get("lag")
        read, added = group.get("entries-read"), info.get("entries-added")
        last = group["last-delivered-id"].decode()
        if read is None or added is None or parse_id(last) == parse_id(START):  # an older server, or a new group
            return
        if (missing := added - info["length"] - read) > 0:
            self._access.context.report_gap(
                f"{self._access.title}: {missing} entries after {last} were trimmed before group '{self._group}' "
                "read them"
            )

    async def _claim_abandoned(self) -> None:
        """Make entries of consumers that stay away pending ones of this consumer, now and then."""
        clock = self._access.context.clock
        if clock.monotonic() < self._next_claim:
            return
        self._next_claim = clock.monotonic() + self._claim_after
        idle = int(self._claim_after * 1000)
        self._claim_cursor, claimed, *_ = await self._client.xautoclaim(
            self._stream, self._group, self._consumer, idle, self._claim_cursor, count=BATCH_SIZE
        )
        self._has_pending = bool(claimed)

    async def _acknowledge_others(self, entries: list[Entry]) -> list[Entry]:
        """Acknowledge entries that were delivered before, or that were deleted meanwhile; return the rest."""
        deleted = [entry.id for entry in entries if not entry.fields]
        if deleted:
            self._access.context.report_gap(
                f"{self._access.title}: entries {', '.join(deleted)} were deleted before they were delivered"
            )
        skipped = {*deleted, *(entry.id for entry in entries if entry.id in self._delivered)}
        if skipped:
            await self._client.xack(self._stream, self._group, *skipped)
        return [entry for entry in entries if entry.id not in skipped]
