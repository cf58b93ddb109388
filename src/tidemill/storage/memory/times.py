"""Times as databases give them back: aware, in UTC."""

from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from tidemill.storage.times import check_zone

Row = TypeVar("Row", bound=msgspec.Struct)


def in_utc(time: datetime) -> datetime:
    """Return the same time in UTC; a naive one is no point in time."""
    check_zone(time)
    return time.astimezone(UTC)


def all_in_utc(row: Row) -> Row:
    """Return a row with all its times in UTC."""
    values = ((name, getattr(row, name)) for name in row.__struct_fields__)
    times = ((name, value) for name, value in values if isinstance(value, datetime))
    elsewhere = {name: in_utc(time) for name, time in times if time.tzinfo is not UTC}
    return replace(row, **elsewhere) if elsewhere else row
