"""The check whether a store takes writes, after one has failed.

A full disk fails most writes, but not all: small ones may find room in what the database already has. So the writes of
other callers say nothing, and the check writes more than that, and removes it again.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.workflow_ports import Notes, RunNote

PROBE_SIZE = 65_536  # bytes; random, because PostgreSQL compresses long texts
_NO_RUN = ""
_EPOCH = datetime.fromtimestamp(0, UTC)


async def check_writable(notes: Notes, committers: Sequence[GroupCommitter[Any]]) -> None:
    """Write something if a write has failed since the last check that succeeded; StoreError if it fails too."""
    if any(one.has_failed for one in committers):
        await notes.upsert(RunNote(_NO_RUN, None, token_hex(PROBE_SIZE // 2), _EPOCH))
        await notes.upsert(RunNote(_NO_RUN, None, "", _EPOCH))
        for one in committers:
            one.has_failed = False
