"""Backups: all rows of a store in one file, as of one moment, and back.

The file is a ZIP archive. `tables/NAME.tsv` has the rows of a table, one per line, in the text format of PostgreSQL's
COPY: fields between tabs, `\\N` for NULL, `\\\\x` and hexadecimal digits for bytes, a backslash before what has a
meaning.
`manifest.json` comes last, so a file that was cut short has none: the fields of `BackupManifest`.
"""

import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import IO, NamedTuple, Protocol
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import msgspec

from tidemill.kernel.errors import OperationError, RequestError, StoreError
from tidemill.kernel.version import VERSION
from tidemill.storage.store_size import StoreKind

FORMAT = 1
MANIFEST = "manifest.json"
CHUNK_SIZE = 1 << 18  # bytes of rows that are handed on at once
INITIAL_TABLES = frozenset({"instance", "leases", "tenants"})
"""The tables that have rows as soon as a store was used once; those with other rows make a store worth keeping."""

_COMPRESSION = 3  # higher levels take three times as long for 5 % less
_REPORTED_BYTES = 64 << 20  # of one table, until its progress is reported again

WriteChunk = Callable[[bytes], None]
Report = Callable[[str], None]


class StoredTable(NamedTuple):
    """A table of a database, and its columns in their order."""

    name: str
    columns: tuple[str, ...]


class SavedTable(msgspec.Struct, frozen=True):
    """A table of a backup."""

    name: str
    columns: list[str]
    rows: int
    checksum: str
    """The sum of the BLAKE2b digests of all rows, 64 bits each: it does not depend on their order."""


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a backup."""

    format: int = FORMAT
    database: StoreKind
    """The kind of the database that it was made from, and that it can be restored to."""
    schema_version: int
    product_version: str = VERSION
    taken_at: datetime
    sequences: dict[str, int] = {}
    """The last numbers that counters of the database have given out."""
    tables: list[SavedTable]

    @property
    def rows(self) -> int:
        """The rows of all tables."""
        return sum(one.rows for one in self.tables)


class Snapshot(Protocol):
    """The rows of a store as of one moment."""

    kind: StoreKind
    title: str
    schema_version: int
    tables: Sequence[StoredTable]
    sequences: Mapping[str, int]

    async def read_rows(self, table: StoredTable, write: WriteChunk) -> None:
        """Hand on all rows of a table, in whole lines."""


class Replacement(Snapshot, Protocol):
    """An empty store with the schema of a backup. It takes the place of the old one when it is left without an error.

    Then its schema is up to date, whatever version the backup had.
    """

    async def write_rows(self, table: StoredTable, chunks: AsyncIterator[bytes]) -> None:
        """Store the rows of a table; `chunks` need not end where lines end."""

    async def set_sequences(self, sequences: Mapping[str, int]) -> None:
        """Continue the counters after these numbers."""


class RowCounter:
    """Counts rows, and sums their digests."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0
        self._rest = b""

    def add(self, chunk: bytes) -> None:
        """Count the rows of a chunk of lines."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._sum += int.from_bytes(blake2b(line, digest_size=8).digest())
        self.rows += len(lines)

    def result(self, table: StoredTable) -> SavedTable:
        """Return what was counted."""
        return SavedTable(table.name, list(table.columns), self.rows, f"{self._sum % (1 << 64):016x}")


def format_rows(number: int) -> str:
    """Return a number of rows in words."""
    return "1 row" if number == 1 else f"{number:,} rows"


class _Progress:
    """Reports the rows of one table: at its end, and now and then if it is large."""

    def __init__(self, table: str, report: Report) -> None:
        self._table, self._report = table, report
        self._bytes, self._next = 0, _REPORTED_BYTES

    def add(self, size: int, rows: int) -> None:
        self._bytes += size
        if self._bytes >= self._next:
            self._next += _REPORTED_BYTES
            self._report(f"{self._table}: {rows:,} rows so far")

    def end(self, rows: int) -> None:
        if rows:
            self._report(f"{self._table}: {format_rows(rows)}")


# -- from a store to a file


async def write_backup(snapshot: Snapshot, path: Path, taken_at: datetime, report: Report) -> BackupManifest:
    """Write a snapshot to a new file, which is there when it is whole; only its owner can read it."""
    with _new_file(path) as file, ZipFile(file, "w", ZIP_DEFLATED, compresslevel=_COMPRESSION) as archive:
        tables = [await _save_table(snapshot, table, archive, report) for table in snapshot.tables]
        manifest = BackupManifest(
            database=snapshot.kind,
            schema_version=snapshot.schema_version,
            taken_at=taken_at,
            sequences=dict(snapshot.sequences),
            tables=tables,
        )
        archive.writestr(MANIFEST, json.dumps(msgspec.to_builtins(manifest), indent=2))
    return manifest


async def _save_table(snapshot: Snapshot, table: StoredTable, archive: ZipFile, report: Report) -> SavedTable:
    counter, progress = RowCounter(), _Progress(table.name, report)
    with archive.open(_entry(table.name), "w", force_zip64=True) as entry:

        def write(chunk: bytes) -> None:
            entry.write(chunk)
            counter.add(chunk)
            progress.add(len(chunk), counter.rows)

        await snapshot.read_rows(table, write)
    progress.end(counter.rows)
    return counter.result(table)


@contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file under another name, and give it its name when all of it is on the disk."""
    if path.exists():
        message = f"there is already a file {path}: name another one, or move it away"
        raise RequestError(message, code="file_exists", status=409)
    part = path.with_name(f"{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:
        raise OperationError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _entry(table: str) -> str:
    return f"tables/{table}.tsv"


# -- from a file to a store


class BackupFile:
    """A backup that was opened to be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._archive = ZipFile(path)
            self.manifest = msgspec.json.decode(self._archive.read(MANIFEST), type=BackupManifest)
        except FileNotFoundError as error:
            raise RequestError(f"there is no file {path}", code="no_file", status=404) from error
        except OSError as error:
            raise OperationError(f"{path} cannot be read: {error.strerror or error}") from error
        except (BadZipFile, KeyError, msgspec.ValidationError, msgspec.DecodeError) as error:
            message = f"{path} is not a whole backup of Tidemill ({error}): name a file of `tidemill db backup`"
            raise RequestError(message, code="no_backup", status=400) from error
        if self.manifest.format > FORMAT:
            message = (
                f"{path} has format {self.manifest.format}, and this Tidemill knows {FORMAT}: use a newer Tidemill"
            )
            raise RequestError(message, code="newer_backup", status=409)

    def check_fits(self, kind: StoreKind, known: int) -> None:
        """Raise a RequestError if the file is of another kind of database, or of a newer schema."""
        found = self.manifest
        if found.database != kind:
            message = f"{self.path} is a backup of a {found.database} store, and cannot be restored to a {kind} store"
            raise RequestError(message, code="other_database", status=409)
        if found.schema_version > known:
            message = (
                f"{self.path} has schema version {found.schema_version}, and this Tidemill knows versions up to "
                f"{known}: restore it with Tidemill {found.product_version} or newer"
            )
            raise RequestError(message, code="newer_backup", status=409)

    async def read_rows(self, table: str) -> AsyncIterator[bytes]:
        """Return the rows of a table in chunks; StoreError if the file is damaged."""
        try:
            with self._archive.open(_entry(table)) as entry:
                while chunk := entry.read(CHUNK_SIZE):
                    yield chunk
        except (BadZipFile, KeyError, OSError, EOFError) as error:
            raise StoreError(f"{self.path} is damaged at table {table} ({error}): use another backup") from error


async def restore_backup(file: BackupFile, target: Replacement, report: Report) -> None:
    """Store all rows of a backup, and compare what the database then holds with the manifest."""
    stored = {one.name: one for one in target.tables}
    saved = {one.name: one for one in file.manifest.tables}
    if _shape(stored.values()) != _shape(saved.values()):
        differing = sorted(set(_shape(stored.values())) ^ set(_shape(saved.values())))
        raise StoreError(
            f"{file.path} has other tables than schema version {file.manifest.schema_version} of this Tidemill "
            f"({differing[0][0]}): restore it with Tidemill {file.manifest.product_version}"
        )
    for name, table in stored.items():
        progress = _Progress(name, report)
        await target.write_rows(table, file.read_rows(name))
        counter = RowCounter()
        await target.read_rows(table, counter.add)
        if counter.result(table) != saved[name]:
            raise StoreError(
                f"{target.title} has not stored table {name} as {file.path} has it: {counter.rows:,} of "
                f"{saved[name].rows:,} rows, or other values; nothing was restored"
            )
        progress.end(counter.rows)
    await target.set_sequences(file.manifest.sequences)


def _shape(tables: "Iterable[StoredTable | SavedTable]") -> list[tuple[str, ...]]:
    return sorted((one.name, *one.columns) for one in tables)
