"""Times as databases give them back: aware, in UTC."""

from datetime import UTC, datetime


def in_utc(time: datetime) -> datetime:
    """Return the same time in UTC; a naive one is no point in time."""
    if time.tzinfo is None:
        raise ValueError(f"a time without a zone cannot be stored: {time}")
    return time.astimezone(UTC)
