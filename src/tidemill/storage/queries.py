"""Named SQL statements: each database keeps them in files next to its code, under `-- name: ...` lines.

A statement may contain fragments, `{active_runs}`: lists of states or columns that are written down once, in Python.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from types import MappingProxyType

from tidemill.storage.graph_ports import JournalBlock, JournalKey, PartKey, PartKind, SnapshotPart

_STATEMENT_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{(\w+)\}")


class Queries:
    """The statements of one database, by name: `queries.save_part`."""

    def __init__(self, *texts: str, fragments: Mapping[str, str] = MappingProxyType({})) -> None:
        pieces = [piece for text in texts for piece in _STATEMENT_NAME.split(text)[1:]]
        names, bodies = pieces[::2], pieces[1::2]
        if len(set(names)) < len(names):
            raise ValueError(f"two statements have the same name: {sorted(names)}")
        statements = zip(names, bodies, strict=True)
        # As attributes of the instance: they are read several times for every write.
        self.__dict__.update({name: _expand(name, body, fragments).strip().rstrip(";") for name, body in statements})

    @classmethod
    def from_package(cls, package: str, fragments: Mapping[str, str] = MappingProxyType({})) -> "Queries":
        """Read the `*.sql` files of a package, except its migrations."""
        sources = {file.name: file for file in files(package).iterdir() if file.name.endswith(".sql")}
        return cls(*(sources[name].read_text("utf-8") for name in sorted(sources)), fragments=fragments)

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"no statement named '{name}'")


def _expand(name: str, statement: str, fragments: Mapping[str, str]) -> str:
    """Replace the fragments of a statement; ValueError if it names an unknown one."""
    unknown = set(_FRAGMENT.findall(statement)) - set(fragments)
    if unknown:
        raise ValueError(f"statement '{name}' names unknown fragments: {sorted(unknown)}")
    return _FRAGMENT.sub(lambda match: fragments[match[1]], statement)


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
    """Build a snapshot part from its columns."""
    return SnapshotPart(
        key=PartKey(tenant, kind, name),
        generation=generation,
        moment=moment,
        taken_at=taken_at,
        digest=digest,
        checksum=checksum,
        payload=payload,
    )


def build_block(
    tenant: str, accumulator: str, position: int, layout: bytes, checksum: bytes, payload: bytes
) -> JournalBlock:
    """Build a journal block from its columns."""
    key = JournalKey(tenant, accumulator)
    return JournalBlock(key=key, position=position, layout=layout, checksum=checksum, payload=payload)


def check_timezone(time: datetime) -> None:
    """Raise ValueError for a naive time: each database would read it as another point in time."""
    if time.tzinfo is None:
        raise ValueError(f"a time without a zone cannot be stored: {time}")
