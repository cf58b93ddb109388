"""Attempts whose fork server runs already: their claim and their start are one transaction."""

import tidemill as tm
from tests.service.workflows.fanning import SIZE, fan
from tests.service.workflows.faults import CAUSED
from tidemill.storage.addresses import make_store
from tidemill.workflows.records import AttemptRow


async def attempts_of(address: str, run: str) -> list[AttemptRow]:
    """Return the attempts of a run, in the order of their claims."""
    store = make_store(address)
    await store.open()
    attempts = await store.runs.read_attempts(run)
    await store.close()
    return sorted(attempts, key=lambda one: one.claimed_at)


async def test_attempts_start_with_their_claim_once_their_code_is_imported(sqlite: str) -> None:
    """W-2: the first attempt is queued until its fork server runs; all others are claimed and started at once."""
    async with tm.Node(sqlite, load=[fan], executor="subprocess") as node:
        run = await node.start("fan")
        result = await run.wait(timeout=60)
        metrics = node.metrics()
    assert result.outputs["total"] == SIZE * (SIZE - 1)
    assert {name: metrics[name] for name in CAUSED if metrics[name]} == {}
    first, *others = await attempts_of(sqlite, run.id)
    assert first.started_at is not None
    assert first.started_at > first.claimed_at
    assert len(others) == SIZE + 1
    assert [one for one in others if one.started_at != one.claimed_at] == []
