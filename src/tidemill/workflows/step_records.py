"""Records of what a task has done under a name, as they travel between the task and its node."""

from typing import Any, Literal, NamedTuple

import msgspec

from tidemill.workflows.records import TaskError
from tidemill.workflows.waits import WaitRecord

KEPT_VALUE_LIMIT = 1024
"""Bytes of a value that lists of records have; a larger one is read when it is needed."""

StepKind = Literal["step"]
"""What was recorded: a function was called."""
StepState = Literal["success", "failed"]


class StepName(NamedTuple):
    """The name of a record within its task run."""

    kind: StepKind
    name: str
    key: str
    """The key as JSON; empty if the call has none."""
    call: int
    """The number of the call under this name, from 1; 0 with a key."""

    @property
    def shown(self) -> str:
        """The name in messages."""
        return f"{self.kind} '{self.name}'{f' with the key {self.key}' if self.key else ''}"


class StepFailure(msgspec.Struct, frozen=True):
    """Why a step has failed, and whether a retry of its task could help."""

    error: TaskError
    may_retry: bool = True


class StepRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step that has ended: with a value, or with a failure."""

    name: StepName
    try_number: int
    """The try of the task that has recorded it."""
    position: int
    """The number of records that the task had before."""
    value: bytes | None = None
    """The stored form of its value; None if it has failed, or if the value is too large for a list."""
    failure: StepFailure | None = None


class TaskRecords(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that earlier attempts of a task have recorded."""

    steps: tuple[StepRecord, ...] = ()
    waits: tuple[WaitRecord, ...] = ()


def decode_key(key: str) -> Any:
    """Return the key of a record; None if it has none."""
    return msgspec.json.decode(key) if key else None
