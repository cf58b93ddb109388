"""Audits recoveries: what could not be restored, even after newer snapshots have replaced the rows that showed it."""

from collections.abc import Iterator, Sequence

from tidemill.engine.audit_findings import Finding, format_time, note_finding, problem_finding
from tidemill.engine.graphs.checkpoints.double_writes import is_double_write
from tidemill.storage.tables.graphs import StoredRecovery


def audit_recoveries(restored: Sequence[StoredRecovery]) -> Iterator[Finding]:
    """Yield a finding for each component and reason of incomplete restores, with the time of the newest."""
    newest = {(one.tenant, one.component, one.name, one.reason): one for one in restored}
    for one in newest.values():
        subject = f"{one.component} {one.tenant}/{one.name}"
        restored_at = f"It was restored so at {format_time(one.at)}"
        if is_double_write(one.reason):
            advice = "compare it with its sources, and restore a backup if that matters."
            yield problem_finding(subject, f"{one.reason}.", f"{restored_at}:", advice)
        else:
            yield note_finding(subject, f"{one.reason}.", f"{restored_at}.")
