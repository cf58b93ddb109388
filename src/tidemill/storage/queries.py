"""SQL with names: each database keeps its statements in files beside its code, under `-- name: ...` lines."""

import re
from datetime import datetime
from importlib.resources import files

from tidemill.storage.graph_ports import JournalEntry, JournalKey, PartKey, PartKind, SnapshotPart

_STATEMENT_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Queries:
    """The statements of one database, by name: `queries.save_part`."""

    def __init__(self, *texts: str) -> None:
        pieces = [piece for text in texts for piece in _STATEMENT_NAME.split(text)[1:]]
        names, bodies = pieces[::2], pieces[1::2]
        if len(set(names)) < len(names):
            raise ValueError(f"two statements have the same name: {sorted(names)}")
        # As attributes of its own: they are read several times for every write.
        self.__dict__.update({name: body.strip().rstrip(";") for name, body in zip(names, bodies, strict=True)})

    @classmethod
    def from_package(cls, package: str) -> "Queries":
        """Read the `*.sql` files of a package, but not its migrations."""
        found = {file.name: file for file in files(package).iterdir() if file.name.endswith(".sql")}
        return cls(*(found[name].read_text("utf-8") for name in sorted(found)))

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"no statement named '{name}'")


def build_part(
    tenant: str,
    kind: PartKind,
    name: str,
    generation: int,
    moment: int,
    taken_at: datetime,
    digest: bytes,
    checksum: bytes,
    payload: bytes,
) -> SnapshotPart:
    """Return a part from its columns."""
    return SnapshotPart(
        key=PartKey(tenant, kind, name),
        generation=generation,
        moment=moment,
        taken_at=taken_at,
        digest=digest,
        checksum=checksum,
        payload=payload,
    )


def build_entry(tenant: str, accumulator: str, position: int, checksum: bytes, payload: bytes) -> JournalEntry:
    """Return a journal entry from its columns."""
    return JournalEntry(key=JournalKey(tenant, accumulator), position=position, checksum=checksum, payload=payload)


def check_timezone(time: datetime) -> None:
    """Raise ValueError for a naive time: it is no point in time, and each database would take it for another one."""
    if time.tzinfo is None:
        raise ValueError(f"a time without a zone cannot be stored: {time}")
