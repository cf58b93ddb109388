"""Times that PostgreSQL can hold: the driver would take a naive one for one of the machine's zone."""

from datetime import datetime

import msgspec
from msgspec.structs import astuple

from tidemill.storage.times import check_zone


def check_times(*rows: msgspec.Struct) -> None:
    """Raise ValueError if a row has a time without a zone."""
    for row in rows:
        for value in astuple(row):
            if isinstance(value, datetime):
                check_zone(value)
