"""Rows of plain tables: a struct whose fields are the columns, encoded and decoded by the types of the fields.

Texts, numbers, bytes and times have columns of their own kind. Anything else is a JSON text.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from types import NoneType
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from tidemill.kernel.limits import LISTED_VALUE_LIMIT

Row = TypeVar("Row", bound=msgspec.Struct)

_PLAIN = (str, int, float, bytes)


class RowCodec(Generic[Row]):
    """Encodes the structs of one class as rows of a database."""

    def __init__(self, kind: type[Row], **columns: str) -> None:
        """Take the columns from the fields of a struct; `columns` renames some of them."""
        hints = {name: _required_type(hint) for name, hint in get_type_hints(kind).items()}
        self._kind = kind
        self._fields = {name: columns.get(name, name) for name in kind.__struct_fields__}
        self.names = tuple(self._fields.values())
        self.columns = ", ".join(f'"{name}"' for name in self.names)  # some are words of SQL
        self.fragments = {
            "columns": self.columns,
            "parameters": ", ".join(f":{name}" for name in self.names),
            "updates": ", ".join(f'"{name}" = excluded."{name}"' for name in self.names),
        }
        self._encoders = {name: _make_encoder(hints[name]) for name in self._fields}
        self._decoders = [_make_decoder(hints[name]) for name in self._fields]

    def values(self, row: Row) -> dict[str, Any]:
        """Return the columns of a row by name; its times as they are."""
        values: dict[str, Any] = {}
        for name, encode in self._encoders.items():
            value = getattr(row, name)
            values[self._fields[name]] = value if encode is None or value is None else encode(value)
        return values

    def decode(self, columns: Sequence[Any], read_time: Callable[[Any], datetime]) -> Row:
        """Return the row with these columns."""
        values: dict[str, Any] = {}
        for name, decode, value in zip(self._fields, self._decoders, columns, strict=True):
            values[name] = None if value is None else read_time(value) if decode is None else decode(value)
        return self._kind(**values)

    def listed(self, value: str) -> str:
        """Return the columns of a list: NULL for a value that is too large for one, and behind them its bytes."""
        size = f"{{bytes_of:{value}}}"
        is_large = f"{size} > {LISTED_VALUE_LIMIT}"
        columns = (
            f'CASE WHEN {is_large} THEN NULL ELSE "{name}" END' if name == value else f'"{name}"' for name in self.names
        )
        return ", ".join([*columns, f"CASE WHEN {is_large} THEN {size} END"])


def _required_type(hint: Any) -> Any:
    """Return a type without None."""
    choices = [one for one in get_args(hint) if one is not NoneType]
    return choices[0] if NoneType in get_args(hint) and len(choices) == 1 else hint


def _is_plain(kind: Any) -> bool:
    return kind in _PLAIN or get_origin(kind) is Literal


def _make_encoder(kind: Any) -> Callable[[Any], Any] | None:
    """Return what encodes the values of a column; None if they are stored as they are, or by the database."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return str
    return None if kind in (datetime, bool) or _is_plain(kind) else _encode_json


def _make_decoder(kind: Any) -> Callable[[Any], Any] | None:
    """Return what decodes the values of a column; None for times."""
    if kind is datetime:
        return None
    if kind is bool or (isinstance(kind, type) and issubclass(kind, StrEnum)):
        decode: Callable[[Any], Any] = kind
        return decode
    return _unchanged if _is_plain(kind) else msgspec.json.Decoder(kind).decode


def _unchanged(value: Any) -> Any:
    return value


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
