"""Failed runs that need a person, as SQL spells them: a partial index serves a query only if both say the same.

A failed run is unresolved until it is retried, cleared or dismissed. A retry leaves the state, and a dismissal counts
for the end that it saw. A later success about the same resolves it as well: that of the next slot for a schedule, that
of the next start for what `dedup` names. Each run of a backfill, and each run that is about nothing, such as one for
each customer, stands for itself.
"""

from tidemill.workflows.states import RunState

UNDISMISSED = f"state = '{RunState.FAILED}' AND (dismissed_at IS NULL OR dismissed_at < ended_at)"
"""The condition of the index `runs_unresolved`."""
_RESOLVED_LATER = """
    about IS NOT NULL AND origin <> 'backfill' AND EXISTS (
        SELECT 1 FROM {runs} AS later
        WHERE later.tenant = runs.tenant AND later.workflow = runs.workflow AND later.about = runs.about
        AND later.state = {success} AND later.about IS NOT NULL AND later.sequence > runs.sequence
        AND (runs.slot IS NULL OR later.slot >= runs.slot)
    )"""


def unresolved_fragments(table: str) -> dict[str, str]:
    """Return what statements may name in braces."""
    return {"undismissed": UNDISMISSED, "unresolved": unresolved_condition(table)}


def unresolved_condition(table: str) -> str:
    """Return the condition that a row of `table`, known as `runs`, is an unresolved failed run."""
    later = _RESOLVED_LATER.format(runs=table, success=f"'{RunState.SUCCESS}'")
    return f"{UNDISMISSED} AND NOT ({later})"
