"""Random runs in progress, as a store would hold them."""

from datetime import timedelta
from random import Random

from msgspec.structs import asdict

from tests.unit.workflows.test_plan_against_an_oracle import NOW, World
from tidemill.workflows.records import RunRecord, RunRow, TaskRow
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

LATER = NOW + timedelta(hours=1)


def run_row(state: RunState, workflow: str = "w") -> RunRow:
    """Return a run without its tasks."""
    return RunRow(
        id="r1",
        tenant="public",
        workflow=workflow,
        version="v",
        state=state,
        params=b"",
        origin="manual",
        created_at=NOW,
        started_at=NOW,
        ended_at=LATER if state.is_terminal else None,
    )


def lived(spec: WorkflowSpec, seed: int) -> RunRecord:
    """Return a run after some passes of planning and work, often after all of them."""
    chance = Random(seed)
    world = World(spec, chance)
    patience = chance.choice([0, 1, 2, 4, 1000])
    for number, _ in enumerate(world.passes()):
        if number >= patience:
            break
    for _ in range(0 if world.state.is_terminal else chance.randint(0, 3)):
        if any(row.state.is_active for row in world.rows.values()):  # so that the planner has something to decide
            world.work()
    return RunRecord(run_row(world.state), [_row(TaskRow(**asdict(row)), chance) for row in world.rows.values()])


def _row(row: TaskRow, chance: Random) -> TaskRow:
    is_held = row.state.is_claimed
    began = row.state not in (TaskState.NONE, TaskState.SCHEDULED)
    fields = asdict(row) | {
        "attempt": chance.randint(1, 5) if began else chance.randint(0, 5),
        "tries": chance.randint(0, 3),
        "failures": chance.randint(0, 2),
        "recoveries": chance.randint(0, 2),
        "deferrals": chance.randint(0, 2),
        "claimed_by": "worker" if is_held else None,
        "started_at": NOW if began else None,
        "ended_at": LATER if row.state.is_terminal else None,
        "reason": "because of something" if row.state.has_failed else "",
    }
    return TaskRow(**fields)
