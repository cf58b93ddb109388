"""The lines of a run in a pipe."""

from datetime import UTC, datetime

from tidemill.api.runs import RunInfo, RunSnapshot, RunTransition
from tidemill.cli.progress import PlainProgress
from tidemill.kernel.clock import SystemClock
from tidemill.workflows.states import RunState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUN = RunInfo(
    id="r",
    workflow="w",
    version="v",
    state=RunState.RUNNING,
    origin="manual",
    created_at=NOON,
    started_at=NOON,
    ended_at=None,
    slot=None,
    backfill=None,
    params={},
    note=None,
    reason="",
    omitted={},
)


def test_a_deferral_is_not_a_try() -> None:
    """What follows it is the same try; what follows a failure is the next one."""
    lines: list[str] = []
    progress = PlainProgress(lines.append, SystemClock())
    states = ["scheduled", "queued", "running", "deferred", "queued", "running", "up_for_retry", "queued", "running"]
    for number, after in enumerate(states):
        event = RunTransition(
            number=number, at=NOON, actor="", task="a", index=None, attempt=1, before="", after=after, reason=""
        )
        progress.show(RunSnapshot(run=RUN, tasks=[], lines=[], events=[event]))
    assert [line.split("a  ", 1)[-1] for line in lines] == [
        "running",
        "deferred",
        "running",
        "up_for_retry",
        "running (try 2)",
    ]
