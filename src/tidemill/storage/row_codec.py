"""Rows of plain tables: a struct whose fields are the columns, encoded and decoded by the types of the fields.

Texts, numbers, bytes and times have columns of their own kind. Anything else is a JSON text.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import msgspec

from tidemill.kernel.limits import LISTED_VALUE_LIMIT

Row = TypeVar("Row", bound=msgspec.Struct)

_PLAIN = (str, int, float, bytes)


class RowCodec(Generic[Row]):
    """Encodes the structs of one class as rows of a database."""

    def __init__(
        self, kind: type[Row], write_time: Callable[[datetime], Any], read_time: Callable[[Any], datetime]
    ) -> None:
        hints = get_type_hints(kind)
        self._kind = kind
        self.names = tuple(kind.__struct_fields__)
        self.columns = ", ".join(f'"{name}"' for name in self.names)  # some are words of SQL
        self._values = attrgetter(*self.names)
        self._encoders = [_make_encoder(_required_type(hints[name]), write_time) for name in self.names]
        self._decoders = [_make_decoder(_required_type(hints[name]), read_time) for name in self.names]

    def encode(self, row: Row) -> tuple[Any, ...]:
        """Return the columns of a row, in the order of the fields."""
        return tuple(
            [
                value if encode is None or value is None else encode(value)
                for encode, value in zip(self._encoders, self._values(row), strict=True)
            ]
        )

    def decode(self, columns: Sequence[Any]) -> Row:
        """Return the row with these columns."""
        values = zip(self._decoders, columns, strict=True)
        return self._kind(**{name: _decode(*one) for name, one in zip(self.names, values, strict=True)})


def make_fragments(codecs: Mapping[str, RowCodec[Any]], parameter: Callable[[int], str]) -> dict[str, str]:
    """Return the fragments of statements on some tables: `{key_columns}`, `{key_parameters}`, `{key_next_parameter}`.

    The last one is for a column that the struct does not have. `parameter` spells the parameter with a number from 1.
    """
    fragments: dict[str, str] = {}
    for name, codec in codecs.items():
        *parameters, next_one = (parameter(number) for number in range(1, len(codec.names) + 2))
        fragments[f"{name}_columns"] = codec.columns
        fragments[f"{name}_parameters"] = ", ".join(parameters)
        fragments[f"{name}_next_parameter"] = next_one
    return fragments


def list_columns(codec: RowCodec[Any], value: str, size: str) -> str:
    """Return the columns of a list: NULL for a value that is too large for one, and behind them its bytes.

    `size` is the expression for the bytes of the value.
    """
    is_large = f"{size} > {LISTED_VALUE_LIMIT}"
    listed = (
        f'CASE WHEN {is_large} THEN NULL ELSE "{name}" END' if name == value else f'"{name}"' for name in codec.names
    )
    return ", ".join([*listed, f"CASE WHEN {is_large} THEN {size} END"])


def _decode(decode: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else decode(value)


def _required_type(hint: Any) -> Any:
    """Return a type without None."""
    choices = [one for one in get_args(hint) if one is not NoneType]
    return choices[0] if NoneType in get_args(hint) and len(choices) == 1 else hint


def _make_encoder(kind: Any, write_time: Callable[[datetime], Any]) -> Callable[[Any], Any] | None:
    """Return what encodes the values of a column; None if they are stored as they are."""
    if kind is datetime:
        return write_time
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return str
    return None if kind in _PLAIN else _encode_json


def _make_decoder(kind: Any, read_time: Callable[[Any], datetime]) -> Callable[[Any], Any]:
    if kind is datetime:
        return read_time
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind
    return _unchanged if kind in _PLAIN else msgspec.json.Decoder(kind).decode


def _unchanged(value: Any) -> Any:
    return value


def _encode_json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
