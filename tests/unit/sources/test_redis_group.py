"""A group of Redis: what its counters say about entries that were trimmed, also where a server counts wrongly."""

from typing import Any

import pytest

from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.settings import Settings
from tidemill.sources.interface import SourceContext
from tidemill.sources.redis_group import GroupReader
from tidemill.sources.redis_stream import StreamAccess


class Trimmed:
    """A stream of entries 1-0, 2-0, ... of which the first ones were trimmed, and a group that reads it."""

    def __init__(self) -> None:
        self.gaps: list[str] = []
        context = SourceContext("orders", Settings(), VirtualClock(), self.gaps.append)
        client: Any = None  # nothing is asked
        self._reader = GroupReader(StreamAccess(client, "orders", None, "orders", context), "readers", "one", 60.0)

    def look(self, *, added: int, trimmed: int, last: int, read: int) -> None:
        """Look at the stream as its server describes it."""
        first = (f"{trimmed + 1}-0".encode(), {}) if trimmed < added else None
        newest = f"{added}-0".encode()
        info = {"entries-added": added, "length": added - trimmed, "first-entry": first, "last-generated-id": newest}
        group = {"last-delivered-id": f"{last}-0".encode(), "entries-read": read, "lag": 0}
        self._reader._check_trimmed(info, group)


@pytest.mark.parametrize("counts_trimmed", [True, False])
def test_entries_that_were_trimmed_unread_are_reported_once(counts_trimmed: bool) -> None:
    """Redis before 7.2.6 does not count entries as read that were trimmed before: the difference stays."""
    stream = Trimmed()
    stream.look(added=10, trimmed=0, last=5, read=5)
    stream.look(added=10, trimmed=8, last=5, read=5)
    assert len(stream.gaps) == 1
    assert "3 entries after 5-0 were trimmed" in stream.gaps[0]
    uncounted = 0 if counts_trimmed else 3
    stream.look(added=10, trimmed=8, last=10, read=10 - uncounted)
    stream.look(added=12, trimmed=10, last=10, read=10 - uncounted)
    stream.look(added=12, trimmed=12, last=12, read=12 - uncounted)
    assert len(stream.gaps) == 1
    stream.look(added=20, trimmed=14, last=12, read=12 - uncounted)
    assert "2 entries after 12-0 were trimmed" in stream.gaps[1]


def test_a_reader_that_starts_on_a_server_that_counts_wrongly_reports_nothing() -> None:
    """The ids show that nothing is missing: the last delivered entry is not before the oldest one."""
    stream = Trimmed()
    stream.look(added=10, trimmed=8, last=9, read=3)
    stream.look(added=10, trimmed=8, last=10, read=4)
    stream.look(added=15, trimmed=10, last=10, read=4)
    assert stream.gaps == []
