"""Lists of runs are read in the order of an index, and counted from an index alone, however many runs there are."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tidemill.storage.migrations import load_migrations
from tidemill.storage.run_lists import RunQuery
from tidemill.storage.sqlite.run_lists import build_statements


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    """An empty database with the schema."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in load_migrations("tidemill.storage.sqlite"):
            for statement in migration.statements:
                connection.execute(statement)
        yield connection


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"cause": "schedule"},
        {"key": "nightly"},
        {"workflows": ["a"]},
        {"workflows": ["a"], "cause": "schedule"},
        {"workflows": ["a", "b"]},
        {"workflows": ["a", "b"], "cause": "schedule", "key": "nightly"},
    ],
)
def test_a_list_is_read_in_order_and_counted_from_an_index(
    connection: sqlite3.Connection, wanted: dict[str, Any]
) -> None:
    """I24: filters by tag (its workflows), cause and key too."""
    page, total, values = build_statements(RunQuery(tenant="public", **wanted))
    first, *others = _plan(connection, page, values)
    assert first.startswith("SEARCH runs USING INDEX runs_by_")
    assert "(created_at,id)<(?,?)" in first
    assert not any("TEMP B-TREE" in line for line in others)
    assert _plan(connection, total, values)[0].startswith("SEARCH runs USING COVERING INDEX runs_by_")


def _plan(connection: sqlite3.Connection, statement: str, values: dict[str, Any]) -> list[str]:
    return [line for *_, line in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
