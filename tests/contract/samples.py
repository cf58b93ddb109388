"""Rows for the contract suite, with everything filled in that a test does not care about."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from tidemill.kernel.errors import StoreError
from tidemill.storage.graph_ports import JournalBlock, JournalKey, PartKey, PartKind, SnapshotPart, StoredPush
from tidemill.storage.mailbox_port import StoredRequest
from tidemill.storage.tables.graphs import StoredDeadLetter, StoredRecovery

NOON = datetime(2026, 3, 29, 12, 0, 0, 123_457, UTC)
NOON_ELSEWHERE = NOON.astimezone(timezone(timedelta(hours=5, minutes=45)))
NOON_NOWHERE = NOON.replace(tzinfo=None)
HALF_PAST_TWO = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
"""In the hour that the zone has twice: the first one; with `fold=1` it is the second, and yet equal to the first."""

ODD_NAMES = [
    "",
    " ",
    "a/b'; drop table parts--",
    '"quoted"',
    "percent %s ? $1",
    "line\nbreak",
    "naïve 名前 🌊",
    "Z",
    "a",
]


def key(name: str = "r", tenant: str = "public", kind: PartKind = "reactor") -> PartKey:
    """Return the key of a part."""
    return PartKey(tenant, kind, name)


def part(
    generation: int = 1,
    *,
    of: PartKey | None = None,
    moment: int | None = None,
    payload: bytes = b"payload",
    taken_at: datetime = NOON,
) -> SnapshotPart:
    """Return one part; its moment is its generation by default."""
    return SnapshotPart(
        key=of or key(),
        generation=generation,
        moment=generation if moment is None else moment,
        taken_at=taken_at,
        digest=b"\x00digest",
        checksum=b"\xffchecksum",
        payload=payload,
    )


def journal(name: str = "a", tenant: str = "public") -> JournalKey:
    """Return the key of a journal."""
    return JournalKey(tenant, name)


def block(position: int, of: JournalKey | None = None, payload: bytes = b"event") -> JournalBlock:
    """Return one block of a journal."""
    key = of or journal()
    return JournalBlock(key=key, position=position, layout=b"\x00lay", checksum=b"\x00\xff", payload=payload)


def push(
    sequence: int = 1,
    *,
    of: JournalKey | None = None,
    client: str = "c",
    answer: bytes = b"answer",
    at: datetime = NOON,
) -> StoredPush:
    """Return the newest push of a producer."""
    return StoredPush(key=of or journal(), client=client, sequence=sequence, answer=answer, at=at)


def request(
    id: str = "1",
    *,
    target: PartKey | None = None,
    sender: str = "node 1",
    payload: bytes = b"call",
    at: datetime = NOON,
) -> StoredRequest:
    """Return one request to the owner of a part."""
    return StoredRequest(id=id, target=target or key(), sender=sender, operation="push", payload=payload, at=at)


def letter(
    id: str,
    *,
    tenant: str = "public",
    owner: PartKind = "reactor",
    source: str = "r",
    at: datetime = NOON,
    payload: bytes = b"letter",
) -> StoredDeadLetter:
    """Return one dead letter."""
    return StoredDeadLetter(id=id, tenant=tenant, owner=owner, source=source, at=at, payload=payload)


def recovery(
    id: str, *, tenant: str = "public", at: datetime = NOON, action: str = "restarted", reason: str = "it broke"
) -> StoredRecovery:
    """Return one recovery."""
    return StoredRecovery(
        id=id, tenant=tenant, component="reactor", name="r", at=at, action=action, reason=reason, failures=2
    )


async def outcomes(*calls: Awaitable[object]) -> list[str]:
    """Await calls together; return the outcome of each: "done", "refused" by a StoreError, or another error's name."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [_outcome(result) for result in results]


def _outcome(result: object) -> str:
    if isinstance(result, StoreError):
        return "refused"
    return type(result).__name__ if isinstance(result, BaseException) else "done"
