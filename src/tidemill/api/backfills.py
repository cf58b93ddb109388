"""Backfills: runs for past slots of a schedule."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from tidemill.access.principal import Permission, Principal
from tidemill.api.fields import NameOf, WireName
from tidemill.api.operation import GET, POST, CommandForm, Message, RequestKey, Verb, operation
from tidemill.api.paging import Page, PageRequest, decode_cursor, encode_cursor
from tidemill.api.services import Services
from tidemill.workflows.slots import BackfillPlan
from tidemill.workflows.states import RunState

if TYPE_CHECKING:
    from tidemill.storage.tables.backfills import Backfill

Workflow = Annotated[str, Meta(description="The name of a workflow.", examples=["report"]), NameOf("workflow")]
Start = Annotated[
    datetime,
    Meta(tz=True, description="The first slot is at this time or later.", examples=["2026-01-01T00:00:00Z"]),
    WireName("from"),
]
End = Annotated[
    datetime,
    Meta(tz=True, description="The last slot is at this time or earlier.", examples=["2026-01-01T00:00:00Z"]),
    WireName("to"),
]
Preview = Annotated[bool, Meta(description="Whether nothing is started.")]
OnlyMissing = Annotated[bool, Meta(description="Whether slots that have had a run get none.")]
Limit = Annotated[int, Meta(ge=1, description="The maximum number of its runs that run at a time.")]
Key = Annotated[str | None, Meta(description="The schedule, if the workflow has several.")]
Id = Annotated[str, Meta(description="The id of a backfill, as `tidemill backfill start` prints it.")]


class BackfillInfo(Message, frozen=True, kw_only=True):
    """A backfill, and how far it is."""

    id: str
    workflow: str
    from_: datetime | None = msgspec.field(name="from")
    to: datetime | None
    limit: int
    """The maximum number of its runs that run at a time."""
    state: Literal["running", "ended", "cancelled"]
    created_at: datetime
    cancelled_at: datetime | None
    runs: dict[RunState, int]
    """The number of its runs in each state."""

    @classmethod
    def of_row(cls, backfill: "Backfill", states: Mapping[RunState, int]) -> "BackfillInfo":
        """Return the message about a backfill whose runs are in these states."""
        is_running = any(not state.is_terminal for state in states)
        return cls(
            id=backfill.id,
            workflow=backfill.workflow,
            from_=backfill.range_start,
            to=backfill.range_end,
            limit=backfill.limit,
            state="cancelled" if backfill.cancelled_at is not None else "running" if is_running else "ended",
            created_at=backfill.created_at,
            cancelled_at=backfill.cancelled_at,
            runs=dict(states),
        )


@operation(
    GET("/backfills"),
    Permission.READ,
    command=CommandForm(
        "backfill list", columns=("id", "workflow", "state", "runs", "from", "to", "created_at"), empty="no backfills"
    ),
    default_limit=50,
)
async def list_backfills(services: Services, caller: Principal, page: PageRequest) -> Page[BackfillInfo]:
    """List backfills, newest first, with the states of their runs."""
    client = services.workflows
    found = await client.backfills.list_page(caller, after=decode_cursor(page.cursor), limit=page.limit + 1)
    shown = found.backfills[: page.limit]
    states = await client.backfills.count_runs(shown)
    return Page(
        items=[BackfillInfo.of_row(one, states.get(one.id, {})) for one in shown],
        total=found.total,
        next=encode_cursor(shown[-1].id) if len(found.backfills) > page.limit else None,
    )


@operation(
    POST("/backfills", location="/backfills/{id}", may_make_nothing=True),
    Permission.WRITE,
    audit="backfill.start",
)
async def backfill(
    services: Services,
    caller: Principal,
    workflow: Workflow,
    start: Start,
    end: End,
    preview: Preview = False,
    only_missing: OnlyMissing = True,
    limit: Limit = 1,
    key: Key = None,
    request: RequestKey | None = None,
) -> BackfillPlan:
    """Start a run for every past slot of a schedule in a range; a preview says which slots these are.

    The answer has no id if nothing was started.
    """
    return await services.workflows.backfills.start(
        caller,
        workflow,
        start,
        end,
        preview=preview,
        only_missing=only_missing,
        limit=limit,
        key=key,
        id=None if request is None else request.effect,
    )


@operation(
    GET("/backfills/{id}"),
    Permission.READ,
    verbs=(
        Verb("get_backfill", "Return a backfill with the states of its runs.", {}, CommandForm("backfill show")),
    ),  # `backfill` starts one
)
async def get_backfill(services: Services, caller: Principal, id: Id) -> BackfillInfo:
    """Return a backfill with the states of its runs."""
    return await _read(services, caller, id)


@operation(
    POST("/backfills/{id}/cancel"),
    Permission.WRITE,
    audit="backfill.cancel",
    command=CommandForm("backfill cancel", done="backfill {id} is cancelled"),
)
async def cancel_backfill(services: Services, caller: Principal, id: Id) -> BackfillInfo:
    """Start no more runs of a backfill, and cancel its active ones."""
    await services.workflows.backfills.cancel(caller, id)
    return await _read(services, caller, id)


async def _read(services: Services, caller: Principal, id: str) -> BackfillInfo:
    row = await services.workflows.backfills.get(caller, id)
    return BackfillInfo.of_row(row, (await services.workflows.backfills.count_runs([row])).get(id, {}))
