"""What databases have in common about times."""

from datetime import datetime


def check_zone(time: datetime) -> None:
    """Raise ValueError for a naive time: it is no point in time, and each database would take it for another one."""
    if time.tzinfo is None:
        raise ValueError(f"a time without a zone cannot be stored: {time}")
