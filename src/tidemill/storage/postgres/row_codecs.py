"""Codecs of plain rows in PostgreSQL, whose driver takes and returns times as they are."""

from datetime import datetime
from typing import TypeVar

import msgspec

from tidemill.storage.queries import check_timezone
from tidemill.storage.row_codec import RowCodec

Row = TypeVar("Row", bound=msgspec.Struct)


def make_codec(kind: type[Row]) -> RowCodec[Row]:
    """Return the codec of a struct."""
    return RowCodec(kind, _write_time, _read_time)


def parameter(number: int) -> str:
    """Return the name of a parameter in a statement."""
    return f"${number}"


def _write_time(time: datetime) -> datetime:
    check_timezone(time)
    return time


def _read_time(time: datetime) -> datetime:
    return time
