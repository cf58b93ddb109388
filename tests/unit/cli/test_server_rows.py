"""A run of a server, replayed from its transitions."""

from datetime import UTC, datetime

from tidemill.cli.server_rows import RunReplay, to_run_row
from tidemill.client.values import RunInfo, RunTransition
from tidemill.workflows.records import UNMAPPED

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_deferral_is_no_try() -> None:
    """D31: what follows it is the same try; what follows a failure is the next one."""
    info = RunInfo(id="r", workflow="w", version="v", state="success", origin="manual", created_at=NOON)
    replay = RunReplay(to_run_row(info), ["a"])
    states = ["scheduled", "queued", "running", "deferred", "queued", "running", "up_for_retry", "queued", "running"]
    attempts = [0, 1, 1, 1, 2, 2, 2, 3, 3]
    tries = []
    for number, (attempt, after) in enumerate(zip(attempts, states, strict=True)):
        replay.apply(RunTransition(number=number, at=NOON, actor="", before="", after=after, task="a", attempt=attempt))
        (row,) = replay.record.tasks
        tries.append(row.tries)
    assert row.index == UNMAPPED
    assert tries == [0, 1, 1, 0, 1, 1, 1, 2, 2]
