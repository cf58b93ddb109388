"""SQL with names, and the migrations beside it."""

import importlib

import pytest

from tidemill.kernel.errors import StoreError
from tidemill.storage.migrations import (
    Migration,
    SchemaState,
    check_schema_not_newer,
    load_migrations,
    pending_migrations,
)
from tidemill.storage.queries import Queries

TEXT = """
-- What this file is for.

-- name: one
SELECT 1;

-- name: two
-- Why there are two.
SELECT 2
FROM somewhere;
"""


def test_statements_are_found_by_their_names() -> None:
    queries = Queries(TEXT)
    assert queries.one == "SELECT 1"
    assert queries.two == "-- Why there are two.\nSELECT 2\nFROM somewhere"


def test_a_name_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no statement named 'three'"):
        _ = Queries(TEXT).three


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="same name"):
        Queries("-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;\n")


def test_fragments_are_replaced_when_statements_are_loaded() -> None:
    queries = Queries("-- name: one\nSELECT {columns} FROM somewhere;\n", fragments={"columns": "a, b"})
    assert queries.one == "SELECT a, b FROM somewhere"


def test_an_unknown_fragment_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"statement 'one' names unknown fragments: \['columns'\]"):
        Queries("-- name: one\nSELECT {columns};\n")


@pytest.mark.parametrize(
    ("package", "module"), [("tidemill.storage.sqlite", "ports"), ("tidemill.storage.postgres", "store")]
)
def test_each_database_has_its_statements_and_migrations(package: str, module: str) -> None:
    """They are part of the package, and so of every wheel."""
    queries: Queries = importlib.import_module(f"{package}.{module}").QUERIES
    assert queries.high_water_marks
    migrations = load_migrations(package)
    assert [one.number for one in migrations] == list(range(1, len(migrations) + 1))
    assert all(one.statements for one in migrations)


def test_a_migration_is_taken_apart_into_statements() -> None:
    migration = Migration(1, "one", "CREATE TABLE a (\n    b TEXT -- c; d\n);\n\nCREATE INDEX e ON a (b);\n")
    assert migration.statements == ["CREATE TABLE a (\n    b TEXT -- c; d\n)", "CREATE INDEX e ON a (b)"]


def test_only_what_is_missing_is_pending() -> None:
    migrations = [Migration(number, str(number), "") for number in (1, 2, 3)]
    assert [one.number for one in pending_migrations(migrations, 1, "it")] == [2, 3]
    assert pending_migrations(migrations, 3, "it") == []
    with pytest.raises(StoreError, match="it: its schema has version 4, and this Tidemill knows versions up to 3"):
        pending_migrations(migrations, 4, "it")


def test_a_schema_that_is_known_passes() -> None:
    check_schema_not_newer(SchemaState(3, 3), "it")
