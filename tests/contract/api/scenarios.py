"""What is asked of each noun, through every door. A new noun is a new entry; a new operation a new step of it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import tidemill as tm
from tidemill.api import (
    accounts,
    audit,
    import_errors,
    keys,
    packages,
    pools,
    schedules,
    secrets,
    tenants,
    triggers,
    variables,
)
from tidemill.api.operation import Operation

Answers = Sequence[Any]
FAR = datetime(2090, 1, 1, tzinfo=UTC)


class Step(NamedTuple):
    """One request; its fields may be made from the answers to those before it."""

    operation: Operation[..., Any]
    fields: Mapping[str, Any] | Callable[[Answers], Mapping[str, Any]] = MappingProxyType({})
    needs_node: bool = False
    """Whether it needs a running node, although its noun does not."""


class Scenario(NamedTuple):
    """The requests about one noun, in their order."""

    steps: Sequence[Step]
    needs_node: bool = False
    """Whether they need a running node: then every step says so on a store without one."""
    load: tuple[Any, ...] = ()
    """What the node of each door loads."""


def make_nightly() -> tuple[Any, ...]:
    """Return a workflow with a schedule and a trigger."""

    @tm.trigger(every="1h")
    async def new_files() -> tm.Fire | None:
        return None

    nightly = tm.Workflow("nightly", schedule=tm.Cron("0 6 * * *", timezone="Europe/Berlin"), triggers=[new_files])

    @nightly.task
    def work() -> None:
        """Do nothing."""

    return new_files, nightly


def _id_of(step: int) -> Callable[[Answers], Mapping[str, Any]]:
    return lambda answers: {"key": answers[step]["id"]}


SCENARIOS: dict[str, Scenario] = {
    "pools": Scenario(
        [
            Step(pools.list_pools),
            Step(pools.set_pool, {"name": "warehouse", "slots": 4}),
            Step(pools.set_pool, {"name": "api", "slots": 1}),
            Step(pools.set_pool, {"name": "warehouse", "slots": 2}),
            Step(pools.set_pool, {"name": "warehouse", "slots": 0}),
            Step(pools.list_pools),
            Step(pools.get_pool, {"name": "warehouse"}),
            Step(pools.delete_pool, {"name": "api"}),
            Step(pools.get_pool, {"name": "warehous"}),
            Step(pools.delete_pool, {"name": "api"}),
            Step(audit.list_audit),
        ]
    ),
    "packages": Scenario(
        [
            Step(packages.list_packages),
            Step(packages.get_package, {"name": "market"}),
            Step(packages.unload, {"name": "market"}),
            Step(audit.list_audit),
        ]
    ),
    "import_errors": Scenario([Step(import_errors.list_import_errors)], needs_node=True),
    "schedules": Scenario(
        [
            Step(schedules.list_schedules),
            Step(schedules.preview_schedule, {"name": "nightly", "count": 3}),
            Step(schedules.preview_schedule, {"name": "nightl"}),
            Step(
                schedules.get_calendar,
                {"start": datetime(2090, 1, 1, tzinfo=UTC), "end": datetime(2090, 1, 3, tzinfo=UTC)},
            ),
        ],
        needs_node=True,
        load=make_nightly(),
    ),
    "triggers": Scenario(
        [
            Step(triggers.list_triggers),
            Step(triggers.set_trigger_paused, {"name": "new_files", "paused": True}),
            Step(triggers.list_triggers),
            Step(triggers.set_trigger_paused, {"name": "new_file", "paused": True}),
            Step(triggers.set_trigger_paused, {"name": "new_files", "paused": False}),
        ],
        needs_node=True,
        load=make_nightly(),
    ),
    "tenants": Scenario(
        [
            Step(tenants.create_tenant, {"name": "acme"}),
            Step(tenants.create_tenant, {"name": "acme"}),
            Step(tenants.create_tenant, {"name": "No Tenant"}),
            Step(tenants.list_tenants),
            Step(tenants.delete_tenant, {"name": "acme"}),
            Step(tenants.delete_tenant, {"name": "acme"}),
            Step(tenants.list_tenants),
            Step(audit.list_audit),
        ]
    ),
    "keys": Scenario(
        [
            Step(keys.create_key, {"role": "admin", "label": "first"}),
            Step(keys.create_key, {"role": "write", "expires": "90d", "only": ["accumulators:a", "reactors:b"]}),
            Step(keys.create_key, {"role": "write", "expires": "soon"}),
            Step(keys.create_key, {"role": "write", "only": ["a"]}),
            Step(keys.revoke_key, _id_of(0)),
            Step(keys.revoke_key, {"key": "missing"}),
            Step(keys.list_keys),
            Step(audit.list_audit, {"action": "key.revoke"}),
        ]
    ),
    "accounts": Scenario(
        [
            Step(accounts.create_account, {"name": "ada", "role": "read", "password": "correct horse battery"}),
            Step(accounts.create_account, {"name": "ada", "role": "read", "password": "correct horse battery"}),
            Step(accounts.create_account, {"name": "bob", "role": "write", "password": "short"}),
            Step(accounts.list_accounts),
            Step(accounts.set_account_role, {"name": "ada", "role": "admin"}),
            Step(accounts.set_account_role, {"name": "adda", "role": "admin"}),
            Step(accounts.set_account_password, {"name": "ada", "password": "wrong horse battery"}),
            Step(accounts.set_account_password, {"name": "ada", "password": "short"}),
            Step(accounts.delete_account, {"name": "ada"}),
            Step(accounts.delete_account, {"name": "ada"}),
            Step(accounts.list_accounts),
            Step(audit.list_audit),
        ]
    ),
    "audit": Scenario(
        [
            Step(audit.list_audit),
            Step(variables.set_variable, {"name": "region", "value": "eu"}),
            Step(variables.delete_variable, {"name": "region"}),
            Step(audit.list_audit),
            Step(audit.list_audit, {"action": "variable.set", "actor": "local", "target": "region"}),
            Step(audit.list_audit, {"actor": "account:ada"}),
            Step(variables.get_variable, {"name": "region"}),
        ]
    ),
    "variables": Scenario(
        [
            Step(variables.set_variable, {"name": "region", "value": "eu"}),
            Step(variables.set_variable, {"name": "limits", "value": {"high": [1, 2.5, None]}}),
            Step(variables.set_variable, {"name": "region", "value": "us"}),
            Step(variables.get_variable, {"name": "region"}),
            Step(variables.get_variable, {"name": "regoin"}),
            Step(variables.list_variables),
            Step(variables.delete_variable, {"name": "limits"}),
            Step(variables.delete_variable, {"name": "limits"}),
            Step(variables.list_variables),
        ]
    ),
    "secrets": Scenario(
        [
            Step(secrets.set_secret, {"name": "bank_token", "value": "s3cret"}),
            Step(secrets.set_secret, {"name": "bank_token", "value": "other"}),
            Step(secrets.get_secret, {"name": "bank_token"}),
            Step(secrets.get_secret, {"name": "bank_toke"}),
            Step(secrets.list_secrets),
            Step(secrets.rotate_secrets),
            Step(secrets.delete_secret, {"name": "bank_token"}),
            Step(secrets.delete_secret, {"name": "bank_token"}),
            Step(secrets.list_secrets),
            Step(audit.list_audit),
        ]
    ),
}
"""By the module that declares the operations."""

LATER = frozenset(
    {
        "accumulators",
        "backfills",
        "dead_letters",
        "graphs",
        "nodes",
        "overview",
        "reactors",
        "runs",
        "system",
        "tasks",
        "workflow_grid",
        "workflows",
    }
)
"""Nouns whose answers depend on graphs, nodes and runs; their own tests ask their operations."""
