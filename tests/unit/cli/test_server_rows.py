"""A run of a server, replayed from its transitions."""

from datetime import UTC, datetime
from typing import Any

from tidemill.api.runs import RunTransition
from tidemill.cli.server_rows import RunReplay
from tidemill.workflows.records import RunRow
from tidemill.workflows.states import RunState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_deferral_is_no_try() -> None:
    """D31: what follows it is the same try; what follows a failure is the next one."""
    fields: dict[str, Any] = {
        "id": "r",
        "workflow": "w",
        "version": "v",
        "tenant": "",
        "origin": "manual",
        "params": b"",
    }
    row = RunRow(**fields, origin="manual", state=RunState.SUCCESS, created_at=NOON)
    replay = RunReplay(row, ["a"])
    states = ["scheduled", "queued", "running", "deferred", "queued", "running", "up_for_retry", "queued", "running"]
    attempts = [0, 1, 1, 1, 2, 2, 2, 3, 3]
    tries = []
    for number, (attempt, after) in enumerate(zip(attempts, states, strict=True)):
        step: dict[str, Any] = {"number": number, "at": NOON, "actor": "", "before": "", "after": after, "reason": ""}
        replay.apply(RunTransition(**step, task="a", index=None, attempt=attempt))
        tries += [one.tries for one in replay.record.tasks]
    assert tries == [0, 1, 1, 0, 1, 1, 1, 2, 2]
