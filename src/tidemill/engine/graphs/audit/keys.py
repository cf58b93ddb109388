"""Findings about the snapshots of keys: damaged ones, by reactor."""

from collections.abc import Iterable

from tidemill.engine.audit_findings import Finding, format_count, problem_finding
from tidemill.engine.graphs.durability.checksums import is_key_intact
from tidemill.graphs.keys import decode_key
from tidemill.storage.graph_ports import PartKey
from tidemill.storage.store import Store

KEYS_PER_PAGE = 1000


async def audit_keys(store: Store, reactors: Iterable[PartKey]) -> list[Finding]:
    """Check the snapshots of all keys, page by page: there may be millions."""
    findings = []
    for reactor in sorted(reactors):
        damaged = await _find_damaged(store, reactor)
        if damaged:
            subject = f"reactor {reactor.tenant}/{reactor.name}"
            counted = format_count(len(damaged), "key has", "keys have")
            findings.append(
                problem_finding(
                    subject,
                    f"{counted} a damaged snapshot, such as {decode_key(damaged[0])!r}.",
                    "A key without an intact one starts empty; another continues from its newest intact one.",
                    "Check the disk, and restore a backup if these keys matter.",
                )
            )
    return findings


async def _find_damaged(store: Store, reactor: PartKey) -> list[bytes]:
    damaged: dict[bytes, None] = {}
    after = b""
    while keys := await store.key_snapshots.list_keys(reactor, after, KEYS_PER_PAGE):
        after = keys[-1]
        rows = await store.key_snapshots.read(reactor, keys)
        damaged |= dict.fromkeys(row.key for row in rows if not is_key_intact(row))
    return list(damaged)
