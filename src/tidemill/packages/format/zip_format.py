"""The zip format of packages: a strict subset, in which every byte has one meaning.

Entries follow one another without gaps, both headers of an entry are identical, and nothing comes before the first or
after the last. There are no comments, extra fields, folders or encryption. So no two programs can read different
contents from one file. Archives that Tidemill writes are not compressed: the same files give the same bytes everywhere.
"""

import stat
import struct
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tidemill.kernel.errors import RequestError
from tidemill.packages.format.manifest import MANIFEST_FILE, Manifest

SIGNATURE_FILE = "SIGNATURE"

_RESERVED_NAMES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


class ArchiveLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a package. A larger one is rejected before it is unpacked."""

    entry_count: int = 2_000
    archive_size: int = 67_108_864
    total_size: int = 67_108_864
    file_size: int = 16_777_216
    compression_ratio: int = 100
    """The largest allowed expansion of a file that is bigger than `ratio_exempt_size`."""

    ratio_exempt_size: int = 65_536
    name_length: int = 200
    """Of a path, in bytes of UTF-8."""

    depth: int = 16


def invalid_package_error(title: str, message: str, entry: str | None = None) -> RequestError:
    """Return the error for an invalid package."""
    return RequestError(f"{title}: {message}", code="invalid_package", entry=entry)


def package_too_large_error(title: str, message: str, entry: str | None = None) -> RequestError:
    """Return the error for a package that exceeds a limit."""
    return RequestError(f"{title}: {message}", code="package_too_large", status=413, entry=entry)


def is_excluded(part: str) -> bool:
    """Return whether packages never contain a file or folder: hidden ones and compiled Python."""
    return part.startswith(".") or part == "__pycache__" or part.endswith((".pyc", ".pyo"))


def check_names(title: str, names: Iterable[str], limits: ArchiveLimits) -> None:
    """Reject names that lead out of the folder, and names that would be the same file on some systems."""
    files: set[str] = set()
    seen: dict[str, str] = {}
    for name in names:
        if reason := _name_problem(name, limits):
            raise invalid_package_error(title, f"entry {name[:300]!r} {reason}", name)
        if name in files:
            raise invalid_package_error(title, f"entry {name!r} is in it twice", name)
        files.add(name)
        for path in (*_parent_folders(name), name):
            other = seen.setdefault(_path_identity(path), path)
            if other != path:
                raise invalid_package_error(title, f"entry {name!r} would be in one place with {other!r}", name)
    for name in sorted(files):
        if covered := files & {*_parent_folders(name)}:
            raise invalid_package_error(title, f"entry {name!r} lies in {min(covered)!r}, which is a file", name)


def _parent_folders(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _path_identity(path: str) -> str:
    """Return a form that is equal for paths that a case-insensitive or normalizing file system takes for one."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


def _name_problem(name: str, limits: ArchiveLimits) -> str:
    """Return what is wrong with a name; "" if nothing is."""
    if not name.isprintable():
        return "has a character that cannot be printed"
    if len(name.encode()) > limits.name_length:
        return f"has a name of more than {limits.name_length} bytes"
    if "\\" in name or ":" in name:
        return "has a '\\' or a ':' in its name"
    parts = name.split("/")
    if len(parts) > limits.depth:
        return f"lies more than {limits.depth} folders deep"
    for part in parts:
        if part in ("", ".", ".."):
            return "has a path that is absolute, leads upwards or has an empty part"
        if is_excluded(part):
            return "is hidden or compiled, which no package holds"
        if part[-1] in " ." or part.partition(".")[0].strip().casefold() in _RESERVED_NAMES:
            return "has a name that some systems cannot have"
    return ""


def check_entries_belong(title: str, names: Iterable[str], manifest: Manifest) -> None:
    """Reject entries that belong to no module of the manifest."""
    tops = manifest.top_level_names
    known = {MANIFEST_FILE, SIGNATURE_FILE, *(f"{top}.py" for top in tops)}
    for name in names:
        folder, slash, _ = name.partition("/")
        if name not in known and not (slash and folder in tops):
            raise invalid_package_error(
                title, f"entry {name!r} belongs to no module that {MANIFEST_FILE} names ({', '.join(tops)})", name
            )


def check_modules_present(title: str, names: Iterable[str], manifest: Manifest) -> None:
    """Reject a package in which a module of the manifest is missing, or present as both file and folder."""
    present = set(names)
    for module in manifest.modules:
        parts = module.split(".")
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            forms = [form for form in (f"{path}.py", f"{path}/__init__.py") if form in present]
            if not forms:
                raise invalid_package_error(
                    title, f"{MANIFEST_FILE} names module '{module}', and there is no {path}.py or {path}/__init__.py"
                )
            if len(forms) == 2 or (depth < len(parts) and forms == [f"{path}.py"]):
                raise invalid_package_error(title, f"{forms[0]!r} is in the way of module '{module}'", forms[0])


_LOCAL_HEADER = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL_HEADER = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END_RECORD = struct.Struct("<4sHHHHIIH")
_LOCAL_SIGNATURE, _CENTRAL_SIGNATURE, _END_SIGNATURE = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"

_METHOD_STORED, _METHOD_DEFLATED = 0, 8
_FLAG_ENCRYPTED, _FLAG_UTF8 = 0x0001, 0x0800
_DOS_DIRECTORY_ATTRIBUTE = 0x10
_VERSION_NEEDED = 20
_MADE_BY = 3 << 8 | _VERSION_NEEDED  # 3 is Unix
_DOS_TIME, _DOS_DATE = 0, 0x21  # midnight of 1980-01-01, the earliest time of the zip format
_FILE_MODE = stat.S_IFREG | 0o644
_BUILD_HINT = "make it with `tidemill package build`"


class ZipEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file in an archive, as the archive describes it."""

    name: str
    start: int
    """The offset of its local header."""

    data_start: int
    end: int
    method: int
    crc: int
    size: int


# -- writing


def build_zip(files: Mapping[str, bytes]) -> bytes:
    """Return an archive of these files; the same files always give the same bytes."""
    body, directory = bytearray(), bytearray()
    for name, content in sorted(files.items(), key=lambda one: one[0].encode()):
        encoded = name.encode()
        flags = 0 if name.isascii() else _FLAG_UTF8
        crc, size = zlib.crc32(content), len(content)
        shared = (_VERSION_NEEDED, flags, _METHOD_STORED, _DOS_TIME, _DOS_DATE, crc, size, size, len(encoded), 0)
        directory += (
            _CENTRAL_HEADER.pack(_CENTRAL_SIGNATURE, _MADE_BY, *shared, 0, 0, 0, _FILE_MODE << 16, len(body)) + encoded
        )
        body += _LOCAL_HEADER.pack(_LOCAL_SIGNATURE, *shared) + encoded + content
    end = _END_RECORD.pack(_END_SIGNATURE, 0, 0, len(files), len(files), len(directory), len(body), 0)
    return bytes(body + directory + end)


# -- reading


def read_zip(raw: bytes, title: str, limits: ArchiveLimits) -> dict[str, bytes]:
    """Return the files of an archive by name; all headers are checked before the first file is expanded."""
    entries = read_entries(raw, title, limits)
    check_names(title, (one.name for one in entries), limits)
    _check_sizes(entries, title, limits)
    return {one.name: _read_content(raw, one, title) for one in entries}


def read_entries(raw: bytes, title: str, limits: ArchiveLimits) -> list[ZipEntry]:
    """Return the entries of an archive in order; raise RequestError if its structure is invalid."""
    if len(raw) > limits.archive_size:
        raise package_too_large_error(title, f"the archive has more than {limits.archive_size:,} bytes")
    if len(raw) < _END_RECORD.size or raw[-_END_RECORD.size : -_END_RECORD.size + 4] != _END_SIGNATURE:
        raise invalid_package_error(title, "it is not a zip file, is cut off, or something follows its end")
    _, disk, first_disk, here, count, size, start, comment = _END_RECORD.unpack_from(raw, len(raw) - _END_RECORD.size)
    if comment or disk or first_disk or here != count:
        raise invalid_package_error(title, f"it has a comment or is one of several parts; {_BUILD_HINT}")
    if count > limits.entry_count:
        raise package_too_large_error(title, f"it has {count:,} entries, and {limits.entry_count:,} are allowed")
    if start + size + _END_RECORD.size != len(raw):
        raise invalid_package_error(
            title, "its directory does not lie where it should: it is damaged, or too big for this format"
        )
    entries = list(_read_directory(raw, count, start, title))
    if (entries[-1].end if entries else 0) != start:
        raise invalid_package_error(title, "something lies between its entries and its directory")
    return entries


def _read_directory(raw: bytes, count: int, start: int, title: str) -> Iterator[ZipEntry]:
    stop, position, expected = len(raw) - _END_RECORD.size, start, 0
    for number in range(1, count + 1):
        if position + _CENTRAL_HEADER.size > stop:
            raise invalid_package_error(title, f"its directory ends before entry {number} of {count}")
        signature, made_by, *shared, comment, disk, internal, external, offset = _CENTRAL_HEADER.unpack_from(
            raw, position
        )
        position += _CENTRAL_HEADER.size
        name_length = shared[8]
        encoded = raw[position : min(position + name_length, stop)]
        position += name_length
        if signature != _CENTRAL_SIGNATURE or position > stop:
            raise invalid_package_error(title, f"its directory is damaged at entry {number} of {count}")
        name = _decode_name(encoded, shared[1], title)
        _check_plain_file(name, made_by, external, title)
        if comment or disk or shared[9] or internal not in (0, 1):
            raise invalid_package_error(title, f"entry {name!r} has a comment or extra fields; {_BUILD_HINT}", name)
        if offset != expected:
            raise invalid_package_error(title, f"entry {name!r} does not begin where the one before it ends", name)
        entry = _read_entry(raw, start, offset, shared, encoded, title)
        expected = entry.end
        yield entry
    if position != stop:
        raise invalid_package_error(title, "its directory has more than its entries")


def _decode_name(encoded: bytes, flags: int, title: str) -> str:
    try:
        return encoded.decode("utf-8" if flags & _FLAG_UTF8 else "ascii")
    except UnicodeDecodeError as error:
        raise invalid_package_error(title, f"entry {encoded[:300]!r} has a name that is not in UTF-8") from error


def _check_plain_file(name: str, made_by: int, external: int, title: str) -> None:
    """Reject everything but plain files: links, folders, devices and setuid files."""
    mode = external >> 16
    if external & _DOS_DIRECTORY_ATTRIBUTE or stat.S_ISDIR(mode) or name.endswith("/"):
        raise invalid_package_error(
            title, f"entry {name!r} is a folder, and only files are needed; {_BUILD_HINT}", name
        )
    if stat.S_ISLNK(mode):
        raise invalid_package_error(title, f"entry {name!r} is a symbolic link", name)
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG) or mode & 0o7000 or made_by >> 8 not in (0, 3):
        raise invalid_package_error(title, f"entry {name!r} is not a plain file", name)


def _read_entry(raw: bytes, stop: int, offset: int, shared: list[int], encoded: bytes, title: str) -> ZipEntry:
    """Return an entry; its local header must equal its directory record."""
    _, flags, method, _, _, crc, packed, size, length, _ = shared
    name = _decode_name(encoded, flags, title)
    data = offset + _LOCAL_HEADER.size + length
    if flags & _FLAG_ENCRYPTED:
        raise invalid_package_error(title, f"entry {name!r} is encrypted", name)
    if flags & ~_FLAG_UTF8 or method not in (_METHOD_STORED, _METHOD_DEFLATED):
        raise invalid_package_error(
            title, f"entry {name!r} is packed in a way that is not allowed; {_BUILD_HINT}", name
        )
    if data + packed > stop:
        raise invalid_package_error(title, f"entry {name!r} is cut off", name)
    if raw[offset:data] != _LOCAL_HEADER.pack(_LOCAL_SIGNATURE, *shared) + encoded:
        raise invalid_package_error(title, f"entry {name!r} is described in two ways that differ", name)
    if method == _METHOD_STORED and packed != size:
        raise invalid_package_error(title, f"entry {name!r} has a size that cannot be", name)
    return ZipEntry(name=name, start=offset, data_start=data, end=data + packed, method=method, crc=crc, size=size)


def _check_sizes(entries: list[ZipEntry], title: str, limits: ArchiveLimits) -> None:
    """Reject entries that declare more than the limits allow; the declared sizes are verified on expansion."""
    for one in entries:
        if one.size > limits.file_size:
            message = f"entry {one.name!r} has {one.size:,} bytes, and {limits.file_size:,} are allowed"
            raise package_too_large_error(title, message, one.name)
        if one.size > limits.ratio_exempt_size and one.size > limits.compression_ratio * (one.end - one.data_start):
            message = (
                f"entry {one.name!r} expands to more than {limits.compression_ratio} times its size in the archive"
            )
            raise package_too_large_error(title, message, one.name)
    if (total := sum(one.size for one in entries)) > limits.total_size:
        raise package_too_large_error(title, f"its files have {total:,} bytes, and {limits.total_size:,} are allowed")


def _read_content(raw: bytes, entry: ZipEntry, title: str) -> bytes:
    content = raw[entry.data_start : entry.end]
    if entry.method == _METHOD_DEFLATED:
        content = _inflate(content, entry, title)
    if zlib.crc32(content) != entry.crc:
        raise invalid_package_error(title, f"entry {entry.name!r} is damaged: its checksum is another", entry.name)
    return content


def _inflate(packed: bytes, entry: ZipEntry, title: str) -> bytes:
    """Expand an entry, and never to more than its declared size."""
    expander = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        content = expander.decompress(packed, entry.size + 1)
    except zlib.error as error:
        raise invalid_package_error(title, f"entry {entry.name!r} is damaged: {error}", entry.name) from error
    if len(content) != entry.size or not expander.eof or expander.unused_data:
        raise invalid_package_error(
            title, f"entry {entry.name!r} does not expand to the {entry.size:,} bytes that it says", entry.name
        )
    return content
