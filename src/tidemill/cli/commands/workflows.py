"""`tidemill workflows`: the workflows of a store, and those of a file before they run."""

import asyncio
from typing import Annotated, Any

import typer

from tidemill.cli.definitions import importable, package_at
from tidemill.cli.exits import FAILED, refusing
from tidemill.cli.output import Format, say, show_json, show_rows
from tidemill.cli.stores import Address, Tenant, controlling
from tidemill.cli.words import moment
from tidemill.engine.workflows.control import Control
from tidemill.engine.workflows.operations import active_states
from tidemill.kernel.errors import DefinitionError, Problem, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.run_ports import RunFilter, Version

app = typer.Typer(help="Look at workflows, check, pause and resume them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a workflow.", show_default=False)]
File = Annotated[str, typer.Argument(metavar="FILE", help="A Python file, or the name of a module.")]
Output = Annotated[Format, typer.Option("-o", "--output", help="How to print it.")]

COLUMNS = ["workflow", "versions", "paused", "active", "last run", "state"]


@app.command("list")
def list_workflows(store: Address = None, output: Output = Format.TABLE, tenant: Tenant = "public") -> None:
    """List the workflows that a store knows: versions seen, whether paused, active runs, the last run."""

    async def read() -> list[list[Any]]:
        async with controlling(store, is_looking=True) as control:
            return [await _row(control, tenant, name, found) for name, found in (await _known(control, tenant)).items()]

    with refusing():
        rows = asyncio.run(read())
    if rows or output is Format.JSON:
        show_rows(COLUMNS, rows, output, spare=["versions", "last run"])
    else:
        say("no workflows")


async def _known(control: Control, tenant: str) -> dict[str, list[Version]]:
    found: dict[str, list[Version]] = {}
    for version in await control.store.versions.of(tenant):
        found.setdefault(version.key.workflow, []).append(version)
    return found


async def _row(control: Control, tenant: str, name: str, versions: list[Version]) -> list[Any]:
    paused = (tenant, name) in await control.store.schedules.paused()
    wanted = RunFilter(tenant=tenant, workflow=name, states=active_states(), limit=1000)
    active = len(await control.store.runs.find(wanted))
    last = await control.store.runs.find(RunFilter(tenant=tenant, workflow=name, limit=1))
    at, state = (moment(last[0].created_at), str(last[0].state)) if last else ("", "")
    return [name, len(versions), "paused" if paused else "", active, at, state]


@app.command()
def check(file: File) -> None:
    """Wire every workflow of a file, and try its schedules; show everything that is wrong."""
    with importable(file):
        package = package_at(file)
        graphs = {graph.name: graph for graph in package.graphs}
        problems: list[Problem] = []
        for workflow in package.workflows:
            try:
                workflow.bound(graphs.get).check()
            except DefinitionError as error:
                problems += error.problems
    for problem in problems:
        say(str(problem))
    if problems:
        raise typer.Exit(FAILED)
    say(f"{len(package.workflows)} workflow(s) and {len(package.triggers)} trigger(s) are sound")


@app.command()
def pause(name: Name, store: Address = None, output: Output = Format.TABLE, tenant: Tenant = "public") -> None:
    """Pause a workflow: no run of it begins, none of its tasks is started; what runs goes on."""
    _set_paused(name, store, tenant, output, paused=True)


@app.command()
def resume(name: Name, store: Address = None, output: Output = Format.TABLE, tenant: Tenant = "public") -> None:
    """Let a paused workflow go on; about slots that passed meanwhile, the `catchup` of its schedule decides."""
    _set_paused(name, store, tenant, output, paused=False)


def _set_paused(name: str, store: str | None, tenant: str, output: Format, *, paused: bool) -> None:
    async def work() -> None:
        async with controlling(store) as control:
            known = await _known(control, tenant)
            if name not in known:
                message = f"the store knows no workflow '{name}'{did_you_mean(name, known)}"
                raise RequestError(message, code="unknown_workflow", status=404, workflow=name)
            await control.store.schedules.pause(tenant, name, paused=paused)

    with refusing():
        asyncio.run(work())
    if output is Format.JSON:
        show_json({"workflow": name, "paused": paused})
    else:
        say(f"workflow '{name}' {'is paused' if paused else 'goes on'}")
