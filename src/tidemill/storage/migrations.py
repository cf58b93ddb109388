"""Numbered migrations: each database has a folder of `0001_what.sql` files, applied once and in order."""

import re
from collections.abc import Sequence
from importlib.resources import files

import msgspec

from tidemill.kernel.errors import StoreError
from tidemill.storage.graph_ports import SchemaState

_FILE_NAME = re.compile(r"^(\d{4})_(\w+)\.sql$")


class Migration(msgspec.Struct, frozen=True, order=True):
    """One step of a schema. A file may hold several statements, each ended by a semicolon at the end of a line."""

    number: int
    name: str
    sql: str

    @property
    def statements(self) -> list[str]:
        """The single statements, for drivers that take one at a time."""
        return [one.strip() for one in re.split(r";\s*$", self.sql, flags=re.MULTILINE) if one.strip()]


def load_migrations(package: str) -> list[Migration]:
    """Read a package's migrations in their order; they are numbered from 1 without a gap."""
    folder = files(package).joinpath("migrations")
    found = sorted(
        Migration(int(match[1]), match[2], file.read_text("utf-8"))
        for file in folder.iterdir()
        if (match := _FILE_NAME.match(file.name))
    )
    if [one.number for one in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations of {package} are not numbered from 1 without a gap")
    return found


def pending_migrations(migrations: Sequence[Migration], found: int, title: str) -> list[Migration]:
    """Return what is still to be applied; refuse a schema that is newer than this code."""
    check_schema_not_newer(SchemaState(found, len(migrations)), title)
    return [one for one in migrations if one.number > found]


def check_schema_current(state: SchemaState, title: str) -> None:
    """Refuse a schema that cannot be read as it is: a newer one, or one that is not up to date."""
    check_schema_not_newer(state, title)
    if state.found < state.known:
        raise StoreError(
            f"{title}: its schema has version {state.found}, and this Tidemill needs version {state.known}; "
            "run `tidemill db upgrade`"
        )


def check_schema_not_newer(state: SchemaState, title: str) -> None:
    """Refuse a schema that this code does not know."""
    if state.found > state.known:
        raise StoreError(
            f"{title}: its schema has version {state.found}, and this Tidemill knows versions up to {state.known}; "
            "run the newer Tidemill that made it, or another database"
        )
