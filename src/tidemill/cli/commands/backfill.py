"""`tidemill backfill`: runs for slots of the past."""

import asyncio
from datetime import UTC, datetime, time
from typing import Annotated

import typer

from tidemill.cli.definitions import WorkflowPlace, importable, workflow_at
from tidemill.cli.exits import refusing
from tidemill.cli.output import Format, say, show_json
from tidemill.cli.stores import Address, Tenant, controlling
from tidemill.cli.words import count
from tidemill.engine.workflows.backfilling import BackfillPlan, schedule_of
from tidemill.kernel.errors import RequestError
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
    limit: Annotated[int, typer.Option(min=1, help="How many may run at a time.")] = 1,
    key: Annotated[str | None, typer.Option(help="Which schedule, if there are several.", show_default=False)] = None,
    executor: Annotated[str, typer.Option(help="Where tasks run that do not say.")] = "in_process",
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

    with importable(place), refusing():
        workflow = workflow_at(place)
        workflow.check()
        schedule = schedule_of(workflow, key)
        plan = asyncio.run(make(workflow, schedule))
    if output is Format.JSON:
        show_json(_plain(plan))
    else:
        _tell(plan, schedule, preview=preview)


def _moment(text: str, of_day: time, schedule: Schedule) -> datetime:
    """Return a moment that was given as one, or as a day; where it does not say, of the schedule's time zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is no time: give a day such as 2026-01-31, or 2026-01-31T06:00+01:00"
        raise RequestError(message, code="invalid_range") from error
    if len(text) == len("2026-01-31"):
        at = datetime.combine(at.date(), of_day)
    return at if at.tzinfo is not None else at.replace(tzinfo=schedule.in_zone(ANY_TIME).tzinfo)


def _tell(plan: BackfillPlan, schedule: Schedule, *, preview: bool) -> None:
    for slot in map(schedule.in_zone, plan.slots[:NAMED]):
        say(f"{slot.isoformat(sep=' ', timespec='minutes')}")
    if len(plan.slots) > NAMED:
        say(f"... and {len(plan.slots) - NAMED:,} more")
    had = f"; {count(len(plan.present), 'slot')} had one before" if plan.present else ""
    if preview or not plan.slots:
        say(f"{count(len(plan.slots), 'run')} of '{plan.workflow}' would be made{had}")
    else:
        say(f"{count(len(plan.runs), 'run')} of '{plan.workflow}' made, backfill {plan.id}{had}")


def _plain(plan: BackfillPlan) -> dict[str, object]:
    return {
        "id": plan.id,
        "workflow": plan.workflow,
        "slots": [one.isoformat() for one in plan.slots],
        "present": [one.isoformat() for one in plan.present],
        "runs": list(plan.runs),
    }
