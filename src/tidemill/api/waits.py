"""Waits: what tasks ask people and programs, and the answers."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tidemill.access.principal import Permission, Principal
from tidemill.api.fields import Positional
from tidemill.api.operation import GET, POST, CommandForm, Message, operation
from tidemill.api.paging import Page, PageRequest, decode_cursor, encode_cursor, page_in_order
from tidemill.api.services import Services
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.waits import Answer, WaitRow, WaitState

ListedState = Annotated[
    Literal["open", "answered", "expired", "cancelled", "all"], Meta(description="The state, or `all`.")
]
Variant = Annotated[str | None, Meta(description="The class of the union that the value is of, if there is a choice.")]
Comment = Annotated[str, Meta(description="A remark, kept with the answer; at most 4,000 characters.")]
AnswerValue = Annotated[Any, Meta(description="The answer: JSON.")]
OfWorkflow = Annotated[str, Meta(description="Only waits of this workflow.")]
OfRun = Annotated[str, Meta(description="Only waits of this run.")]
Mine = Annotated[bool, Meta(description="Only those that the caller may answer.")]


class Wait(Message, frozen=True, kw_only=True):
    """A question of a task, and the answer once there is one."""

    id: str
    run: str
    workflow: str
    task: str
    index: int | None
    """The element of a mapped task."""
    name: str
    text: str
    """What is asked, as Markdown."""
    schema: dict[str, Any]
    """What fits, as JSON Schema."""
    variants: list[str]
    """The names of the union's classes; empty if there is no choice."""
    by: list[str]
    """Who may answer; empty: everyone with the role `write`."""
    opened_at: datetime
    expires_at: datetime | None
    state: WaitState
    answer: Answer | None
    url: str | None = None

    @classmethod
    def of_row(cls, row: WaitRow) -> "Wait":
        """Return the message about a stored wait."""
        return cls(
            id=row.id,
            run=row.run,
            workflow=row.workflow,
            task=row.task,
            index=None if row.element == UNMAPPED else row.element,
            name=row.name,
            text=row.text,
            schema=row.type.schema,
            variants=list(row.type.variants),
            by=row.by,
            opened_at=row.opened_at,
            expires_at=row.expires_at,
            state=row.state,
            answer=row.final_answer,
        )


_LISTED = ("id", "workflow", "name", "run", "task", "index", "state", "opened_at", "expires_at")


@operation(
    GET("/waits"),
    Permission.READ,
    command=CommandForm("wait list", columns=_LISTED, rare=("index", "expires_at"), empty="no waits"),
)
async def list_waits(
    services: Services,
    caller: Principal,
    page: PageRequest,
    state: ListedState = "open",
    workflow: OfWorkflow = "",
    run: OfRun = "",
    mine: Mine = False,
) -> Page[Wait]:
    """List waits, oldest first: those that are open, unless another state is asked for."""
    waits, chosen = services.workflows.waits, "" if state == "all" else state
    after = decode_cursor(page.cursor, tuple[datetime, str])
    position = {} if after is None else {"after": after}
    rows, total = await waits.list_page(
        caller, state=chosen, workflow=workflow, run=run, limit=page.limit + 1, **position
    )
    shown, last = rows[: page.limit], rows[page.limit - 1] if len(rows) > page.limit else None
    items = [Wait.of_row(row) for row in shown if not mine or await waits.may_answer(caller, row)]
    return Page(items=items, total=total, next=None if last is None else encode_cursor((last.opened_at, last.id)))


@operation(GET("/waits/{id}"), Permission.READ, command=CommandForm("wait show"))
async def get_wait(services: Services, caller: Principal, id: str) -> Wait:
    """Return a wait."""
    return Wait.of_row(await services.workflows.waits.get(caller, id))


@operation(
    POST("/waits/{id}/answer", errors=(409,)),
    Permission.READ,
    audit="wait.answer",
    command=CommandForm("wait answer", done="'{name}' of run {run} is answered"),
)
async def answer(
    services: Services,
    caller: Principal,
    id: str,
    value: Annotated[AnswerValue, Positional()],
    variant: Variant = None,
    comment: Comment = "",
) -> Wait:
    """Answer an open wait, and return it.

    The wait says who may do so: else `not_allowed`. An answer that does not fit is `invalid_answer`, with the path
    of each error, and the wait stays open. Of two answers one wins, the other gets `wait_closed`.
    """
    return Wait.of_row(await services.workflows.waits.answer(caller, id, value, variant=variant, comment=comment))


@operation(GET("/runs/{run}/waits"), Permission.READ)
async def list_run_waits(services: Services, caller: Principal, page: PageRequest, run: str) -> Page[Wait]:
    """List the waits of a run in all states, oldest first."""
    return page_in_order([Wait.of_row(row) for row in await services.workflows.waits.of_run(caller, run)], page)


def answer_fields(wait: Wait, value: Any, *, variant: str | None, comment: str) -> dict[str, Any]:
    """Return the fields of a request that answers a wait; an instance of a class of its union names the variant."""
    if variant is None and type(value).__name__ in wait.variants and hasattr(value, "__struct_fields__"):
        variant = type(value).__name__
    return {"id": wait.id, "value": to_json_value(value), "variant": variant, "comment": comment}


def to_json_value(value: Any) -> Any:
    """Return a value as JSON holds it; one that it cannot hold as it is: the answer is refused."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return value


def find_open_wait(waits: Sequence[Wait], name: str, index: int | None) -> Wait:
    """Return the open wait of a name; RequestError if there is none, or if there are several."""
    still_open = [one for one in waits if one.state == "open"]
    found = [one for one in still_open if one.name == name and index in (None, one.index)]
    if len(found) == 1:
        return found[0]
    if not found:
        known = sorted({one.name for one in still_open})
        there_are = f"open are {', '.join(known)}" if known else "none is open"
        which = name if index is None else f"{name}[{index}]"
        message = f"there is no open wait '{which}'{did_you_mean(name, known)}: {there_are}"
        raise RequestError(message, code="wait_not_found", status=404, wait=name, suggestions=known)
    indexes = [one.index for one in found]
    message = f"{len(found)} waits '{name}' are open: choose one with index=, of {', '.join(map(str, indexes))}"
    raise RequestError(message, code="ambiguous_wait", status=409, indexes=indexes)
