"""Lists of runs in SQLite: the statements that read a page and count the whole list.

Each names only the columns that it needs, so that the index `runs_by_tenant` is enough to find and count the runs.
"""

import json
from typing import Any, NamedTuple

from tidemill.kernel.limits import LISTED_VALUE_LIMIT
from tidemill.storage.run_lists import EARLIEST, LATEST, RunQuery, like_pattern
from tidemill.storage.sqlite.run_rows import RUN_COLUMNS, to_micros
from tidemill.storage.state_sets import STATE_FRAGMENTS, as_sql
from tidemill.storage.unresolved import unresolved_condition

_IS_LARGE = f"length(params) > {LISTED_VALUE_LIMIT}"
_LISTED_COLUMNS = [
    *(f"CASE WHEN {_IS_LARGE} THEN x'' ELSE params END" if name == "params" else name for name in RUN_COLUMNS),
    f"CASE WHEN {_IS_LARGE} THEN length(params) END",
]
"""Those of a run, and the bytes of its params if they are too large for a list: these are not read."""
_HAS_TEXT = """(
    id LIKE :pattern ESCAPE '\\' OR workflow LIKE :pattern ESCAPE '\\' OR instr(params, :text)
    OR id IN (SELECT run FROM notes WHERE task IS NULL AND text LIKE :pattern ESCAPE '\\')
)"""


class ListStatements(NamedTuple):
    """The statements of one list, and the values of both."""

    page: str
    total: str
    values: dict[str, Any]


def build_statements(query: RunQuery) -> ListStatements:
    """Return the statements for a query."""
    table, conditions = _choose_index(query)
    if query.workflows is not None:
        is_one = len(query.workflows) == 1  # it has an index in the order of the list
        conditions.append("workflow = :workflow" if is_one else "workflow IN (SELECT value FROM json_each(:workflows))")
    if query.states:
        conditions.append(f"state IN {as_sql(query.states)}")  # as text: a table of them takes twice as long
    if query.since > EARLIEST:
        conditions.append("created_at >= :since")
    if query.until < LATEST:
        conditions.append("created_at <= :until")
    if query.cause:
        conditions.append("(origin = :cause OR cause = :cause)")
    if query.key:
        conditions.append("(about = :key OR backfill = :key)")
    if query.text:
        conditions.append(_HAS_TEXT)
    selection = " AND ".join(conditions)
    page = (
        f"SELECT {', '.join(_LISTED_COLUMNS)} FROM {table} WHERE {selection} AND (created_at, id) < (:end_at, :end_id) "
        "ORDER BY created_at DESC, id DESC LIMIT :limit"
    )
    values = {
        "tenant": query.tenant,
        "workflow": next(iter(query.workflows or ()), None),
        "workflows": json.dumps(list(query.workflows or ())),
        "since": to_micros(query.since),
        "until": to_micros(query.until),
        "cause": query.cause,
        "key": query.key,
        "started_by": query.started_by,
        "text": query.text.encode(),
        "pattern": like_pattern(query.text),
        "end_at": to_micros(query.end.created_at),
        "end_id": query.end.id,
        "limit": query.limit,
    }
    return ListStatements(page, f"SELECT count(*) FROM {table} WHERE {selection}", values)


def _choose_index(query: RunQuery) -> tuple[str, list[str]]:
    """Return the table with the index to read, and the conditions that the index needs."""
    conditions = ["tenant = :tenant"]
    if query.is_unresolved:
        return "runs INDEXED BY runs_unresolved", [*conditions, unresolved_condition("runs")]
    if query.started_by:
        conditions.append("origin IN ('firing', 'task', 'handler') AND caused_by = :started_by")
        return "runs INDEXED BY runs_by_cause", conditions
    if query.is_active_only:  # these are few, and have an index of their own
        return "runs INDEXED BY runs_active", [*conditions, f"state IN {STATE_FRAGMENTS['active_runs']}"]
    return "runs", conditions
