"""`tidemill runs`: look at the runs of a store, and intervene; with or without a node that runs them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from msgspec.structs import replace
from rich.table import Column, Table
from rich.text import Text

from tidemill.cli.exits import INTERRUPTED, refusing
from tidemill.cli.output import Format, Output, say, show, show_json, tabulated, width
from tidemill.cli.run_view import (
    RunView,
    attempts_table,
    failed_tries,
    plain_run,
    plain_view,
    read_view,
    timeline_table,
    title_of,
)
from tidemill.cli.stores import Address, Tenant, controlling
from tidemill.cli.summary import came_of, show_tracebacks, table_of
from tidemill.cli.words import between, dated, moment, short_moment, state_text, with_fields, zoned
from tidemill.engine.workflows.control import Control
from tidemill.engine.workflows.watching import LogLine, Watch
from tidemill.storage.run_ports import RunFilter
from tidemill.workflows.naming import named
from tidemill.workflows.plan import WHOLE
from tidemill.workflows.records import AttemptKey, RunRow
from tidemill.workflows.result import RunResult
from tidemill.workflows.states import RunState, TaskState

app = typer.Typer(help="Look at the runs of a store, and intervene.", no_args_is_help=True)

SHORT = 8  # characters of an id, its last, that tell runs apart
MOST = 1_000_000  # runs that are listed
SAID = 10_000  # characters of one line of a log

Run = Annotated[
    str, typer.Argument(metavar="RUN", help="The id of a run, or enough of its beginning or end.", show_default=False)
]
Task = Annotated[
    str,
    typer.Argument(metavar="TASK", help="The name of a task, or of one of its elements: clean[7].", show_default=False),
]
Preview = Annotated[bool, typer.Option("--preview", help="Only say what would run again.")]
Latest = Annotated[
    bool, typer.Option("--latest", help="Go on with the newest version of the workflow; the run must have ended.")
]


def _with_run(
    store: str | None, run: str, tenant: str, work: Callable[[Control, str], Awaitable[Any]], *, looks: bool
) -> Any:
    """Do something with one run of a store, and return what comes of it."""

    async def do() -> Any:
        async with controlling(store, is_looking=looks) as control:
            return await work(control, await control.run_id(run, tenant))

    with refusing():
        return asyncio.run(do())


@app.command("list")
def list_runs(
    store: Address = None,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.", show_default=False)] = None,
    state: Annotated[RunState | None, typer.Option(help="Only runs in this state.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="At most so many, the newest.")] = 20,
    output: Output = Format.TABLE,
    tenant: Tenant = "public",
) -> None:
    """List runs, the newest last."""
    wanted = RunFilter(tenant=tenant, workflow=workflow, states=[state] if state else [], limit=limit)

    async def find() -> list[RunRow]:
        async with controlling(store, is_looking=True) as control:
            return await control.store.runs.find(wanted)

    with refusing():
        rows = asyncio.run(find())
    if output is Format.JSON:
        show_json([plain_run(row) for row in rows])
    elif rows:
        show(_listing(rows))
    else:
        say("no runs")


def _listing(rows: list[RunRow]) -> Table:
    slots = [row.slot for row in rows if row.slot is not None]
    slot, created = dated("slot", slots), dated("created", (row.created_at for row in rows))
    columns = [*map(Column, ["run", "workflow", "state", "by", slot, created]), Column("time", justify="right")]
    cells = [
        [
            Text(row.id[-SHORT:]),
            Text(row.workflow),
            state_text(row.state),
            Text(row.origin),
            Text(moment(row.slot, seconds=any(one.second for one in slots))),
            Text(short_moment(row.created_at)),
            Text(between(row.started_at, row.ended_at)),
        ]
        for row in rows
    ]
    if not slots:
        columns, cells = columns[:4] + columns[5:], [one[:4] + one[5:] for one in cells]
    return tabulated(columns, cells, width(), spare=["by", "time", created, slot], folded=["workflow"])


@app.command("show")
def show_run(
    run: Run,
    store: Address = None,
    timeline: Annotated[bool, typer.Option("--timeline", help="Also show every try, and all that happened.")] = False,
    output: Output = Format.TABLE,
    tenant: Tenant = "public",
) -> None:
    """Show a run: its tasks, what failed and where, notes; as JSON everything that is kept of it."""
    view: RunView = _with_run(store, run, tenant, read_view, looks=True)
    if output is Format.JSON:
        show_json(plain_view(view))
        return
    show(title_of(view, width()), table_of(view.result, width()))
    for sentence in failed_tries(view.attempts, width()):
        say(sentence)
    for task, text in view.notes.items():
        say(f"note{'' if task is None else f' on {task}'}: {text}")
    show_tracebacks(view.result)
    if timeline:
        show("", attempts_table(view.attempts, width()), "", timeline_table(view.events, width()))


@app.command()
def why(run: Run, task: Task, store: Address = None, output: Output = Format.TABLE, tenant: Tenant = "public") -> None:
    """Say why a task has not run yet, or what became of it: one sentence per reason."""

    async def work(control: Control, id: str) -> tuple[str, list[str]]:
        return id, await control.operations.why(id, task)

    found, reasons = _with_run(store, run, tenant, work, looks=True)
    _answer(output, reasons, {"run": found, "task": task, "reasons": reasons})


def _answer(output: Format, sentences: Iterable[str], plain: Mapping[str, Any]) -> None:
    """Print what came of a command: sentences for people, an object for programs."""
    if output is Format.JSON:
        show_json(plain)
        return
    for sentence in sentences:
        say(sentence)


@app.command()
def cancel(
    run: Run,
    store: Address = None,
    reason: Annotated[str, typer.Option(help="Why; it is kept with the run.")] = "cancelled",
    output: Output = Format.TABLE,
    tenant: Tenant = "public",
) -> None:
    """Cancel a run: what has not ended never will, and running code is stopped."""

    async def work(control: Control, id: str) -> str:
        await control.operations.cancel(id, reason)
        return id

    found = _with_run(store, run, tenant, work, looks=False)
    _answer(output, [f"run {found} is cancelled"], {"run": found, "state": "cancelled", "reason": reason})


@app.command()
def retry(
    run: Run,
    store: Address = None,
    from_: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="TASK", help="Rerun this task and all after it; without, all that failed."),
    ] = None,
    preview: Preview = False,
    latest: Latest = False,
    output: Output = Format.TABLE,
    tenant: Tenant = "public",
) -> None:
    """Let what failed run again, or a task and everything after it."""
    _clear(run, from_ or None, store, tenant, output, preview=preview, latest=latest)


@app.command()
def clear(
    run: Run,
    tasks: Annotated[list[str], typer.Argument(metavar="TASK...", help="The names of tasks.", show_default=False)],
    store: Address = None,
    preview: Preview = False,
    latest: Latest = False,
    output: Output = Format.TABLE,
    tenant: Tenant = "public",
) -> None:
    """Forget how tasks ended, and everything after them, so that they run again."""
    _clear(run, tasks, store, tenant, output, preview=preview, latest=latest)


class _Cleared(NamedTuple):
    """What came of clearing a run, or would."""

    run: str
    names: list[str]
    elements: dict[str, tuple[int, int]]
    version: str
    """Which it goes on with."""
    left_out: list[str]
    """Tasks that this version does not have."""
    pinned: str | None
    """What is to be known if it is not the newest."""
    nodes: int


def _clear(
    run: str, tasks: list[str] | None, store: str | None, tenant: str, output: Format, *, preview: bool, latest: bool
) -> None:
    async def work(control: Control, id: str) -> _Cleared:
        operations = control.operations
        elements = await operations.elements_cleared(id, tasks, latest=latest)
        left_out = await operations.left_out(id) if latest else []
        names = await operations.clear(id, tasks, preview=preview, latest=latest)
        record = await operations.record(id)
        version = (await operations.newest(record)).version if latest else record.run.version
        note = None if latest else await operations.pinned(id)
        return _Cleared(id, names, elements, version, left_out, note, await operations.nodes())

    cleared: _Cleared = _with_run(store, run, tenant, work, looks=preview)
    plain = {
        "run": cleared.run,
        "preview": preview,
        "tasks": cleared.names,
        "elements": {name: {"cleared": some, "of": of} for name, (some, of) in cleared.elements.items()},
        "version": cleared.version,
        "left_out": cleared.left_out,
        "pinned": cleared.pinned,
    }
    _answer(output, _told(cleared, preview=preview, latest=latest), plain)


def _told(cleared: _Cleared, *, preview: bool, latest: bool) -> Iterator[str]:
    elements = cleared.elements
    names = [f"{name} ({'{} of {}'.format(*elements[name])})" if name in elements else name for name in cleared.names]
    with_version = f", with version {cleared.version}" if latest else ""
    yield f"{'would run' if preview else 'to run'} again{with_version}: {', '.join(names) or 'nothing'}"
    if cleared.left_out:
        yield f"not in this version, and forgotten: {', '.join(cleared.left_out)}"
    if cleared.pinned is not None:
        yield cleared.pinned
    if not preview and not cleared.nodes:
        yield "no node is running on this store: start one"


@app.command()
def note(
    run: Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help='What to write; "" removes it.', show_default=False)],
    store: Address = None,
    task: Annotated[str | None, typer.Option(help="Write it on this task.", show_default=False)] = None,
    output: Output = Format.TABLE,
    tenant: Tenant = "public",
) -> None:
    """Write a note on a run, or on one of its tasks, in place of the one it has."""

    async def work(control: Control, id: str) -> str:
        await control.operations.note(id, text, task)
        return id

    found = _with_run(store, run, tenant, work, looks=False)
    where = f"run {found}" if task is None else f"task '{task}' of run {found}"
    _answer(output, [f"{where} has {'a' if text else 'no'} note"], {"run": found, "task": task, "text": text})


@app.command()
def logs(
    run: Run,
    task: Task,
    store: Address = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the task has ended.")] = False,
    output: Output = Format.TABLE,
    tenant: Tenant = "public",
) -> None:
    """Print what a task said and, if it failed, where."""

    async def work(control: Control, id: str) -> None:
        name, index = named(await control.operations.record(id), task)
        watch = Watch(control.store, id, tasks=[name])
        is_last = not follow
        while True:
            glance = await watch.look(is_last=is_last)
            tries = {one.key: one.number for one in await control.store.runs.attempts(id)} if glance.said else {}
            for said in glance.said:
                if index in (None, said.key.element):
                    number = tries.get(AttemptKey(*said.key, said.attempt), said.attempt)
                    say(_line(said, number) if output is Format.TABLE else _json_line(said, number))
            if is_last:
                if output is Format.TABLE:
                    _tell_failure(await control.operations.result(id), name, index)
                return
            rows = [row for row in glance.record.tasks if row.task == name and index in (None, row.index)]
            is_last = all(row.state.is_terminal for row in rows)
            await control.clock.sleep(control.settings.tick_interval)

    try:
        _with_run(store, run, tenant, work, looks=not follow)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _tell_failure(result: RunResult, name: str, index: int | None) -> None:
    """Print why a task, or one element of it, failed; with the traceback if there is one."""
    task = result.tasks[name]
    if show_tracebacks(replace(result, tasks={name: task}), index):
        return
    found = task if index is None else task.mapped[index]
    if found.state is TaskState.FAILED:
        say(f"{name if index is None else f'{name}[{index}]'} failed: {came_of(found)}")


def _line(said: LogLine, number: int) -> str:
    """Return when, which try, how loud or to which stream, which element, and what."""
    record = said.record
    element = "" if said.key.element == WHOLE else f"[{said.key.element}] "
    how = record.level if record.stream == "log" else record.stream
    return f"{zoned(record.at)} #{number} {how:<7} {element}{with_fields(record.message, record.fields, SAID)}"


def _json_line(said: LogLine, number: int) -> str:
    element = None if said.key.element == WHOLE else said.key.element
    return msgspec.json.encode({"element": element, "try": number, **msgspec.to_builtins(said.record)}).decode()
