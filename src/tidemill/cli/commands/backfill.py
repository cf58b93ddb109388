"""`tidemill backfill start`: start runs for past slots of a schedule."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, tzinfo
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from tidemill.cli.arguments import LoadOption, WorkflowArgument
from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.formatting import format_count, format_time, timezone_name
from tidemill.cli.output import Format, Output, print_text, show_json
from tidemill.cli.stores import StoreOption, TenantOption, cli_caller, open_backfills
from tidemill.cli.targets import ServerTarget, StoreTarget, find_target
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean

if TYPE_CHECKING:
    from tidemill.workflows.schedule import Schedule
    from tidemill.workflows.slots import BackfillPlan
    from tidemill.workflows.workflow import Workflow

app = typer.Typer(help="Start, list and cancel backfills: runs for past slots.", no_args_is_help=True)


class ScheduleFacts(NamedTuple):
    """What a backfill says about its schedule."""

    in_zone: Callable[[datetime], datetime]
    """Returns an instant in the time zone of the schedule."""
    start: datetime | None
    end: datetime | None


LISTED_SLOTS_LIMIT = 20  # slots that are listed; the others are counted
SAMPLE_TIME = datetime(2026, 1, 1, tzinfo=UTC)  # any moment, to read the time zone of a schedule


@app.command("start")
def start_backfill(
    place: WorkflowArgument,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="The first day or moment.")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="The last day or moment, inclusive.")],
    store: StoreOption = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only show which runs would be started.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Also start runs for slots that already had one.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="The number of runs active at a time.")] = 1,
    key: Annotated[str | None, typer.Option(help="The key of one of several schedules.", show_default=False)] = None,
    executor: Annotated[str, typer.Option(help="The executor of tasks that name none.")] = "in_process",
    load: LoadOption = None,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Start a run for every slot of a workflow's schedule in a time range; a node on the store, or a server, runs them.

    With a server, name a workflow that it has loaded instead of a file.

    Times are ISO 8601, by default in the time zone of the schedule. A day as --to includes the whole day.
    """
    wanted = BackfillRange(start, end, preview=preview, only_missing=not all_, limit=limit, key=key)
    with exit_on_error():
        target = find_target(store)
        if isinstance(target, ServerTarget):
            plan, schedule = run_async(_backfill_on_server(target, tenant, place, wanted))
        else:
            plan, schedule = _backfill_on_store(target, tenant, place, wanted, executor, load or ())
    if output is Format.JSON:
        show_json(_plain_plan(plan))
    else:
        _print_plan(plan, schedule, preview=preview)


async def _backfill_on_server(
    target: ServerTarget, tenant: str | None, workflow: str, wanted: "BackfillRange"
) -> "tuple[BackfillPlan, ScheduleFacts]":
    from zoneinfo import ZoneInfo

    async with target.client(tenant) as client:
        schedules = {one.key: one for one in (await client.workflow(workflow)).schedules}
        if not schedules or (wanted.key is not None and wanted.key not in schedules):
            known = f"; it has {', '.join(schedules)}" if schedules else ""
            message = f"workflow '{workflow}' has no schedule{f' {wanted.key!r}' if wanted.key else ''}{known}"
            raise RequestError(message, code="no_schedule", status=409)
        schedule = schedules[wanted.key or next(iter(schedules))]
        zone = ZoneInfo(schedule.timezone)
        plan = await client.backfill(workflow, *wanted.times(zone), **wanted.options())
        return plan, ScheduleFacts(lambda slot: slot.astimezone(zone), schedule.start, schedule.end)


def _backfill_on_store(
    target: StoreTarget, tenant: str | None, place: str, wanted: "BackfillRange", executor: str, load: Sequence[str]
) -> "tuple[BackfillPlan, ScheduleFacts]":
    from tidemill.cli.definitions import load_workflow
    from tidemill.cli.graph_imports import importing_graphs, resolve_graph_calls
    from tidemill.engine.workflows.client.backfills import find_schedule

    async def make(workflow: "Workflow", schedule: "Schedule") -> "BackfillPlan":
        zone = schedule.in_zone(SAMPLE_TIME).tzinfo or UTC
        async with open_backfills(target.address, read_only=wanted.preview, executor=executor) as backfills:
            return await backfills.start(cli_caller(tenant), workflow, *wanted.times(zone), **wanted.options())

    with importing_graphs(place, load) as graphs:
        _check_executor(executor)
        workflow = resolve_graph_calls(load_workflow(place), graphs)
        schedule = find_schedule(workflow, wanted.key)
        return run_async(make(workflow, schedule)), ScheduleFacts(schedule.in_zone, schedule.start, schedule.end)


class BackfillRange(msgspec.Struct, frozen=True):
    """The range and the options of a backfill, as given on the command line."""

    start: str
    end: str
    preview: bool
    only_missing: bool
    limit: int
    key: str | None

    def times(self, zone: tzinfo) -> tuple[datetime, datetime]:
        """Return the first and the last moment; without a time zone, they are in that of the schedule."""
        return _parse_time(self.start, time.min, zone), _parse_time(self.end, time.max, zone)

    def options(self) -> dict[str, Any]:
        """Return the options as keywords."""
        return {"preview": self.preview, "only_missing": self.only_missing, "limit": self.limit, "key": self.key}


def _check_executor(executor: str) -> None:
    """Reject an executor that no node has: its tasks would wait forever."""
    from tidemill.engine.workflows.client.store_client import EXECUTOR_NAMES

    if executor not in EXECUTOR_NAMES:
        hint = did_you_mean(executor, EXECUTOR_NAMES) or f"; there are {', '.join(EXECUTOR_NAMES)}"
        raise RequestError(f"there is no executor '{executor}'{hint}", code="unknown_executor")


def _parse_time(text: str, time_of_day: time, zone: tzinfo) -> datetime:
    """Parse a moment or a day; without a time zone, it is in the given one."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is not a time: give a day such as 2026-01-31, or 2026-01-31T06:00+01:00"
        raise RequestError(message, code="invalid_range") from error
    if _is_date(text):
        at = datetime.combine(at.date(), time_of_day)
    return at if at.tzinfo is not None else at.replace(tzinfo=zone)


def _is_date(text: str) -> bool:
    """Return whether a text is a date, in any ISO form: 2026-01-31, 20260131, 2026-W05-6."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _print_plan(plan: "BackfillPlan", schedule: ScheduleFacts, *, preview: bool) -> None:
    has_seconds = any(slot.second for slot in plan.slots)
    for slot in plan.slots[:LISTED_SLOTS_LIMIT]:
        print_text(_format_slot(slot, schedule.in_zone, has_seconds))
    if len(plan.slots) > LISTED_SLOTS_LIMIT:
        print_text(f"... and {len(plan.slots) - LISTED_SLOTS_LIMIT:,} more")
    rest = f"; {format_count(len(plan.present), 'slot')} already had one" if plan.present else ""
    if plan.future:
        rest += (
            f"; {format_count(plan.future, 'slot')} of the range {'is' if plan.future == 1 else 'are'} in the future"
        )
    if not plan.slots and not rest:
        rest = f"; there is no slot in this range{_bounds_text(schedule)}"
    if preview:
        print_text(f"{format_count(len(plan.slots), 'run')} of '{plan.workflow}' would be started{rest}")
    elif not plan.slots:
        print_text(f"no run of '{plan.workflow}' was started{rest}")
    else:
        print_text(f"{format_count(len(plan.runs), 'run')} of '{plan.workflow}' started, backfill {plan.id}{rest}")


def _bounds_text(schedule: ScheduleFacts) -> str:
    """Return when a schedule starts and ends, as the end of a sentence; "" if it is not limited."""
    bounds = {"starts": schedule.start, "ends": schedule.end}
    texts = [f"{verb} on {schedule.in_zone(at):%Y-%m-%d %H:%M %Z}" for verb, at in bounds.items() if at is not None]
    return f": the schedule {' and '.join(texts)}" if texts else ""


def _format_slot(slot: datetime, in_zone: Callable[[datetime], datetime], has_seconds: bool) -> str:
    """Return a slot in local time, as runs are listed, and in the time zone of its schedule if that differs."""
    zoned = in_zone(slot)
    local = f"{format_time(slot, seconds=has_seconds)} {timezone_name([slot])}"
    if zoned.utcoffset() == slot.astimezone().utcoffset():
        return local
    return f"{local} ({zoned:{'%Y-%m-%d %H:%M:%S %Z' if has_seconds else '%Y-%m-%d %H:%M %Z'}})"


def _plain_plan(plan: "BackfillPlan") -> dict[str, object]:
    return {
        "id": plan.id,
        "workflow": plan.workflow,
        "slots": [one.isoformat() for one in plan.slots],
        "present": [one.isoformat() for one in plan.present],
        "runs": list(plan.runs),
        "future": plan.future,
    }
