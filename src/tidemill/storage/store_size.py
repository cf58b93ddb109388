"""The size of a store: its bytes, and the rows of the tables that grow."""

from typing import Final, Literal, NamedTuple

StoreKind = Literal["memory", "sqlite", "postgresql"]

COUNTED_TABLES: Final = {
    "runs": "runs",
    "task runs": "task_runs",
    "attempts": "attempts",
    "run events": "run_events",
    "log chunks": "logs",
    "steps": "steps",
    "waits": "waits",
    "fires": "fires",
    "journal blocks": "journal",
    "key snapshots": "key_snapshots",
    "dead letters": "dead_letters",
    "recoveries": "recoveries",
    "workflow versions": "workflow_versions",
    "package archives": "package_archives",
    "audit entries": "audit_entries",
}
"""The tables that grow, by what their rows are."""
ESTIMATE_LIMIT = 100_000
"""Tables with more rows are estimated, where the database does that."""
COUNT_LIMIT = 1_000_000
"""Rows are counted up to this number: a page that shows it should not wait for more."""


class RowCount(NamedTuple):
    """The number of rows of a table."""

    number: int
    is_exact: bool
    """Whether it is neither an estimate nor only the part that was counted."""


class StoreSize(NamedTuple):
    """The size of a store."""

    size: int | None
    """In bytes; None for a store in memory."""
    rows: dict[str, RowCount]
    """By what the rows are."""


def counted(number: int) -> RowCount:
    """Return the result of a count that ends at the limit."""
    return RowCount(number, number < COUNT_LIMIT)
