"""Prepares the switch of a run to another version of its workflow."""

from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.storage.workflow_ports import WorkflowStore
from tidemill.workflows.clearing import VersionSwitch
from tidemill.workflows.records import RunRecord, VersionKey
from tidemill.workflows.spec import WorkflowSpec


async def load_version_switch(
    store: WorkflowStore, versions: WorkflowVersions, record: RunRecord, newest: VersionKey
) -> VersionSwitch:
    """Read what the switch of a run to another version needs to know."""
    counters: dict[str, tuple[int, int]] = {}
    for attempt in await store.runs.read_attempts(record.run.id):
        last, number = counters.get(attempt.key.task, (0, 0))
        counters[attempt.key.task] = max(last, attempt.key.attempt), max(number, attempt.number)
    return VersionSwitch(
        record=record,
        version=newest.version,
        new_spec=await versions.load_spec(newest),
        old_spec=await find_readable_spec(versions, record.run.version_key),
        attempt_counters=counters,
    )


async def find_readable_spec(versions: WorkflowVersions, key: VersionKey) -> WorkflowSpec | None:
    """Return the spec of a version; None if it is not stored, or can no longer be read."""
    try:
        return await versions.load_spec(key)
    except StoreError:
        raise
    except OperationError:
        return None
