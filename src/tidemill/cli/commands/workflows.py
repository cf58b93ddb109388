"""`tidemill workflows`: the workflows of a store, and those of a file before they run."""

import asyncio
from datetime import datetime
from typing import Annotated

import msgspec
import typer

from tidemill.cli.calls import open_calls
from tidemill.cli.definitions import bound_workflow, check_all, importable, package_at
from tidemill.cli.exits import judgement, refusing, reporting
from tidemill.cli.output import Format, Output, say, show_json, show_rows
from tidemill.cli.stores import Address, Tenant, controlling
from tidemill.cli.words import count, dated, moment
from tidemill.engine.workflows.control import Control
from tidemill.engine.workflows.operations import active_states
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.elsewhere import left_open
from tidemill.storage.run_ports import RunFilter, Version
from tidemill.workflows.states import RunState
from tidemill.workflows.workflow import Workflow

app = typer.Typer(help="Look at workflows, check, pause and resume them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a workflow.", show_default=False)]
File = Annotated[str, typer.Argument(metavar="FILE", help="A Python file, or the name of a module.")]


@app.command("list")
def list_workflows(store: Address = None, output: Output = Format.TABLE, tenant: Tenant = "public") -> None:
    """List the workflows that a store knows: versions seen, whether paused, active runs, the last run."""

    async def read() -> list[Known]:
        async with controlling(store, is_looking=True) as control:
            known = await _known(control, tenant)
            return [await _standing(control, tenant, name, versions) for name, versions in known.items()]

    with refusing():
        found = asyncio.run(read())
    if output is Format.JSON:
        show_json(msgspec.to_builtins(found))
    elif found:
        last = dated("last run", (one.last_run for one in found))
        rows = [
            [one.workflow, one.versions, "paused" * one.paused, one.active, moment(one.last_run), one.state or ""]
            for one in found
        ]
        show_rows(["workflow", "versions", "paused", "active", last, "state"], rows, output, spare=["versions", last])
    else:
        say("no workflows")


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that a store knows, and how it stands."""

    workflow: str
    versions: int
    paused: bool
    active: int
    last_run: datetime | None
    state: RunState | None


async def _known(control: Control, tenant: str) -> dict[str, list[Version]]:
    found: dict[str, list[Version]] = {}
    for version in await control.store.versions.of(tenant):
        found.setdefault(version.key.workflow, []).append(version)
    return found


async def _standing(control: Control, tenant: str, name: str, versions: list[Version]) -> Known:
    paused = (tenant, name) in await control.store.schedules.paused()
    wanted = RunFilter(tenant=tenant, workflow=name, states=active_states(), limit=1000)
    active = len(await control.store.runs.find(wanted))
    last = await control.store.runs.find(RunFilter(tenant=tenant, workflow=name, limit=1))
    return Known(
        workflow=name,
        versions=len(versions),
        paused=paused,
        active=active,
        last_run=last[0].created_at if last else None,
        state=last[0].state if last else None,
    )


@app.command()
def check(file: File, output: Output = Format.TABLE) -> None:
    """Wire every workflow of a file, and try its schedules; show everything that is wrong.

    Graphs that are called by name and are not in the file may come from elsewhere: they are named.
    """
    with importable(file), refusing(), reporting(output):
        package = package_at(file, Workflow)
        workflows = [bound_workflow(one, package) for one in package.workflows]
        check_all([left_open(one, {}) for one in workflows])
    calls = [(workflow.name, task.name, task.graph) for workflow in workflows for task in open_calls(workflow)]
    names, triggers = [one.name for one in workflows], [one.name for one in package.triggers]
    if output is Format.JSON:
        elsewhere = [dict(zip(("workflow", "task", "graph"), one, strict=True)) for one in calls]
        show_json(judgement(workflows=names, triggers=triggers, calls_elsewhere=elsewhere))
        return
    say(f"{count(len(names), 'workflow')} and {count(len(triggers), 'trigger')} are sound")
    for workflow, task, graph in calls:
        what = f"'{workflow}.{task}' calls graph '{graph}'"
        say(f"{what}, which is not in the file: it must be loaded where it runs")


@app.command()
def pause(name: Name, store: Address = None, output: Output = Format.TABLE, tenant: Tenant = "public") -> None:
    """Pause a workflow: no run of it begins, none of its tasks is started; what runs goes on."""
    _set_paused(name, store, tenant, output, paused=True)


@app.command()
def resume(name: Name, store: Address = None, output: Output = Format.TABLE, tenant: Tenant = "public") -> None:
    """Let a paused workflow go on; slots that passed meanwhile get no run: `tidemill backfill` makes them."""
    _set_paused(name, store, tenant, output, paused=False)


def _set_paused(name: str, store: str | None, tenant: str, output: Format, *, paused: bool) -> None:
    async def work() -> None:
        async with controlling(store) as control:
            known = await _known(control, tenant)
            if name not in known:
                message = f"the store knows no workflow '{name}'{did_you_mean(name, known)}"
                raise RequestError(message, code="unknown_workflow", status=404, workflow=name)
            if paused:
                await control.store.schedules.pause(tenant, name)
            else:
                await control.store.schedules.resume(tenant, name, control.clock.now())

    with refusing():
        asyncio.run(work())
    if output is Format.JSON:
        show_json({"workflow": name, "paused": paused})
    else:
        say(f"workflow '{name}' {'is paused' if paused else 'goes on'}")
