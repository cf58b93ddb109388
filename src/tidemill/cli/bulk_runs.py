"""Cancels or retries many runs at once: selects them, asks before it changes them, reports on each."""

import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple

import typer

from tidemill.api.dismissals import dismiss_runs
from tidemill.api.handles import AsyncRun
from tidemill.api.runs import RunInfo, list_runs
from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import EXIT_FAILED, exit_on_error
from tidemill.cli.formatting import format_count
from tidemill.cli.opening import open_api
from tidemill.cli.output import Format, print_text, show, show_json, terminal_width
from tidemill.cli.run_view import runs_table
from tidemill.kernel.errors import OperationError, RequestError, StoreError
from tidemill.workflows.states import RunState

BULK_LIMIT = 10_000  # runs that one command changes; the oldest of more are left for the next

ChangeRun = Callable[[AsyncRun], Awaitable[Any]]


class BulkChange(NamedTuple):
    """A command on many runs."""

    verb: str
    """What it does to a run: cancel or retry."""
    change_run: ChangeRun
    workflow: str | None
    states: Sequence[RunState]

    def describe(self, number: int) -> str:
        """Return what it does to a number of runs."""
        of_workflow = "" if self.workflow is None else f" of workflow '{self.workflow}'"
        return f"{self.verb} {format_count(number, 'run')}{of_workflow}"


class BulkOutcome(NamedTuple):
    """A run, and why it was not changed, if it was not."""

    run: RunInfo
    problem: str | None = None


def change_runs(
    bulk: BulkChange, store: str | None, tenant: str | None, output: Format, *, preview: bool, is_confirmed: bool
) -> None:
    """Change all runs that are selected, after asking; with `preview` only show them."""

    async def do() -> list[BulkOutcome]:
        async with open_api(store, tenant, read_only=preview, may_be_loaded=True) as api:
            rows = await api.collect(list_runs, {"workflow": bulk.workflow, "state": bulk.states}, BULK_LIMIT)
            if preview or not rows:
                return [BulkOutcome(row) for row in rows]
            if not is_confirmed:
                _confirm(bulk, len(rows))
            if bulk.verb != "cancel":  # newest first, so that none of them begins when an older one is cancelled
                rows.reverse()
            return [await _change_run(bulk, AsyncRun(api, row.id), row) for row in rows]

    with exit_on_error():
        outcomes = run_async(do())
    _print_outcomes(bulk, outcomes, output, preview=preview)
    if any(outcome.problem for outcome in outcomes):
        raise typer.Exit(EXIT_FAILED)


def dismiss_matching(filters: dict[str, Any], store: str | None, tenant: str | None, output: Format) -> None:
    """Dismiss the failures of all runs that match."""

    async def do() -> int:
        async with open_api(store, tenant, may_be_loaded=True) as api:
            return (await api.call(dismiss_runs, filters)).number

    with exit_on_error():
        number = run_async(do())
    if output is Format.JSON:
        show_json({"number": number})
    else:
        print_text(f"dismissed: {format_count(number, 'run')}" if number else "no run matches")


def _confirm(bulk: BulkChange, number: int) -> None:
    """Ask on a terminal; elsewhere no one can answer, so the command has to say --yes."""
    if not sys.stdin.isatty():
        message = f"this would {bulk.describe(number)}: add --yes to do it, or --preview to list them"
        raise RequestError(message, code="not_confirmed")
    typer.confirm(f"Really {bulk.describe(number)}?", abort=True)


async def _change_run(bulk: BulkChange, run: AsyncRun, row: RunInfo) -> BulkOutcome:
    try:
        await bulk.change_run(run)
    except StoreError:
        raise
    except (RequestError, OperationError) as error:  # the error concerns this run: it has ended meanwhile, for one
        return BulkOutcome(row, str(error))
    return BulkOutcome(row)


def _print_outcomes(bulk: BulkChange, outcomes: Sequence[BulkOutcome], output: Format, *, preview: bool) -> None:
    if output is Format.JSON:
        runs = [
            {"id": one.run.id, "workflow": one.run.workflow, "state": one.run.state, "problem": one.problem}
            for one in outcomes
        ]
        show_json({"action": bulk.verb, "preview": preview, "runs": runs})
        return
    if preview and outcomes:
        show(runs_table([one.run for one in outcomes], terminal_width()))
    for sentence in _sentences(bulk, outcomes, preview=preview):
        print_text(sentence)


def _sentences(bulk: BulkChange, outcomes: Sequence[BulkOutcome], *, preview: bool) -> Iterator[str]:
    problems = [one.problem for one in outcomes if one.problem is not None]
    if not outcomes:
        yield "no run matches"
    elif preview:
        yield f"would {bulk.describe(len(outcomes))}"
    else:
        yield f"{_PAST[bulk.verb]}: {format_count(len(outcomes) - len(problems), 'run')}"
    yield from problems


_PAST = {"cancel": "cancelled", "retry": "will run again"}
