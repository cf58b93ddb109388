"""Statements, migrations and rows of one database agree: on states, on columns, and on the names of statements."""

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, NamedTuple

import pytest

from tidemill.storage.migrations import load_migrations
from tidemill.storage.postgres import run_rows as postgres_rows
from tidemill.storage.postgres.store import QUERIES as POSTGRES_QUERIES
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite import run_rows as sqlite_rows
from tidemill.storage.sqlite.ports import QUERIES as SQLITE_QUERIES
from tidemill.storage.state_sets import ACTIVE_RUNS, ACTIVE_TASKS, CLAIMED_TASKS, ENDED_RUNS, as_sql
from tidemill.storage.unresolved import UNDISMISSED
from tidemill.workflows.records import MUTABLE_RUN_FIELDS, AttemptKey, AttemptRow, RunRow, TaskKey, TaskRow
from tidemill.workflows.states import RunState, TaskState

RUN_SETS = {as_sql(ACTIVE_RUNS), as_sql(ENDED_RUNS)}
TASK_SETS = {as_sql(CLAIMED_TASKS), as_sql(ACTIVE_TASKS)}
STATE_LIST = re.compile(r"\bstate IN (\('[^)]*\))")
STATE_LITERAL = re.compile(r"\bstate = '(\w+)'")


class Dialect(NamedTuple):
    """One database as this test sees it."""

    package: str
    queries: Queries
    prefix: str


DIALECTS = [
    Dialect("tidemill.storage.sqlite", SQLITE_QUERIES, ""),
    Dialect("tidemill.storage.postgres", POSTGRES_QUERIES, "tidemill."),
]
LITERAL_STATES = {
    "runs_unresolved": RunState.FAILED,
    "runs_succeeded": RunState.SUCCESS,
    "task_runs_deferred": TaskState.DEFERRED,
}
"""Indexes of one state, but for that of queued runs and of scheduled tasks."""
every_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=["sqlite", "postgres"])


def statements(dialect: Dialect) -> dict[str, str]:
    """Return the loaded statements by name, without comments."""
    return {name: re.sub(r"--[^\n]*", "", text) for name, text in vars(dialect.queries).items()}


def migration_statements(dialect: Dialect) -> list[str]:
    """Return the statements of all migrations."""
    return [statement for migration in load_migrations(dialect.package) for statement in migration.statements]


def columns_of(dialect: Dialect, table: str) -> dict[str, str]:
    """Return the columns of a migrated table with their types, as CREATE TABLE and ALTER TABLE list them."""
    columns: dict[str, str] = {}
    for statement in migration_statements(dialect):
        text = re.sub(r"--[^\n]*", "", statement)
        if match := re.search(rf"CREATE TABLE {re.escape(dialect.prefix)}{table} \((.*)\)", text, re.DOTALL):
            columns |= dict(re.findall(r"^    ([a-z_]+) ([a-zA-Z]+)", match[1], re.MULTILINE))
        if match := re.search(rf"ALTER TABLE {re.escape(dialect.prefix)}{table} ADD COLUMN (\w+) (\w+)", text):
            columns[match[1]] = match[2]
    return columns


# -- states


@every_dialect
def test_every_list_of_states_is_one_of_the_sets(dialect: Dialect) -> None:
    """An index serves a query only if both name the same states, in the same words."""
    found = [found for text in statements(dialect).values() for found in STATE_LIST.findall(text)]
    assert set(found) <= RUN_SETS | TASK_SETS
    assert len(found) >= 10


@every_dialect
def test_every_partial_index_names_the_states_of_its_set(dialect: Dialect) -> None:
    indexes = {
        match[1]: statement
        for statement in migration_statements(dialect)
        if (match := re.search(r"CREATE (?:UNIQUE )?INDEX (\w+)", statement)) and "state" in statement
    }
    assert {"runs_active", "task_runs_claimed", "task_runs_in_pools"} < set(indexes)
    for name, text in indexes.items():
        expected = RUN_SETS if name.startswith("runs") else TASK_SETS
        assert set(STATE_LIST.findall(text)) <= expected, name
        literals = set(STATE_LITERAL.findall(text))
        assert literals <= {LITERAL_STATES.get(name, RunState.QUEUED if "runs_" in name[:5] else TaskState.SCHEDULED)}
    assert UNDISMISSED in " ".join(indexes["runs_unresolved"].split())


@every_dialect
def test_every_state_of_a_statement_is_a_state(dialect: Dialect) -> None:
    known = {str(state) for state in (*RunState, *TaskState)}
    assert {state for text in statements(dialect).values() for state in STATE_LITERAL.findall(text)} <= known


@pytest.mark.parametrize("package", [dialect.package for dialect in DIALECTS])
def test_no_statement_spells_a_state_itself(package: str) -> None:
    """It names a fragment instead, so that a new state is written down in one place."""
    texts = {file.name: file.read_text("utf-8") for file in files(package).iterdir() if file.name.endswith(".sql")}
    spelled = rf"'({'|'.join(str(state) for state in (*RunState, *TaskState))})'"
    assert {name: re.findall(spelled, text) for name, text in texts.items()} == {name: [] for name in texts}


# -- columns


def test_the_columns_of_sqlite_are_those_of_its_schema() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in migration_statements(DIALECTS[0]):
            connection.execute(statement)
        schema = {
            table: {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
            for table in ("runs", "task_runs", "attempts")
        }
    assert set(sqlite_rows.RUN_COLUMNS) == schema["runs"]
    assert (*sqlite_rows.NEW_RUN_COLUMNS, "revision", "clears", "sequence") == sqlite_rows.RUN_COLUMNS
    assert {"tenant", *sqlite_rows.TASK_COLUMNS} == schema["task_runs"]
    assert {*sqlite_rows.ATTEMPT_COLUMNS, "value"} == schema["attempts"]


def test_the_columns_of_postgres_are_those_of_its_schema_with_their_types() -> None:
    dialect = DIALECTS[1]
    assert columns_of(dialect, "runs") == postgres_rows.RUN_COLUMNS
    assert columns_of(dialect, "task_runs") == postgres_rows.TASK_COLUMNS
    assert columns_of(dialect, "attempts") == postgres_rows.ATTEMPT_COLUMNS


def test_the_columns_of_postgres_are_the_fields_of_the_rows() -> None:
    assert tuple(postgres_rows.RUN_COLUMNS) == RunRow.__struct_fields__
    task_fields = {"element" if name == "index" else name for name in TaskRow.__struct_fields__}
    assert set(postgres_rows.TASK_COLUMNS) == task_fields | {"run", "tenant"}
    assert set(postgres_rows.ATTEMPT_COLUMNS) == {*AttemptKey._fields, *AttemptRow.__struct_fields__} - {"key"}


def test_the_fields_that_a_change_may_replace_are_fields_of_a_run() -> None:
    assert set(MUTABLE_RUN_FIELDS) < set(RunRow.__struct_fields__)


def at(minute: int) -> datetime:
    """Return a time that no other field of a sample has."""
    return datetime(2026, 1, 1, 12, minute, tzinfo=UTC)


RUN = RunRow(
    id="r1",
    tenant="public",
    workflow="flow",
    version="v1",
    state=RunState.RUNNING,
    params=b"params",
    origin="manual",
    created_at=at(1),
    slot=at(2),
    started_at=at(3),
    ended_at=at(4),
    reason="why",
    max_active=7,
    backfill="b1",
    revision=8,
    clears=9,
    sequence=10,
)
TASK = TaskRow(
    task="clean",
    index=3,
    state=TaskState.RUNNING,
    variant="left",
    size=5,
    wake_at=at(1),
    since=at(2),
    attempt=11,
    tries=12,
    failures=13,
    recoveries=14,
    deferrals=15,
    claimed_by="owner",
    claimed_at=at(3),
    lease_until=at(4),
    started_at=at(5),
    ended_at=at(6),
    reason="why",
    pool="gpu",
    priority=16,
    queue="fast",
    executor="in_process",
)
ATTEMPT = AttemptRow(
    key=AttemptKey("r1", "clean", 3, 11),
    number=12,
    executor="in_process",
    worker="owner",
    claimed_at=at(1),
    started_at=at(2),
    ended_at=at(3),
    outcome="failed",
    exit=4,
)


def test_sqlite_encodes_every_column_in_its_place() -> None:
    """A row in which no two fields are alike comes back as it was."""
    lease = sqlite_rows.to_micros(at(4))
    counters = (RUN.revision, RUN.clears, RUN.sequence)
    assert sqlite_rows.decode_run((*sqlite_rows.encode_new_run(RUN), *counters)) == RUN
    columns = ("r1", TASK.task, TASK.index, *sqlite_rows.encode_task(TASK, lease))
    assert len(columns) == len(sqlite_rows.TASK_COLUMNS)
    assert sqlite_rows.decode_keyed_task(columns) == (TaskKey("r1", "clean", 3), TASK)
    assert sqlite_rows.decode_attempt(sqlite_rows.encode_attempt(ATTEMPT)) == ATTEMPT
    assert len(sqlite_rows.encode_progress(TASK, lease)) == len(sqlite_rows.PROGRESS_COLUMNS)


def test_postgres_encodes_every_column_in_its_place() -> None:
    """A row in which no two fields are alike comes back as it was; only a lease is written in seconds."""

    def named(columns: dict[str, str], values: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(columns, values, strict=True))

    new_run = named(postgres_rows.NEW_RUN_COLUMNS, postgres_rows.encode_run(RUN))
    assert postgres_rows.decode_run(new_run | {"sequence": RUN.sequence}) == RUN
    values = postgres_rows.encode_task(TaskKey("r1", "clean", 3), "public", TASK, 30.0)
    row = named(postgres_rows.TASK_COLUMNS, values)
    assert (row["tenant"], row["lease_until"]) == ("public", 30.0)
    assert postgres_rows.decode_keyed_task(row | {"lease_until": at(4)}) == (TaskKey("r1", "clean", 3), TASK)
    attempt = named(postgres_rows.ATTEMPT_COLUMNS, postgres_rows.encode_attempt(ATTEMPT))
    assert postgres_rows.decode_attempt(attempt.values()) == ATTEMPT


# -- names


@every_dialect
def test_every_statement_is_used_and_every_used_statement_exists(dialect: Dialect) -> None:
    sources = [file.read_text("utf-8") for file in files(dialect.package).iterdir() if file.name.endswith(".py")]
    used = {name for text in sources for name in re.findall(r"\b_?(?:queries|QUERIES)\.([a-z]\w*)", text)}
    used -= {"from_package"}
    assert used == set(vars(dialect.queries))


def test_no_statement_of_sqlite_numbers_its_parameters() -> None:
    """Newer versions of Python reject `?2` with a sequence: a parameter is a plain `?`, or has a name."""
    statements: dict[str, str] = vars(SQLITE_QUERIES)
    assert statements
    assert [name for name, text in statements.items() if re.search(r"\?\d", text)] == []
