"""`tidemill backfill`: runs for slots of the past."""

import asyncio
from datetime import UTC, date, datetime, time
from typing import Annotated

import typer

from tidemill.cli.calls import Load, brought, completed
from tidemill.cli.definitions import WorkflowPlace, workflow_at
from tidemill.cli.exits import refusing
from tidemill.cli.output import Format, say, show_json
from tidemill.cli.stores import Address, Tenant, controlling
from tidemill.cli.words import count, moment, zone
from tidemill.engine.workflows.backfilling import BackfillPlan, schedule_of
from tidemill.engine.workflows.executors.in_process import InProcess
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.schedule import Schedule
from tidemill.workflows.workflow import Workflow

NAMED = 20  # slots that are named before the rest is only counted
ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)  # to ask a schedule for its time zone


def backfill(
    place: WorkflowPlace,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="The first day, or moment.")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="The last day, or moment; it counts.")],
    store: Address = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only say which runs would be made.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Also for slots that have had a run.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many may run at a time.")] = 1,
    key: Annotated[str | None, typer.Option(help="Which schedule, if there are several.", show_default=False)] = None,
    executor: Annotated[str, typer.Option(help="Where tasks run that do not say.")] = "in_process",
    load: Load = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="How to print it.")] = Format.TABLE,
    tenant: Tenant = "public",
) -> None:
    """Make a run for every slot of a workflow's schedule in a range of time; a node on the store runs them.

    Times are ISO 8601, in the time zone of the schedule unless they say otherwise. A day as --to is meant to its end.
    """

    async def make(workflow: Workflow, schedule: Schedule) -> BackfillPlan:
        async with controlling(store, is_looking=preview, executor=executor) as control:
            if not preview:
                await control.library.put(tenant, workflow)
            return await control.backfilling.backfill(
                tenant,
                workflow,
                _moment(start, time.min, schedule),
                _moment(end, time.max, schedule),
                preview=preview,
                only_missing=not all_,
                limit=limit,
                key=key,
            )

    with refusing(), brought(place, load or ()) as graphs:
        _check(executor)
        workflow = completed(workflow_at(place), graphs)
        schedule = schedule_of(workflow, key)
        plan = asyncio.run(make(workflow, schedule))
    if output is Format.JSON:
        show_json(_plain(plan))
    else:
        _tell(plan, schedule, preview=preview)


def backfill_cancel(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of a backfill, as it was told.", show_default=False)],
    store: Address = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="How to print it.")] = Format.TABLE,
) -> None:
    """Cancel a backfill: it makes no more runs, and those that have not ended are cancelled."""

    async def cancel() -> int:
        async with controlling(store) as control:
            return await control.backfilling.cancel(id)

    with refusing():
        runs = asyncio.run(cancel())
    if output is Format.JSON:
        show_json({"id": id, "cancelled": runs})
    else:
        say(f"backfill {id} is cancelled, and {count(runs, 'run')} of it with it")


def _check(executor: str) -> None:
    """Refuse an executor that no node has: whatever is to run there would wait for ever."""
    known = [InProcess.name, Subprocess.name]
    if executor not in known:
        hint = did_you_mean(executor, known) or f"; there are {', '.join(known)}"
        raise RequestError(f"there is no executor '{executor}'{hint}", code="unknown_executor")


def _moment(text: str, of_day: time, schedule: Schedule) -> datetime:
    """Return a moment that was given as one, or as a day; where it does not say, of the schedule's time zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is no time: give a day such as 2026-01-31, or 2026-01-31T06:00+01:00"
        raise RequestError(message, code="invalid_range") from error
    if _is_day(text):
        at = datetime.combine(at.date(), of_day)
    return at if at.tzinfo is not None else at.replace(tzinfo=schedule.in_zone(ANY_TIME).tzinfo)


def _is_day(text: str) -> bool:
    """Return whether a time is a whole day, however that is written: 2026-01-31, 20260131, 2026-W05-6."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _tell(plan: BackfillPlan, schedule: Schedule, *, preview: bool) -> None:
    has_seconds = any(slot.second for slot in plan.slots)
    for slot in plan.slots[:NAMED]:
        say(_slot(slot, schedule, has_seconds))
    if len(plan.slots) > NAMED:
        say(f"... and {len(plan.slots) - NAMED:,} more")
    more = f"; {count(len(plan.present), 'slot')} had one before" if plan.present else ""
    if plan.future:
        more += f"; {count(plan.future, 'slot')} of the range {'is' if plan.future == 1 else 'are'} yet to come"
    if preview:
        say(f"{count(len(plan.slots), 'run')} of '{plan.workflow}' would be made{more}")
    elif not plan.slots:
        say(f"no run of '{plan.workflow}' was made{more or '; there is no slot in this range'}")
    else:
        say(f"{count(len(plan.runs), 'run')} of '{plan.workflow}' made, backfill {plan.id}{more}")


def _slot(slot: datetime, schedule: Schedule, has_seconds: bool) -> str:
    """Return a slot in the time of this machine, as runs are listed, and in that of its schedule if it is another."""
    there = schedule.in_zone(slot)
    here = f"{moment(slot, seconds=has_seconds)} {zone([slot])}"
    if there.utcoffset() == slot.astimezone().utcoffset():
        return here
    return f"{here} ({there:{'%Y-%m-%d %H:%M:%S %Z' if has_seconds else '%Y-%m-%d %H:%M %Z'}})"


def _plain(plan: BackfillPlan) -> dict[str, object]:
    return {
        "id": plan.id,
        "workflow": plan.workflow,
        "slots": [one.isoformat() for one in plan.slots],
        "present": [one.isoformat() for one in plan.present],
        "runs": list(plan.runs),
        "future": plan.future,
    }
