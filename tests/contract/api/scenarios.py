"""What is asked of each noun, through every door. A new noun is a new entry; a new operation a new step of it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import tidemill as tm
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
    packages,
    pools,
    reactors,
    runs,
    schedules,
    secrets,
    series,
    tasks,
    tenants,
    triggers,
    variables,
    waits,
    workflow_grid,
    workflows,
)
from tidemill.api.operation import Operation

Answers = Sequence[Any]
FAR = datetime(2090, 1, 1, tzinfo=UTC)

SERVER, CODE = "running server", "is not loaded"
"""What a store without a node answers to a request that needs a running node, or the code of a workflow."""

ELEMENT = frozenset({"index"})
"""Which element of a mapped task ends first differs from door to door."""
SAMPLED = frozenset({"start", "firings", "p50", "p99", "emitted", "values"})
"""What a timer samples: it differs from door to door."""


class Step(NamedTuple):
    """One request; its fields may be made from the answers to those before it."""

    operation: Operation[..., Any]
    fields: Mapping[str, Any] | Callable[[Answers], Mapping[str, Any]] = MappingProxyType({})
    refusal: str = ""
    """What a store without a node answers, if it cannot do it although it does the others of its noun."""
    of_code: tuple[str, ...] = ()
    """The fields of the answer that a process without the code of the workflow leaves empty."""
    varies: frozenset[str] = frozenset()
    """The fields of the answer that differ from door to door, such as the seconds since a change."""


class Scenario(NamedTuple):
    """The requests about one noun, in their order."""

    steps: Sequence[Step]
    needs_node: bool = False
    """Whether they need a running node: then every step says so on a store without one."""
    load: tuple[Any, ...] = ()
    """What the node of each door loads."""
    prepare: Callable[[tm.Node], Awaitable[None]] | None = None
    """What happens on a node before the first request; a store without a node has what this one has stored."""


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


class Count(tm.Params):
    """How many parts there are."""

    count: int = 2


def count_up(count: int) -> list[int]:
    """Return so many numbers."""
    return list(range(count))


def make_report(**options: Any) -> tuple[Any, ...]:
    """Return a workflow with a task that prints and a mapped one."""
    report = tm.Workflow("report", tags=["daily"], params=Count, **options)

    @report.task
    def parts(params: Count, ctx: tm.Context) -> list[int]:
        print("splitting")
        return ctx.step(count_up, params.count, key="all")

    @report.task(each="parts")
    def doubled(parts: int) -> int:
        return 2 * parts

    return (report,)


async def run_report(node: tm.Node) -> None:
    """Run it once."""
    assert (await (await node.start("report", count=2)).wait("30s")).ok


OF_RUN = frozenset({"run"})
"""The id of a run, which is another one behind each door."""


def make_asking() -> tuple[Any, ...]:
    """Return a workflow that asks for a number."""
    asking = tm.Workflow("asking")

    @asking.task
    def ask(ctx: tm.Context) -> int:
        return ctx.wait_for("count", int, text="How many?")

    return (asking,)


async def start_asking(node: tm.Node) -> None:
    """Let it ask."""
    run = await node.start("asking")
    async for _ in run.watch(every=0.01):
        if await node.waits():
            return


def _answer_of(value: Any, **fields: Any) -> Callable[[Answers], Mapping[str, Any]]:
    return lambda answers: {"id": answers[0][0]["id"], "value": value, **fields}


async def backfill_report(node: tm.Node) -> None:
    """Carry out a backfill of two days."""
    await node.backfill("report", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
    for run in await node.runs():
        await run.result("30s")


def make_handled() -> tuple[Any, ...]:
    """Return a workflow with a handler."""
    handled = tm.Workflow("handled")

    @handled.task
    def work() -> None:
        """Do nothing."""

    @handled.on_success
    def thank(report: tm.RunReport) -> str:
        return report.workflow

    return (handled,)


async def run_handled(node: tm.Node) -> None:
    """Run it once, and wait for the handler."""
    run = await node.start("handled")
    await run.result("30s")
    for one in await run.handlers():
        await node.run_handle(one.run).result("30s")


def make_market() -> tuple[Any, ...]:
    """Return a graph on a reactor that keeps what it has, and a graph without one."""

    @tm.passthrough
    def quote(event: int) -> int:
        return event

    reactor = tm.Reactor("market", [quote], durability="boundary")
    maker = tm.Graph("maker", reactor=reactor)
    adder = tm.Graph("adder")

    @maker.node
    def place(quote: int) -> int:
        return quote + 1

    @adder.node
    def total(left: int, right: int = 1) -> int:
        return left + right

    return reactor, maker, adder


async def push_quotes(node: tm.Node) -> None:
    """Push one event that fits and four that do not."""
    for event in (1, "a", "b", "c", "d"):
        await node.push("quote", event)
    await node.reactor("market").next_firing(timeout=10)


OF_CODE = ("max_active_runs", "params", "unfinished")
MARKET, QUOTE = {"name": "market"}, {"name": "quote"}


def _run(**fields: Any) -> Callable[[Answers], Mapping[str, Any]]:
    """Return the fields of a request about the run that the first step has listed."""
    return lambda answers: {"run": answers[0][0]["id"], **fields}


def _letter(number: int, /, **fields: Any) -> Callable[[Answers], Mapping[str, Any]]:
    """Return the fields of a request about one of the dead letters that the first step has listed."""
    return lambda answers: {**fields, "id": answers[0][number]["id"]}


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
            Step(packages.list_package_history, {"name": "market"}),
            Step(packages.rollback_package, {"name": "market", "version": "1.0.0"}),
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
    "workflows": Scenario(
        [
            Step(workflows.list_workflows),
            Step(workflows.list_workflows, {"tag": "nightly"}),
            Step(workflows.get_workflow, {"name": "report"}, of_code=OF_CODE),
            Step(workflows.get_workflow, {"name": "repor"}),
            Step(
                workflows.get_workflow_version, lambda answers: {"name": "report", "version": answers[0][0]["version"]}
            ),
            Step(workflows.get_workflow_version, {"name": "report", "version": "none"}),
            Step(workflows.set_workflow_paused, {"name": "report", "paused": True}, of_code=OF_CODE),
            Step(workflows.set_workflow_paused, {"name": "repor", "paused": True}, "the store knows no workflow"),
            Step(workflows.set_workflow_paused, {"name": "report", "paused": False}, of_code=OF_CODE),
        ],
        load=make_report(),
        prepare=run_report,
    ),
    "workflow_grid": Scenario(
        [
            Step(workflow_grid.get_workflow_grid, {"name": "report"}),
            Step(workflow_grid.get_workflow_grid, {"name": "repor"}),
        ],
        load=make_report(),
        prepare=run_report,
    ),
    "runs": Scenario(
        [
            Step(runs.list_runs),
            Step(runs.list_runs, {"tag": "daily"}),
            Step(runs.list_runs, {"state": ["failed"]}),
            Step(runs.get_run, _run()),
            Step(runs.get_run, _run(outputs=True)),
            Step(runs.get_run, {"run": "missing"}),
            Step(runs.list_run_events, _run(), varies=ELEMENT),
            Step(runs.watch_run, _run(events=True), varies=ELEMENT),
            Step(runs.note_run, _run(text="looked at")),
            Step(runs.note_run, _run(text="the first", task="parts")),
            Step(runs.clear_run, _run(tasks=["parts"], preview=True)),
            Step(runs.clear_run, _run(tasks=["part"], preview=True)),
            Step(runs.retry_run, _run(preview=True)),
            Step(runs.cancel_run, _run()),
            Step(runs.start_run, {"name": "repor"}, CODE),
            Step(runs.start_run, {"name": "report", "params": {"count": "many"}}, CODE),
        ],
        load=make_report(),
        prepare=run_report,
    ),
    "handlers": Scenario(
        [
            Step(runs.list_runs, varies=frozenset({"parent", "key", "params"})),
            Step(handlers.list_handlers, lambda answers: {"run": answers[0][1]["id"]}),
            Step(handlers.list_handlers, _run()),
            Step(handlers.list_handlers, {"run": "missing"}),
            Step(workflows.list_workflows),
        ],
        load=make_handled(),
        prepare=run_handled,
    ),
    "dismissals": Scenario(
        [
            Step(runs.list_runs),
            Step(dismissals.dismiss_run, _run()),
            Step(dismissals.dismiss_run, {"run": "missing"}),
            Step(dismissals.dismiss_runs, {"workflow": "report"}),
        ],
        load=make_report(),
        prepare=run_report,
    ),
    "tasks": Scenario(
        [
            Step(runs.list_runs),
            Step(tasks.list_tasks, _run()),
            Step(tasks.list_tasks, _run(mapped="doubled")),
            Step(tasks.explain_run, _run()),
            Step(tasks.get_task, _run(task="parts")),
            Step(tasks.get_task, _run(task="doubled", index=1)),
            Step(tasks.get_task, _run(task="doubled", index=2)),
            Step(tasks.explain_task, _run(task="parts")),
            Step(tasks.list_attempts, _run(task="doubled")),
            Step(tasks.list_steps, _run(task="parts")),
            Step(tasks.list_steps, _run(task="doubled", index=1)),
            Step(tasks.list_steps, _run(task="missing")),
            Step(tasks.get_output, _run(task="doubled")),
            Step(tasks.list_logs, _run(task="parts")),
            Step(tasks.list_logs, _run(task="part")),
        ],
        load=make_report(),
        prepare=run_report,
    ),
    "waits": Scenario(
        [
            Step(waits.list_waits, varies=OF_RUN),
            Step(waits.list_waits, {"state": "answered", "workflow": "asking"}),
            Step(waits.get_wait, lambda answers: {"id": answers[0][0]["id"]}, varies=OF_RUN),
            Step(waits.get_wait, {"id": "missing"}),
            Step(waits.list_run_waits, lambda answers: {"run": answers[0][0]["run"]}, varies=OF_RUN),
            Step(waits.answer, _answer_of("many")),
            Step(waits.answer, _answer_of(3, comment="a few"), varies=OF_RUN | {"by", "at"}),
            Step(waits.answer, {"id": "missing", "value": 3}),
        ],
        load=make_asking(),
        prepare=start_asking,
    ),
    "backfills": Scenario(
        [
            Step(backfills.list_backfills),
            Step(backfills.backfill, {"workflow": "report", "start": FAR, "end": FAR, "preview": True}, CODE),
            Step(backfills.backfill, {"workflow": "repor", "start": FAR, "end": FAR}, CODE),
            Step(backfills.get_backfill, lambda answers: {"id": answers[0][0]["id"]}),
            Step(backfills.get_backfill, {"id": "missing"}),
            Step(backfills.cancel_backfill, lambda answers: {"id": answers[0][0]["id"]}),
            Step(backfills.cancel_backfill, {"id": "missing"}),
        ],
        load=make_report(schedule=tm.Cron("0 6 * * *")),
        prepare=backfill_report,
    ),
    "graphs": Scenario(
        [
            Step(graphs.list_graphs),
            Step(graphs.get_graph, {"name": "maker"}),
            Step(graphs.get_graph, {"name": "makr"}),
            Step(graphs.call_graph, {"name": "adder", "inputs": {"left": 1}}),
            Step(graphs.call_graph, {"name": "maker", "inputs": {}}),
        ],
        needs_node=True,
        load=make_market(),
    ),
    "reactors": Scenario(
        [
            Step(reactors.list_reactors),
            Step(reactors.get_reactor, MARKET),
            Step(reactors.get_reactor, {"name": "markt"}),
            Step(reactors.list_firings, MARKET),
            Step(reactors.get_timeseries, MARKET),
            Step(reactors.command_reactor, {**MARKET, "command": "pause"}),
            Step(reactors.command_reactor, {**MARKET, "command": "fire_with", "inputs": {"quote": 7}}),
            Step(reactors.command_reactor, {**MARKET, "command": "fire_with", "inputs": {"quotes": 7}}),
            Step(reactors.command_reactor, {**MARKET, "command": "resume"}),
            Step(reactors.list_firings, MARKET),
            Step(reactors.get_timeseries, MARKET),
            Step(reactors.list_recoveries, MARKET),
        ],
        needs_node=True,
        load=make_market(),
        prepare=push_quotes,
    ),
    "series": Scenario(
        [
            Step(series.get_reactor_series, {**MARKET, "seconds": 60}, varies=SAMPLED),
            Step(series.get_reactor_series, {**MARKET, "seconds": 7200}, varies=SAMPLED),
            Step(series.get_reactor_series, {"name": "markt"}),
            Step(series.get_firing_series, {"seconds": 5}, varies=SAMPLED),
            Step(series.get_system_series, {"seconds": 5}, varies=SAMPLED),
        ],
        needs_node=True,
        load=make_market(),
    ),
    "accumulators": Scenario(
        [
            Step(accumulators.list_accumulators),
            Step(accumulators.get_accumulator, QUOTE),
            Step(accumulators.get_accumulator, {"name": "quot"}),
            Step(accumulators.restart_accumulator, {"name": "quot"}),
            Step(accumulators.restart_accumulator, QUOTE),
        ],
        needs_node=True,
        load=make_market(),
        prepare=push_quotes,
    ),
    "dead_letters": Scenario(
        [
            Step(dead_letters.list_dead_letters),
            Step(dead_letters.get_dead_letter, _letter(0)),
            Step(dead_letters.get_dead_letter, {"id": "missing"}),
            Step(dead_letters.list_accumulator_dead_letters, QUOTE, SERVER),
            Step(dead_letters.list_reactor_dead_letters, MARKET, SERVER),
            Step(dead_letters.get_accumulator_dead_letter, _letter(0, **QUOTE), SERVER),
            Step(dead_letters.get_reactor_dead_letter, _letter(0, **MARKET), SERVER),
            Step(dead_letters.replay_dead_letter, _letter(0), SERVER),
            Step(dead_letters.replay_accumulator_dead_letter, _letter(0, event=2, **QUOTE), SERVER),
            Step(dead_letters.replay_reactor_dead_letter, _letter(1, **MARKET), SERVER),
            Step(dead_letters.drop_dead_letter, _letter(1), SERVER),
            Step(dead_letters.drop_accumulator_dead_letter, _letter(2, **QUOTE), SERVER),
            Step(dead_letters.drop_reactor_dead_letter, _letter(3, **MARKET), SERVER),
            Step(dead_letters.drop_reactor_dead_letter, _letter(3, **MARKET), SERVER),
        ],
        load=make_market(),
        prepare=push_quotes,
    ),
}
"""By the module that declares the operations."""
