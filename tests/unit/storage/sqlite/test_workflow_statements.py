"""Statements about workflows cost what changes, not what has been: each of them is led by an index."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files

import pytest

from tidemill.storage.migrations import load_migrations
from tidemill.storage.sqlite.ports import QUERIES

PACKAGE = "tidemill.storage.sqlite"
NAMES = re.findall(r"^-- name: (\w+)$", files(PACKAGE).joinpath("workflows.sql").read_text("utf-8"), re.MULTILINE)
SMALL = {"all_owners", "loaded_versions", "paused_triggers", "paused_workflows", "pool_sizes"}  # tables read whole
PARTIAL = {"runs_active", "task_runs_scheduled", "task_runs_claimed"}  # these hold what is active, and nothing else


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    """An empty database with the schema."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in load_migrations(PACKAGE):
            for statement in migration.statements:
                connection.execute(statement)
        yield connection


def plan_of(connection: sqlite3.Connection, statement: str) -> list[str]:
    """Return how SQLite goes about a statement."""
    names = set(re.findall(r":(\w+)", statement))
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    values = dict.fromkeys(names) if names else (None,) * max([*numbered, statement.count("?") if not numbered else 0])
    return [line for *_, line in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SMALL])
def test_nothing_is_scanned_but_what_is_active(connection: sqlite3.Connection, name: str) -> None:
    for line in plan_of(connection, getattr(QUERIES, name)):
        scanned = re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", line)
        if scanned and scanned[1] not in ("asked", "json_each", "CONSTANT", "found"):
            assert scanned[2] in PARTIAL, line


def test_a_look_at_active_runs_touches_no_other_row(connection: sqlite3.Connection) -> None:
    """However the runs are scattered among those that have ended."""
    assert plan_of(connection, QUERIES.active_runs) == ["SCAN runs USING INDEX runs_active"]


def test_work_is_given_away_in_the_order_of_an_index(connection: sqlite3.Connection) -> None:
    """A query for one task run reads as many rows as it takes to find it, and sorts none."""
    plan = plan_of(connection, QUERIES.claimable)
    assert plan[0] == "SCAN task_runs USING INDEX task_runs_scheduled"
    assert not any("TEMP B-TREE" in line for line in plan)


def test_a_payload_is_looked_for_among_active_runs(connection: sqlite3.Connection) -> None:
    """However often it was fired before."""
    assert plan_of(connection, QUERIES.is_digest_active)[-2:] == [
        "SCAN runs USING COVERING INDEX runs_active",
        "SEARCH fires USING INDEX fires_by_run (run=?)",
    ]


def test_fires_are_deleted_by_their_run(connection: sqlite3.Connection) -> None:
    (line,) = plan_of(connection, QUERIES.delete_fires)
    assert line == "SEARCH fires USING INDEX fires_by_run (run=?)"


def test_a_scan_would_be_seen(connection: sqlite3.Connection) -> None:
    """The check above is one that can fail."""
    assert plan_of(connection, "SELECT * FROM runs WHERE reason = ?") == ["SCAN runs"]
