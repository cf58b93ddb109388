"""The trace of a run is stored with it, for the nodes that run its tasks."""

import pytest

from tests.contract.run_samples import creation, make, run_of, run_row
from tidemill.storage.store import Store
from tidemill.telemetry.tracing import StoredTrace, TraceContext

TRACES = [None, StoredTrace.new(None).to_text(), StoredTrace.new(TraceContext.new(None)).to_text()]


@pytest.mark.parametrize("trace", TRACES, ids=["not traced", "root", "child"])
async def test_a_run_keeps_its_trace(store: Store, trace: str | None) -> None:
    """Ops: one trace, whichever node runs the tasks."""
    await make(store, creation(run_row("r1", trace=trace)))
    assert (await run_of(store)).trace == trace
