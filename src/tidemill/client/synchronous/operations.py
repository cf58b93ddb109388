# Written by scripts/blocking_client.py from the asynchronous module of this name: change it there.
# Written by `make api` from the operations of tidemill.api: change them there.
"""The operations of a server as methods."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from tidemill.access.principal import Role
from tidemill.api.accounts import (
    Account,
    create_account,
    delete_account,
    list_accounts,
    set_account_password,
    set_account_role,
)
from tidemill.api.accumulators import list_accumulators
from tidemill.api.audit import AuditEntry, list_audit
from tidemill.api.backfills import BackfillInfo, backfill, cancel_backfill, get_backfill, list_backfills
from tidemill.api.dead_letters import drop_dead_letter, get_dead_letter, list_dead_letters, replay_dead_letter
from tidemill.api.dismissals import DismissedRuns, dismiss_runs
from tidemill.api.graphs import call_graph, get_graph, list_graphs
from tidemill.api.import_errors import PackageProblem, list_import_errors
from tidemill.api.keys import CreatedKey, Key, create_key, list_keys, revoke_key
from tidemill.api.nodes import NodeSummary, list_nodes
from tidemill.api.overview import Overview, get_overview
from tidemill.api.packages import (
    PackageInfo,
    PackageVersion,
    get_package,
    list_package_history,
    list_packages,
    rollback_package,
    unload,
)
from tidemill.api.pools import Pool, delete_pool, get_pool, list_pools, set_pool
from tidemill.api.port import Api
from tidemill.api.reactors import list_reactors
from tidemill.api.schedules import Calendar, ScheduleInfo, UpcomingSlot, get_calendar, list_schedules, preview_schedule
from tidemill.api.secrets import (
    RotatedSecrets,
    Secret,
    delete_secret,
    get_secret,
    list_secrets,
    rotate_secrets,
    set_secret,
)
from tidemill.api.series import Series, get_firing_series, get_system_series
from tidemill.api.system import MetricValues, SystemInfo, get_system, get_system_metrics
from tidemill.api.tenants import Tenant, create_tenant, delete_tenant, list_tenants
from tidemill.api.triggers import TriggerInfo, list_triggers, set_trigger_paused
from tidemill.api.variables import Variable, delete_variable, get_variable, list_variables, set_variable
from tidemill.api.waits import Wait, answer, get_wait, list_waits
from tidemill.api.workflow_grid import Grid, get_workflow_grid
from tidemill.api.workflows import (
    VersionDetails,
    WorkflowDetails,
    WorkflowItem,
    get_workflow,
    get_workflow_version,
    list_workflows,
    set_workflow_paused,
)
from tidemill.graphs.outcomes import DeadLetter
from tidemill.graphs.state import AccumulatorState, ReactorState
from tidemill.graphs.views import GraphDetails, GraphResultView, GraphSummary, ReplayResult
from tidemill.kernel.durations import Duration
from tidemill.workflows.slots import BackfillPlan


class Operations:
    """One method for each operation."""

    _api: Api

    def overview(self) -> Overview:
        """Return what is running, failing, late and degraded, and what the next hour brings."""
        return self._api.call(get_overview, {})

    def system(self) -> SystemInfo:
        """Return build, leader and retention; an admin of the instance gets store, settings and process too."""
        return self._api.call(get_system, {})

    def system_metrics(self) -> MetricValues:
        """Return the metrics of this server as plain numbers; an admin of the instance sees those of all tenants."""
        return self._api.call(get_system_metrics, {})

    def workflows(
        self,
        *,
        text: str = "",
        tag: str | None = None,
        paused: bool | None = None,
        recent: int = 0,
        handlers: bool = False,
        limit: int | None = None,
    ) -> list[WorkflowItem]:
        """List workflows by name, with their last run."""
        return self._api.collect(
            list_workflows, {"text": text, "tag": tag, "paused": paused, "recent": recent, "handlers": handlers}, limit
        )

    def workflow(self, name: str) -> WorkflowDetails:
        """Return a workflow: tasks, edges, schedules, triggers, the JSON Schema of its params, and its versions."""
        return self._api.call(get_workflow, {"name": name})

    def workflow_version(self, name: str, version: str) -> VersionDetails:
        """Return a version of a workflow: its structure, and the source that declares it."""
        return self._api.call(get_workflow_version, {"name": name, "version": version})

    def pause(self, name: str) -> WorkflowDetails:
        """Pause a workflow: none of its runs begins, none of its tasks starts; running tasks continue."""
        return self._api.call(set_workflow_paused, {"name": name, "paused": True})

    def resume(self, name: str) -> WorkflowDetails:
        """Resume a paused workflow. Slots that passed in the meantime get no run; a backfill starts them."""
        return self._api.call(set_workflow_paused, {"name": name, "paused": False})

    def workflow_grid(self, name: str, *, limit: int = 50, cursor: str | None = None) -> Grid:
        """Return the runs of a workflow, newest first, with the state of every task; a mapped task is one cell."""
        return self._api.call(get_workflow_grid, {"name": name, "limit": limit, "cursor": cursor})

    def dismiss_runs(
        self,
        workflow: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        text: str = "",
        tag: str = "",
        cause: str = "",
        key: str = "",
    ) -> DismissedRuns:
        """Dismiss the failures of all runs that match: those that the list of unresolved runs has."""
        return self._api.call(
            dismiss_runs,
            {
                "workflow": workflow,
                "since": since,
                "until": until,
                "text": text,
                "tag": tag,
                "cause": cause,
                "key": key,
            },
        )

    def waits(
        self,
        *,
        state: Literal["open", "answered", "expired", "cancelled", "all"] = "open",
        workflow: str = "",
        run: str = "",
        mine: bool = False,
        limit: int | None = None,
    ) -> list[Wait]:
        """List waits, oldest first: those that are open, unless another state is asked for."""
        return self._api.collect(list_waits, {"state": state, "workflow": workflow, "run": run, "mine": mine}, limit)

    def wait(self, id: str) -> Wait:
        """Return a wait."""
        return self._api.call(get_wait, {"id": id})

    def answer(self, id: str, value: Any, *, variant: str | None = None, comment: str = "") -> Wait:
        """Answer an open wait, and return it.

        The wait says who may do so: else `not_allowed`. An answer that does not fit is `invalid_answer`, with the path
        of each error, and the wait stays open. Of two answers one wins, the other gets `wait_closed`.
        """
        return self._api.call(answer, {"id": id, "value": value, "variant": variant, "comment": comment})

    def schedules(self, *, limit: int | None = None) -> list[ScheduleInfo]:
        """List the schedules of the loaded workflows, with their next slots."""
        return self._api.collect(list_schedules, {}, limit)

    def calendar(self, *, start: datetime | None = None, end: datetime | None = None) -> Calendar:
        """Return the slots of all schedules in a range of at most 31 days: with their runs, and those to come."""
        return self._api.call(get_calendar, {"start": start, "end": end})

    def preview_schedule(self, name: str, *, count: int = 10) -> list[UpcomingSlot]:
        """List the next slots of a workflow, of all its schedules; none if it has no schedule."""
        return self._api.collect(preview_schedule, {"name": name, "count": count}, None)

    def triggers(self, *, limit: int | None = None) -> list[TriggerInfo]:
        """List the triggers of the loaded workflows by name."""
        return self._api.collect(list_triggers, {}, limit)

    def pause_trigger(self, name: str) -> TriggerInfo:
        """Pause a trigger: it starts nothing until it is resumed."""
        return self._api.call(set_trigger_paused, {"name": name, "paused": True})

    def resume_trigger(self, name: str) -> TriggerInfo:
        """Resume a trigger."""
        return self._api.call(set_trigger_paused, {"name": name, "paused": False})

    def backfills(self, *, limit: int | None = 50) -> list[BackfillInfo]:
        """List backfills, newest first, with the states of their runs."""
        return self._api.collect(list_backfills, {}, limit)

    def backfill(
        self,
        workflow: str,
        start: datetime,
        end: datetime,
        *,
        preview: bool = False,
        only_missing: bool = True,
        limit: int = 1,
        key: str | None = None,
    ) -> BackfillPlan:
        """Start a run for every past slot of a schedule in a range; a preview says which slots these are.

        The answer has no id if nothing was started.
        """
        return self._api.call(
            backfill,
            {
                "workflow": workflow,
                "start": start,
                "end": end,
                "preview": preview,
                "only_missing": only_missing,
                "limit": limit,
                "key": key,
            },
        )

    def get_backfill(self, id: str) -> BackfillInfo:
        """Return a backfill with the states of its runs."""
        return self._api.call(get_backfill, {"id": id})

    def cancel_backfill(self, id: str) -> BackfillInfo:
        """Start no more runs of a backfill, and cancel its active ones."""
        return self._api.call(cancel_backfill, {"id": id})

    def nodes(self, *, limit: int | None = None) -> list[NodeSummary]:
        """List the nodes of the store by name: which one leads, their load, and their last heartbeat."""
        return self._api.collect(list_nodes, {}, limit)

    def graphs(self, *, limit: int | None = None) -> list[GraphSummary]:
        """List the loaded graphs by name."""
        return self._api.collect(list_graphs, {}, limit)

    def graph(self, name: str) -> GraphDetails:
        """Return a graph: nodes with inputs, returns and routes, edges, and the generated source."""
        return self._api.call(get_graph, {"name": name})

    def call_graph(self, name: str, given: Mapping[str, Any] | None = None, /, **inputs: Any) -> GraphResultView:
        """Call a graph that is bound to no reactor, and return its result.

        If a node fails, `ok` is false, and `error` names the node.
        """
        return self._api.call(call_graph, {"name": name, "inputs": {**(given or {}), **inputs}})

    def reactors(self, *, limit: int | None = None) -> list[ReactorState]:
        """List the reactors by name, with their state."""
        return self._api.collect(list_reactors, {}, limit)

    def firing_series(self, *, seconds: int = 60) -> Series:
        """Return how often each reactor has fired, over time; the values are by reactor."""
        return self._api.call(get_firing_series, {"seconds": seconds})

    def system_series(self, *, seconds: int = 3600) -> Series:
        """Return the load of this server over time; an admin of the instance sees that of all tenants."""
        return self._api.call(get_system_series, {"seconds": seconds})

    def accumulators(self, *, limit: int | None = None) -> list[AccumulatorState]:
        """List the accumulators by name, with their state."""
        return self._api.collect(list_accumulators, {}, limit)

    def dead_letters(self, *, source: str | None = None, limit: int | None = None) -> list[DeadLetter]:
        """List the dead letters of the tenant, newest first; `omitted` names values that are too large for a list."""
        return self._api.collect(list_dead_letters, {"source": source}, limit)

    def dead_letter(self, id: str) -> DeadLetter:
        """Return a dead letter: what failed, why, and the values that it failed on."""
        return self._api.call(get_dead_letter, {"id": id})

    def replay_dead_letter(self, id: str, *, event: Any = None) -> ReplayResult:
        """Process a dead event, firing or start again; if that fails it stays a dead letter.

        An event may be edited: it is pushed instead, and the dead letter is dropped if it is accepted.
        """
        return self._api.call(replay_dead_letter, {"id": id, "event": event})

    def drop_dead_letter(self, id: str) -> None:
        """Delete a dead letter."""
        return self._api.call(drop_dead_letter, {"id": id})

    def pools(self, *, limit: int | None = None) -> list[Pool]:
        """List pools by name, and how much of each the tenant uses."""
        return self._api.collect(list_pools, {}, limit)

    def pool(self, name: str) -> Pool:
        """Return a pool, and how much of it the tenant uses."""
        return self._api.call(get_pool, {"name": name})

    def set_pool(self, name: str, slots: int) -> Pool:
        """Create a pool, or change its size; tasks that have a slot keep it."""
        return self._api.call(set_pool, {"name": name, "slots": slots})

    def delete_pool(self, name: str) -> None:
        """Delete a pool that neither a loaded workflow nor a task of an active run needs."""
        return self._api.call(delete_pool, {"name": name})

    def packages(self, *, limit: int | None = None) -> list[PackageInfo]:
        """List the packages that are published, loaded or wanted."""
        return self._api.collect(list_packages, {}, limit)

    def package(self, name: str) -> PackageInfo:
        """Return a package: its state, the six steps with their times, and problems by file and line."""
        return self._api.call(get_package, {"name": name})

    def package_history(self, name: str, *, limit: int | None = None) -> list[PackageVersion]:
        """List the versions of a package that the registry keeps, the one published last first."""
        return self._api.collect(list_package_history, {"name": name}, limit)

    def rollback_package(self, name: str, version: str | None = None) -> PackageInfo:
        """Publish a version that the registry has kept, in place of a newer one; nodes load it as after an upload."""
        return self._api.call(rollback_package, {"name": name, "version": version})

    def unload(self, name: str) -> None:
        """Withdraw a package, so that every node unloads it; refused while other packages need it."""
        return self._api.call(unload, {"name": name})

    def import_errors(self, *, limit: int | None = None) -> list[PackageProblem]:
        """List the problems of the packages that this node cannot load, by file and line."""
        return self._api.collect(list_import_errors, {}, limit)

    def tenants(self, *, limit: int | None = None) -> list[Tenant]:
        """List the tenants: all of them for an admin of the instance, else the caller's own."""
        return self._api.collect(list_tenants, {}, limit)

    def create_tenant(self, name: str) -> Tenant:
        """Create a tenant."""
        return self._api.call(create_tenant, {"name": name})

    def delete_tenant(self, name: str) -> None:
        """Delete a tenant with everything it owns; refused while it has packages or active runs."""
        return self._api.call(delete_tenant, {"name": name})

    def keys(self, *, limit: int | None = None) -> list[Key]:
        """List the API keys of the tenant, newest first, without their secrets; revoked and expired ones too."""
        return self._api.collect(list_keys, {}, limit)

    def create_key(
        self,
        role: Role | str,
        *,
        tenant: str | None = None,
        expires: Duration | None = None,
        only: list[str] | None = None,
        label: str = "",
    ) -> CreatedKey:
        """Create an API key. It is shown only once; Tidemill stores a hash."""
        return self._api.call(
            create_key, {"role": role, "tenant": tenant, "expires": expires, "only": only, "label": label}
        )

    def revoke_key(self, key: str) -> None:
        """Revoke an API key: requests with it are refused from now on, and its open connections are closed."""
        return self._api.call(revoke_key, {"key": key})

    def accounts(self, *, limit: int | None = None) -> list[Account]:
        """List the accounts of the tenant."""
        return self._api.collect(list_accounts, {}, limit)

    def create_account(self, name: str, role: Role | str, password: str, *, tenant: str | None = None) -> Account:
        """Create an account for a person who signs in with a password."""
        return self._api.call(create_account, {"name": name, "role": role, "password": password, "tenant": tenant})

    def set_account_role(self, name: str, role: Role | str) -> Account:
        """Change the role of an account, and end its sessions."""
        return self._api.call(set_account_role, {"name": name, "role": role})

    def set_account_password(self, name: str, password: str) -> Account:
        """Change the password of an account, unlock it, and end its sessions."""
        return self._api.call(set_account_password, {"name": name, "password": password})

    def delete_account(self, name: str) -> None:
        """Delete an account, and end its sessions."""
        return self._api.call(delete_account, {"name": name})

    def audit(
        self, *, actor: str | None = None, action: str | None = None, target: str | None = None, limit: int | None = 50
    ) -> list[AuditEntry]:
        """List who has changed what, newest first."""
        return self._api.collect(list_audit, {"actor": actor, "action": action, "target": target}, limit)

    def variables(self, *, limit: int | None = None) -> list[Variable]:
        """List the variables of the tenant; `omitted` names values that are too large for a list."""
        return self._api.collect(list_variables, {}, limit)

    def variable(self, name: str) -> Variable:
        """Return a variable."""
        return self._api.call(get_variable, {"name": name})

    def set_variable(
        self, name: str, value: Any, *, if_match: str | None = None, if_none_match: Literal["*"] | None = None
    ) -> Variable:
        """Set a variable to anything that JSON can express."""
        return self._api.call(
            set_variable, {"name": name, "value": value, "if_match": if_match, "if_none_match": if_none_match}
        )

    def delete_variable(self, name: str) -> None:
        """Delete a variable."""
        return self._api.call(delete_variable, {"name": name})

    def secrets(self, *, limit: int | None = None) -> list[Secret]:
        """List the secrets of the tenant, without their values."""
        return self._api.collect(list_secrets, {}, limit)

    def secret(self, name: str) -> Secret:
        """Return everything about a secret but its value."""
        return self._api.call(get_secret, {"name": name})

    def set_secret(self, name: str, value: str) -> Secret:
        """Set a secret."""
        return self._api.call(set_secret, {"name": name, "value": value})

    def delete_secret(self, name: str) -> None:
        """Delete a secret."""
        return self._api.call(delete_secret, {"name": name})

    def rotate_secrets(self) -> RotatedSecrets:
        """Protect all secrets of all tenants with the current master key, the first of the setting secret_keys.

        Afterwards the older keys can be removed from the setting. An interrupted rotation continues where it was.
        """
        return self._api.call(rotate_secrets, {})
