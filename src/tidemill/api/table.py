"""The table of operations, in the order of the reference."""

from types import ModuleType
from typing import Any

from tidemill.api import (
    accounts,
    accumulators,
    audit,
    backfills,
    dead_letters,
    dismissals,
    graphs,
    handlers,
    import_errors,
    keys,
    nodes,
    overview,
    packages,
    pools,
    reactors,
    runs,
    schedules,
    secrets,
    series,
    system,
    tasks,
    tenants,
    triggers,
    variables,
    waits,
    workflow_grid,
    workflows,
)
from tidemill.api.operation import Operation

NOUNS: tuple[ModuleType, ...] = (
    overview,
    system,
    workflows,
    workflow_grid,
    runs,
    dismissals,
    handlers,
    tasks,
    waits,
    schedules,
    triggers,
    backfills,
    nodes,
    graphs,
    reactors,
    series,
    accumulators,
    dead_letters,
    pools,
    packages,
    import_errors,
    tenants,
    keys,
    accounts,
    audit,
    variables,
    secrets,
)
"""The modules that declare operations."""


def operations_of(noun: ModuleType) -> list[Operation[Any, Any]]:
    """Return the operations that a module declares, in its order."""
    return [
        one for one in vars(noun).values() if isinstance(one, Operation) and one.function.__module__ == noun.__name__
    ]


def _check(operations: tuple[Operation[Any, Any], ...]) -> tuple[Operation[Any, Any], ...]:
    """Return the operations; AssertionError for a name that two have, or for a change that is not audited."""
    names = [one.name for one in operations]
    assert len(names) == len(set(names)), f"two operations have one name: {sorted(names)}"
    verbs = [verb.name for one in operations for verb in one.verbs]
    assert len(verbs) == len(set(verbs)), f"two verbs have one name: {sorted(verbs)}"
    unaudited = [one.name for one in operations if one.http.method != "GET" and one.audit is None]
    assert not unaudited, f"changes without a word for the audit log: {unaudited}"
    return operations


OPERATIONS = _check(tuple(one for noun in NOUNS for one in operations_of(noun)))
"""Every operation."""
