"""Waits of tasks: questions that people and programs answer while the task holds no slot, thread or memory."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from tidemill.workflows.records import AttemptKey, TaskKey

TEXT_LIMIT = 64 * 1024
"""Bytes of a question."""
ANSWER_LIMIT = 1024 * 1024
"""Bytes of an answer, as JSON."""
OPEN_LIMIT = 100
"""Open waits of one task run."""
COMMENT_LIMIT = 4_000
"""Characters of a comment."""

WaitState = Literal["open", "answered", "expired", "cancelled"]
AnswerSource = Literal["answer", "signal", "firing", "timeout"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a wait. Its value is plain, except in `ctx.answers`, where it has the type of the wait."""

    name: str
    """The name of the wait."""
    value: Any
    variant: str | None
    """The class of the union that was chosen; None if the wait has no union."""
    by: str
    """The actor: "account:ada", "key:4f2a91c0", "timeout"."""
    at: datetime
    comment: str = ""
    source: AnswerSource = "answer"


class WaitType(msgspec.Struct, frozen=True):
    """What fits as an answer, as JSON Schema: it is checked where the code of the task is not loaded."""

    schema: dict[str, Any]
    variants: tuple[str, ...] = ()
    """The names of the union's classes, in the order of `anyOf`."""


class WaitRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task asks: sent with its deferral, and stored in the same transaction."""

    name: str
    call: int
    """The number of the call under this name, from 1."""
    type: WaitType
    text: str = ""
    by: tuple[str, ...] = ()
    timeout: float | None = None
    """Seconds from the opening."""
    default: str | None = None
    """The answer after that time, as JSON."""
    default_variant: str | None = None
    expires_at: datetime | None = None
    """When it expires, if it is open already."""
    is_open: bool = False


class WaitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A wait, as it is stored."""

    id: str
    tenant: str
    workflow: str
    run: str
    task: str
    element: int
    name: str
    call: int
    attempt: int
    """The attempt that has opened it."""
    try_number: int
    text: str
    type: WaitType
    by: list[str]
    default: str | None
    default_variant: str | None
    opened_at: datetime
    expires_at: datetime | None
    state: WaitState = "open"
    closed_at: datetime | None = None
    answer: Answer | None = None
    is_forgotten: bool = False
    """Whether its task was cleared since."""

    @property
    def final_answer(self) -> Answer | None:
        """The answer, or the default if the time of the wait is over."""
        if self.state != "expired" or self.default is None or self.closed_at is None:
            return self.answer
        return Answer(
            name=self.name,
            value=msgspec.json.decode(self.default),
            variant=self.default_variant,
            by="timeout",
            at=self.closed_at,
            source="timeout",
        )

    def to_record(self) -> "WaitRecord":
        """Return what the task sees."""
        return WaitRecord(self.name, self.call, self.try_number, self.state, self.expires_at, self.final_answer)

    @property
    def task_key(self) -> TaskKey:
        """The task run that waits."""
        return TaskKey(self.run, self.task, self.element)


class WaitRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A wait, as its task sees it."""

    name: str
    call: int
    try_number: int
    state: WaitState
    expires_at: datetime | None = None
    answer: Answer | None = None


def open_wait(
    id: str, tenant: str, workflow: str, key: AttemptKey, try_number: int, request: WaitRequest, now: datetime
) -> WaitRow:
    """Return the row of a wait that a task opens now."""
    return WaitRow(
        id=id,
        tenant=tenant,
        workflow=workflow,
        run=key.run,
        task=key.task,
        element=key.element,
        name=request.name,
        call=request.call,
        attempt=key.attempt,
        try_number=try_number,
        text=request.text,
        type=request.type,
        by=list(request.by),
        default=request.default,
        default_variant=request.default_variant,
        opened_at=now,
        expires_at=None if request.timeout is None else now + timedelta(seconds=request.timeout),
    )


Ref = tuple[str, int]
"""A task run within its run: the task and the element."""


class WaitChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of a run does with its waits."""

    opened: Sequence[WaitRow] = ()
    """Waits that a deferral opens; one that is open already stays as it is."""
    seen: Mapping[Ref, int] = {}
    """The task runs that this change defers, each with the number of ended waits that its attempt knew.

    If there are more, one was answered meanwhile: then the task run is woken at once.
    """
    answered: Sequence[tuple[str, Answer]] = ()
    """Waits by id, with their answers: refused unless they are open."""
    expired: Sequence[Ref] = ()
    """Task runs whose open waits expire if their time has come."""
    cancelled: Sequence[Ref] | None = ()
    """Task runs whose open waits are cancelled; None for all of the run."""
    moved: timedelta = timedelta()
    """By how much the times of the run's open waits are moved: the wall clock was stepped."""
    at: datetime


class WaitDraft:
    """Collects what a draft of a run does with its waits."""

    def __init__(self) -> None:
        self.opened: list[WaitRow] = []
        self.seen: dict[Ref, int] = {}
        self.expired: list[Ref] = []
        self.cancelled: list[Ref] = []
        self.moved = timedelta()

    def build(self, at: datetime) -> WaitChanges:
        """Return the part of the change."""
        return WaitChanges(
            opened=self.opened,
            seen=self.seen,
            expired=self.expired,
            cancelled=self.cancelled,
            moved=self.moved,
            at=at,
        )
