"""The zip files that packages travel in: a strict subset, in which every byte has one meaning.

Entries lie one after the other, described twice with the same words, and nothing lies before, between or behind them.
There are no comments, no extra fields, no folders, no encryption. So no two programs can read different things out of
one file. What Tidemill writes is not compressed either: the same files give the same bytes on every machine.
"""

import stat
import struct
import zlib
from collections.abc import Iterator, Mapping

import msgspec

from tidemill.packages.entries import Limits, check_names, invalid, too_large

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_LOCAL_SIGN, _CENTRAL_SIGN, _END_SIGN = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"

_STORED, _DEFLATED = 0, 8
_ENCRYPTED, _UTF8 = 0x0001, 0x0800
_DOS_FOLDER = 0x10
_NEEDS = 20
_MADE_BY = 3 << 8 | _NEEDS  # 3 is Unix
_TIME, _DATE = 0, 0x21  # midnight of 1980-01-01, the first that zip knows
_MODE = stat.S_IFREG | 0o644
_HINT = "make it with `tidemill package build`"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One file in an archive, as the archive describes it."""

    name: str
    start: int
    """Where its first byte is, that of its own header."""

    data: int
    end: int
    method: int
    crc: int
    size: int


# -- writing


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the archive of these files; always the same for the same files."""
    body, directory = bytearray(), bytearray()
    for name, content in sorted(files.items(), key=lambda one: one[0].encode()):
        encoded = name.encode()
        flags = 0 if name.isascii() else _UTF8
        crc, size = zlib.crc32(content), len(content)
        shared = (_NEEDS, flags, _STORED, _TIME, _DATE, crc, size, size, len(encoded), 0)
        directory += _CENTRAL.pack(_CENTRAL_SIGN, _MADE_BY, *shared, 0, 0, 0, _MODE << 16, len(body)) + encoded
        body += _LOCAL.pack(_LOCAL_SIGN, *shared) + encoded + content
    end = _END.pack(_END_SIGN, 0, 0, len(files), len(files), len(directory), len(body), 0)
    return bytes(body + directory + end)


# -- reading


def unpack_bytes(raw: bytes, title: str, limits: Limits) -> dict[str, bytes]:
    """Return the files of an archive by name; everything about them is checked before the first is expanded."""
    entries = read_entries(raw, title, limits)
    check_names(title, (one.name for one in entries), limits)
    _check_sizes(entries, title, limits)
    return {one.name: _content(raw, one, title) for one in entries}


def read_entries(raw: bytes, title: str, limits: Limits) -> list[Entry]:
    """Return the entries of an archive in their order; RequestError unless its structure is sound."""
    if len(raw) > limits.archive_size:
        raise too_large(title, f"the archive has more than {limits.archive_size:,} bytes")
    if len(raw) < _END.size or raw[-_END.size : -_END.size + 4] != _END_SIGN:
        raise invalid(title, "it is not a zip file, is cut off, or something follows its end")
    _, disk, first_disk, here, count, size, start, comment = _END.unpack_from(raw, len(raw) - _END.size)
    if comment or disk or first_disk or here != count:
        raise invalid(title, f"it has a comment or is one of several parts; {_HINT}")
    if count > limits.entries:
        raise too_large(title, f"it has {count:,} entries, and {limits.entries:,} are allowed")
    if start + size + _END.size != len(raw):
        raise invalid(title, "its directory does not lie where it should: it is damaged, or too big for this format")
    entries = list(_directory(raw, count, start, title))
    if (entries[-1].end if entries else 0) != start:
        raise invalid(title, "something lies between its entries and its directory")
    return entries


def _directory(raw: bytes, count: int, start: int, title: str) -> Iterator[Entry]:
    stop, position, expected = len(raw) - _END.size, start, 0
    for number in range(1, count + 1):
        if position + _CENTRAL.size > stop:
            raise invalid(title, f"its directory ends before entry {number} of {count}")
        sign, made_by, *shared, comment, disk, inside, outside, offset = _CENTRAL.unpack_from(raw, position)
        position += _CENTRAL.size
        name_length = shared[8]
        encoded = raw[position : min(position + name_length, stop)]
        position += name_length
        if sign != _CENTRAL_SIGN or position > stop:
            raise invalid(title, f"its directory is damaged at entry {number} of {count}")
        name = _name(encoded, shared[1], title)
        _check_kind(name, made_by, outside, title)
        if comment or disk or shared[9] or inside not in (0, 1):
            raise invalid(title, f"entry {name!r} has a comment or extra fields; {_HINT}", name)
        if offset != expected:
            raise invalid(title, f"entry {name!r} does not begin where the one before it ends", name)
        entry = _entry(raw, start, offset, shared, encoded, title)
        expected = entry.end
        yield entry
    if position != stop:
        raise invalid(title, "its directory has more than its entries")


def _name(encoded: bytes, flags: int, title: str) -> str:
    try:
        return encoded.decode("utf-8" if flags & _UTF8 else "ascii")
    except UnicodeDecodeError as error:
        raise invalid(title, f"entry {encoded[:300]!r} has a name that is not in UTF-8") from error


def _check_kind(name: str, made_by: int, outside: int, title: str) -> None:
    """Refuse everything but plain files: links, folders, devices, and files that run as somebody else."""
    mode = outside >> 16
    if outside & _DOS_FOLDER or stat.S_ISDIR(mode) or name.endswith("/"):
        raise invalid(title, f"entry {name!r} is a folder, and only files are needed; {_HINT}", name)
    if stat.S_ISLNK(mode):
        raise invalid(title, f"entry {name!r} is a symbolic link", name)
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG) or mode & 0o7000 or made_by >> 8 not in (0, 3):
        raise invalid(title, f"entry {name!r} is not a plain file", name)


def _entry(raw: bytes, stop: int, offset: int, shared: list[int], encoded: bytes, title: str) -> Entry:
    """Return an entry whose own header says what the directory says of it."""
    _, flags, method, _, _, crc, packed, size, length, _ = shared
    name = _name(encoded, flags, title)
    data = offset + _LOCAL.size + length
    if flags & _ENCRYPTED:
        raise invalid(title, f"entry {name!r} is encrypted", name)
    if flags & ~_UTF8 or method not in (_STORED, _DEFLATED):
        raise invalid(title, f"entry {name!r} is packed in a way that is not allowed; {_HINT}", name)
    if data + packed > stop:
        raise invalid(title, f"entry {name!r} is cut off", name)
    if raw[offset:data] != _LOCAL.pack(_LOCAL_SIGN, *shared) + encoded:
        raise invalid(title, f"entry {name!r} is described in two ways that differ", name)
    if method == _STORED and packed != size:
        raise invalid(title, f"entry {name!r} has a size that cannot be", name)
    return Entry(name=name, start=offset, data=data, end=data + packed, method=method, crc=crc, size=size)


def _check_sizes(entries: list[Entry], title: str, limits: Limits) -> None:
    """Refuse what would be too much, by what the entries say of themselves; that they do not lie is seen later."""
    for one in entries:
        if one.size > limits.file_size:
            message = f"entry {one.name!r} has {one.size:,} bytes, and {limits.file_size:,} are allowed"
            raise too_large(title, message, one.name)
        if one.size > limits.ratio_free_size and one.size > limits.ratio * (one.end - one.data):
            message = f"entry {one.name!r} expands to more than {limits.ratio} times its size in the archive"
            raise too_large(title, message, one.name)
    if (total := sum(one.size for one in entries)) > limits.total_size:
        raise too_large(title, f"its files have {total:,} bytes, and {limits.total_size:,} are allowed")


def _content(raw: bytes, entry: Entry, title: str) -> bytes:
    content = raw[entry.data : entry.end]
    if entry.method == _DEFLATED:
        content = _expanded(content, entry, title)
    if zlib.crc32(content) != entry.crc:
        raise invalid(title, f"entry {entry.name!r} is damaged: its checksum is another", entry.name)
    return content


def _expanded(packed: bytes, entry: Entry, title: str) -> bytes:
    """Return what an entry expands to, and never more than it said."""
    expander = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        content = expander.decompress(packed, entry.size + 1)
    except zlib.error as error:
        raise invalid(title, f"entry {entry.name!r} is damaged: {error}", entry.name) from error
    if len(content) != entry.size or not expander.eof or expander.unused_data:
        raise invalid(
            title, f"entry {entry.name!r} does not expand to the {entry.size:,} bytes that it says", entry.name
        )
    return content
