"""The values that the client returns, where the node has none of its own for them."""

from datetime import datetime
from typing import Any

import msgspec

from tidemill.access.principal import Role
from tidemill.graphs.result import Receipt
from tidemill.workflows.states import RunState


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a server."""

    version: str
    api: str


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The principal that the server takes the client for."""

    actor: str
    tenant: str
    role: Role
    is_instance_admin: bool = False
    only: list[str] | None = None
    """The endpoints that its key is restricted to."""


# -- runs


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run without its tasks, as lists show it."""

    id: str
    workflow: str
    version: str
    state: RunState
    origin: str
    """What started it: "manual", "schedule", "trigger", "firing", "backfill" or "task"."""
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    slot: datetime | None = None
    backfill: str | None = None
    params: dict[str, Any] = {}
    note: str | None = None
    reason: str = ""


class RunTransition(msgspec.Struct, frozen=True, kw_only=True):
    """A transition of a run, or of one of its tasks."""

    number: int
    at: datetime
    actor: str
    before: str
    after: str
    task: str | None = None
    """None: the run itself."""
    index: int | None = None
    """The element of a mapped task."""
    attempt: int = 0
    reason: str = ""


class RerunCounts(msgspec.Struct, frozen=True):
    """How many elements of a mapped task rerun."""

    reruns: int
    total: int


class Rerun(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that a retry or a clear reruns, or for a preview would rerun."""

    run: str
    reruns: list[str]
    reused: list[str] = []
    elements: dict[str, RerunCounts] = {}
    """By mapped task of which a part reruns."""
    version: str = ""
    """The workflow version that the run continues with."""
    missing_tasks: list[str] = []
    """Tasks of the run that this version does not have."""
    note: str | None = None
    preview: bool = False


class Reasons(msgspec.Struct, frozen=True):
    """Why a task has not run, or how it ended."""

    reasons: list[str]


class TaskLogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log of a task."""

    at: datetime
    message: str
    level: str = "info"
    stream: str = "log"
    """Where it comes from: "log", "stdout" or "stderr"."""
    fields: dict[str, Any] = {}
    attempt: int = 1
    index: int | None = None
    """The element of a mapped task."""


# -- graphs


class PushAnswer(msgspec.Struct, frozen=True):
    """The receipts of a push of many events, in their order."""

    receipts: list[Receipt]


class FiringCounts(msgspec.Struct, frozen=True):
    """How often a reactor has fired in each of the last 60 minutes, oldest first."""

    per_minute: list[int]
