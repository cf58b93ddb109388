"""Reads which versions of workflows have their code on a living node, for every part that has to know."""

from collections.abc import Collection
from typing import NamedTuple

from tidemill.engine.workflows.process_identity import ProcessLiveness
from tidemill.storage.workflow_ports import WorkflowStore
from tidemill.workflows.records import RunRecord, VersionKey
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.unfinished import missing_code_note, missing_tasks, waits_for_code


class LoadedCode(NamedTuple):
    """The versions that nodes which may be alive have loaded."""

    loaded: Collection[VersionKey]
    current: Collection[VersionKey]
    """Those of them that new runs get on some node."""
    live_nodes: int


async def read_loaded_code(store: WorkflowStore, liveness: ProcessLiveness) -> LoadedCode:
    """Read which code is loaded. A node of another host counts as alive until its row is deleted: do no harm.

    Workers do not count: a run needs a node that plans it. Versions are read before nodes: a node that registers
    between the two reads has none of these.
    """
    versions = await store.versions.list_loaded()
    owners = await store.owners.list_all()
    alive = {owner.id for owner in owners if owner.plans and not liveness.is_dead(owner)}
    held = [version for version in versions if version.owner in alive]
    current = {version.key for version in held if version.is_current}
    return LoadedCode({version.key for version in held}, current, len(alive))


def code_note(record: RunRecord, code: LoadedCode, newest: VersionKey, spec: WorkflowSpec | None) -> str | None:
    """Return what to do about a run that waits for code that no node has; None if it does not.

    `spec` is the structure of the newest version, if it can be read.
    """
    has_code = record.run.version_key in code.loaded or newest == record.run.version_key
    if not waits_for_code(record, has_code=has_code):
        return None
    return missing_code_note(record.run, newest.version, [] if spec is None else missing_tasks(record, spec))
