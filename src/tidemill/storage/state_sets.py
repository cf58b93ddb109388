"""Sets of states as SQL spells them: computed from the enums, so that statements and indexes name the same states.

A partial index serves a query only if the query repeats the index's condition. Parameters cannot do that, so the states
stand in the text of a statement: as `{active_runs}`, which is replaced when the statement is loaded.
"""

from collections.abc import Iterable

from tidemill.workflows.states import RunState, TaskState

ACTIVE_RUNS = tuple(state for state in RunState if not state.is_terminal)
ENDED_RUNS = tuple(state for state in RunState if state.is_terminal)
CLAIMED_TASKS = tuple(state for state in TaskState if state.is_claimed)
ACTIVE_TASKS = tuple(state for state in TaskState if state.is_active)
ENDED_TASKS = tuple(state for state in TaskState if state.is_terminal)


def as_sql(states: Iterable[str]) -> str:
    """Return a list of states for IN, in the order of their enum."""
    quoted = [f"'{state}'" for state in states]
    return f"({', '.join(quoted)})"


STATE_FRAGMENTS = {
    "active_runs": as_sql(ACTIVE_RUNS),
    "ended_runs": as_sql(ENDED_RUNS),
    "claimed_tasks": as_sql(CLAIMED_TASKS),
    "active_tasks": as_sql(ACTIVE_TASKS),
    "ended_tasks": as_sql(ENDED_TASKS),
    **{f"run_{state}": f"'{state}'" for state in RunState},
    **{f"task_{state}": f"'{state}'" for state in TaskState},
}
"""What statements may name in braces: the sets, and each state by itself."""
