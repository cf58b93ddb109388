"""Splits msgpack values that follow one another without a separator."""

from collections.abc import Iterator
from struct import error as StructError  # noqa: N812, the name of a class
from struct import unpack_from

import msgspec

# By first byte: how many bytes the value has in all, if that byte alone says so.
_FIXED_SIZES = {
    **dict.fromkeys((*range(0x80), *range(0xE0, 0x100), 0xC0, 0xC2, 0xC3), 1),
    **{0xA0 + length: 1 + length for length in range(32)},
    **{0xCC: 2, 0xD0: 2, 0xCD: 3, 0xD1: 3, 0xCA: 5, 0xCE: 5, 0xD2: 5, 0xCB: 9, 0xCF: 9, 0xD3: 9},
    **{0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18},
}
# By first byte: the format of the length that follows it, and how many bytes come with each value of that length.
_SIZED = {
    **{0xC4: (">B", 0), 0xC5: (">H", 0), 0xC6: (">I", 0), 0xD9: (">B", 0), 0xDA: (">H", 0), 0xDB: (">I", 0)},
    **{0xC7: (">B", 1), 0xC8: (">H", 1), 0xC9: (">I", 1)},
}
_CONTAINERS = {0xDC: (">H", 1), 0xDD: (">I", 1), 0xDE: (">H", 2), 0xDF: (">I", 2)}
_LENGTH_BYTES = {">B": 1, ">H": 2, ">I": 4}


def split_msgpack(data: bytes) -> Iterator[bytes]:
    """Yield each value of a stream as bytes; msgspec.DecodeError where the stream is malformed or ends too early."""
    start = 0
    while start < len(data):
        end = _end_of_value(data, start)
        yield data[start:end]
        start = end


def _end_of_value(data: bytes, start: int) -> int:
    """Return where a value ends, without recursion: a container adds its items to those that are still to come."""
    position, remaining = start, 1
    while remaining:
        if position >= len(data):
            raise msgspec.DecodeError(f"the value at byte {start} is cut off")
        size, items = _measure(data, position)
        position += size
        remaining += items - 1
    if position > len(data):
        raise msgspec.DecodeError(f"the value at byte {start} is cut off")
    return position


def _measure(data: bytes, position: int) -> tuple[int, int]:
    """Return how many bytes a value has without its items, and how many items it has."""
    first = data[position]
    if (size := _FIXED_SIZES.get(first)) is not None:
        return size, 0
    if first & 0xF0 == 0x90:
        return 1, first & 0x0F
    if first & 0xF0 == 0x80:
        return 1, 2 * (first & 0x0F)
    try:
        if first in _SIZED:
            form, extra = _SIZED[first]
            return 1 + _LENGTH_BYTES[form] + extra + unpack_from(form, data, position + 1)[0], 0
        form, items = _CONTAINERS[first]
        return 1 + _LENGTH_BYTES[form], items * unpack_from(form, data, position + 1)[0]
    except KeyError:
        raise msgspec.DecodeError(f"byte {position} begins no msgpack value") from None
    except StructError as error:
        raise msgspec.DecodeError(f"the value at byte {position} is cut off") from error
