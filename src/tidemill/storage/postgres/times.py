"""Times that PostgreSQL can hold: the driver would take a naive one for one of the machine's zone."""

from typing import Any

from tidemill.storage.times import check_zone

_TIMES = (
    *("at", "created_at", "started_at", "ended_at", "cancelled_at", "claimed_at", "seen_at"),
    *("slot", "since", "wake_at", "last"),
)


def check_times(*rows: Any) -> None:
    """Raise ValueError if a row has a time without a zone."""
    for row in rows:
        for name in _TIMES:
            time = getattr(row, name, None)
            if time is not None:
                check_zone(time)
