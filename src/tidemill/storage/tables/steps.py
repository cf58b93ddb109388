"""The table of steps: what tasks have done under a name."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from tidemill.storage.tables.database import RowCodec, Statement, Table
from tidemill.storage.tables.declared import DeclaredTable
from tidemill.workflows.records import AttemptKey, TaskError, TaskKey
from tidemill.workflows.step_records import KEPT_VALUE_LIMIT, StepFailure, StepKind, StepName, StepRecord, StepState


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a task run."""

    tenant: str
    run: str
    task: str
    element: int
    kind: StepKind
    name: str
    key: str
    """As JSON; empty if the step has no key."""
    call: int
    """The number of the call under this name; 0 with a key."""
    attempt: int
    """The attempt that has recorded it."""
    try_number: int
    position: int
    """The number of records that the task had before."""
    state: StepState
    value: bytes | None
    error: TaskError | None
    may_retry: bool
    """Whether a retry could help, if it has failed."""
    started_at: datetime
    ended_at: datetime

    @classmethod
    def of_record(cls, tenant: str, key: AttemptKey, record: StepRecord, times: tuple[datetime, datetime]) -> "StepRow":
        """Return the row of what an attempt has recorded, and when it began and ended."""
        failure = record.failure
        return cls(
            tenant=tenant,
            **key._asdict(),
            **record.name._asdict(),
            try_number=record.try_number,
            position=record.position,
            state="success" if failure is None else "failed",
            value=record.value,
            error=None if failure is None else failure.error,
            may_retry=failure is None or failure.may_retry,
            started_at=times[0],
            ended_at=times[1],
        )

    def to_record(self) -> StepRecord:
        """Return what the task sees."""
        failure = None if self.error is None else StepFailure(self.error, self.may_retry)
        name = StepName(self.kind, self.name, self.key, self.call)
        return StepRecord(name, self.try_number, self.position, self.value, failure)


_STEP = RowCodec(StepRow)
_IS_TASK = "run = :run AND task = :task AND element = :element"
_IS_STEP = f"{_IS_TASK} AND kind = :kind AND name = :name AND key = :key AND call = :call"
_SMALL_VALUE = f"CASE WHEN {{bytes_of:value}} > {KEPT_VALUE_LIMIT} THEN NULL ELSE value END"
_LISTED = ", ".join(_SMALL_VALUE if name == "value" else f'"{name}"' for name in _STEP.names)

# A failure gives way to what a later try has recorded, a value to nothing. The row of the task run is locked: an
# attempt that is taken from its worker at this moment records nothing, or has recorded it before.
_ADD = Statement(
    f"""
    INSERT INTO {{schema}}steps AS kept ({{columns}}) SELECT {{parameters}} FROM {{schema}}task_runs
    WHERE {_IS_TASK} AND attempt = :attempt AND state IN {{claimed_tasks}} {{for_update}}
    ON CONFLICT (run, task, element, kind, name, key, call) DO UPDATE SET {{updates}}
    WHERE kept.state <> 'success' RETURNING run
    """,
    _STEP,
)
_STEP_OF = Statement(f"SELECT {{columns}} FROM {{schema}}steps WHERE {_IS_STEP}", _STEP)
_STEPS_OF = Statement(f"SELECT {_LISTED} FROM {{schema}}steps WHERE {_IS_TASK} ORDER BY position, name, call, key")
_STEPS_OF_ALL = Statement(f"""
    SELECT {_LISTED} FROM {{schema}}steps WHERE run = :run AND task = :task
    ORDER BY element, position, name, call, key
""")


class Steps(Table):
    """Steps of tasks."""

    tables = (DeclaredTable("steps", ends_with="run"),)

    async def add(self, row: StepRow) -> bool:
        """Write a step; False if its attempt is no longer the current one, or the step has a value."""
        return bool(await self._change(_ADD, **_STEP.values(row)))

    async def get(self, key: TaskKey, name: StepName) -> StepRow | None:
        """Return a step."""
        return await self._first(_STEP, _STEP_OF, **key._asdict(), **name._asdict())

    async def list_of(self, run: str, task: str, element: int | None) -> Sequence[StepRow]:
        """Return the steps of a task run, or those of all elements, oldest first, without large values."""
        if element is None:
            return await self._list(_STEP, _STEPS_OF_ALL, run=run, task=task)
        return await self._list(_STEP, _STEPS_OF, run=run, task=task, element=element)
