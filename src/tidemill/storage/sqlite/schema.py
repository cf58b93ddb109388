"""The schema of a database file: how far it is, and how it is brought up to date."""

import sqlite3

from tidemill.kernel.errors import StoreError
from tidemill.storage.migrations import known_migrations, pending
from tidemill.storage.sqlite.transactions import transaction

MIGRATIONS = known_migrations(__package__)
APPLICATION = 0x7469646D  # "tidm", in the file's header: whose database it is


def version_of(connection: sqlite3.Connection) -> int:
    """Return how many migrations a file has seen.

    The number stands in the file's header: it can be read before there is any table, and changes in the transaction
    that changes the schema.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def check_ours(connection: sqlite3.Connection, title: str) -> None:
    """Refuse a file that holds tables of somebody else: ours must not come among them, nor be taken for them."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    # After the tables, which come with it in one commit: another process may make both just now.
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if tables and application != APPLICATION:
        raise StoreError(f"{title}: the file holds tables of another application; name another file")


def bring_up_to_date(connection: sqlite3.Connection, title: str) -> None:
    """Apply what is missing; of several processes that come at once, one does and the others find it done."""
    if not pending(MIGRATIONS, version_of(connection), title):
        return
    with transaction(connection, "IMMEDIATE"):
        for migration in pending(MIGRATIONS, version_of(connection), title):
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {migration.number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
