"""Numbered migrations: each database has a folder of `0001_what.sql` files, applied once and in order."""

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

import msgspec

from tidemill.kernel.errors import StoreError

_FILE_NAME = re.compile(r"^(\d{4})_(\w+)\.sql$")


class SchemaState(NamedTuple):
    """The schema version of a database, and the newest one that this code knows; 0 before the first migration."""

    found: int
    known: int


class Migration(msgspec.Struct, frozen=True, order=True):
    """One step of a schema. A file may hold several statements, each ending with a semicolon at the end of a line."""

    number: int
    name: str
    sql: str

    @property
    def statements(self) -> list[str]:
        """The statements, for drivers that run one at a time."""
        return [one.strip() for one in re.split(r";\s*$", self.sql, flags=re.MULTILINE) if one.strip()]


def load_migrations(package: str) -> list[Migration]:
    """Read the migrations of a package in order; ValueError unless they are numbered from 1 without a gap."""
    folder = files(package).joinpath("migrations")
    migrations = sorted(
        Migration(int(match[1]), match[2], file.read_text("utf-8"))
        for file in folder.iterdir()
        if (match := _FILE_NAME.match(file.name))
    )
    if [one.number for one in migrations] != list(range(1, len(migrations) + 1)):
        raise ValueError(f"migrations of {package} are not numbered from 1 without a gap")
    return migrations


def pending_migrations(migrations: Sequence[Migration], found: int, title: str) -> list[Migration]:
    """Return the migrations that are still to be applied; StoreError if the schema is newer than this code."""
    check_schema_not_newer(SchemaState(found, len(migrations)), title)
    return [one for one in migrations if one.number > found]


def check_schema_current(state: SchemaState, title: str) -> None:
    """Raise StoreError unless the schema has exactly the version that this code reads."""
    check_schema_not_newer(state, title)
    if state.found < state.known:
        raise StoreError(
            f"{title}: its schema has version {state.found}, and this Tidemill needs version {state.known}; "
            "run `tidemill db upgrade`"
        )


def check_schema_not_newer(state: SchemaState, title: str) -> None:
    """Raise StoreError if the schema is newer than this code."""
    if state.found > state.known:
        raise StoreError(
            f"{title}: its schema has version {state.found}, and this Tidemill knows versions up to {state.known}; "
            "run the newer Tidemill that made it, or another database"
        )
