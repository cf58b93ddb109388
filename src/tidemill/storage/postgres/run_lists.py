"""Lists of runs in PostgreSQL: the statements that read a page and count the whole list.

Each names only the columns that it needs, so that the index `runs_by_tenant` is enough to find and count the runs.
"""

from typing import Any

from tidemill.kernel.limits import LISTED_VALUE_LIMIT
from tidemill.storage.postgres.run_rows import RUN_COLUMNS
from tidemill.storage.run_lists import EARLIEST, LATEST, RunQuery, like_pattern
from tidemill.storage.state_sets import STATE_FRAGMENTS
from tidemill.storage.unresolved import unresolved_condition

_IS_LARGE = f"octet_length(params) > {LISTED_VALUE_LIMIT}"
_LISTED_COLUMNS = ", ".join(
    [
        *(name for name in RUN_COLUMNS if name != "params"),
        f"CASE WHEN {_IS_LARGE} THEN ''::bytea ELSE params END AS params",
        f"CASE WHEN {_IS_LARGE} THEN octet_length(params) END AS large_params",
    ]
)
"""Those of a run, and the bytes of its params if they are too large for a list: these are not read."""
_HAS_TEXT = """(
    id ILIKE {pattern} OR workflow ILIKE {pattern} OR position({bytes} IN params) > 0
    OR id IN (SELECT run FROM tidemill.notes WHERE NOT is_of_task AND text COLLATE "C" ILIKE {pattern})
)"""


class _Conditions:
    """The conditions of a statement, and their arguments in order."""

    def __init__(self) -> None:
        self.arguments: list[Any] = []
        self._conditions: list[str] = []

    def __str__(self) -> str:
        return " AND ".join(self._conditions)

    def add(self, condition: str, **values: Any) -> None:
        """Add a condition, in which names in braces are replaced by parameters."""
        self._conditions.append(condition.format(**{name: self.parameter(value) for name, value in values.items()}))

    def parameter(self, value: Any) -> str:
        """Add an argument; return its parameter."""
        self.arguments.append(value)
        return f"${len(self.arguments)}"


def build_page(query: RunQuery) -> tuple[Any, ...]:
    """Return the statement that reads the page of a query, and its arguments."""
    selected = _select(query)
    selected.add("(created_at, id) < ({at}, {id})", at=query.end.created_at, id=query.end.id)
    limit = selected.parameter(query.limit)
    page = f"FROM tidemill.runs WHERE {selected} ORDER BY created_at DESC, id DESC LIMIT {limit}"
    statement = f"SELECT {_LISTED_COLUMNS} {page}"
    return statement, *selected.arguments


def build_count(query: RunQuery) -> tuple[Any, ...]:
    """Return the statement that counts the list of a query, and its arguments."""
    selected = _select(query)
    return f"SELECT count(*) FROM tidemill.runs WHERE {selected}", *selected.arguments


def _select(query: RunQuery) -> _Conditions:
    """Return the conditions for the whole list."""
    selected = _Conditions()
    selected.add("tenant = {tenant}", tenant=query.tenant)
    if query.since > EARLIEST:
        selected.add("created_at >= {since}", since=query.since)
    if query.until < LATEST:
        selected.add("created_at <= {until}", until=query.until)
    if query.is_active_only:  # these are few, and have an index of their own
        selected.add(f"state IN {STATE_FRAGMENTS['active_runs']}")
    if query.is_unresolved:
        selected.add(unresolved_condition("tidemill.runs"))
    if query.workflows is not None and len(query.workflows) == 1:  # in the order of the index
        selected.add("workflow = {workflow}", workflow=next(iter(query.workflows)))
    elif query.workflows is not None:
        selected.add("workflow = ANY({workflows}::text[])", workflows=list(query.workflows))
    if query.states:
        selected.add("state = ANY({states}::text[])", states=list(query.states))
    if query.cause:
        selected.add("(origin = {cause} OR cause = {cause})", cause=query.cause)
    if query.key:
        selected.add("(about = {key} OR backfill = {key})", key=query.key)
    if query.started_by:
        selected.add("origin IN ('firing', 'task', 'handler') AND caused_by = {id}", id=query.started_by)
    if query.text:
        selected.add(_HAS_TEXT, pattern=like_pattern(query.text), bytes=query.text.encode())
    return selected
