"""The interface of launchers: they start one unit of a cluster per attempt, such as a pod, and observe it.

A unit runs `tidemill attempt` with the environment of its launch. Everything about the attempt itself, its start, its
heartbeats, its log and its result, goes from there to a server. A launcher knows only whether units exist, and why
they have ended: the executor needs that for units that never report.
"""

from collections.abc import Mapping
from math import inf
from typing import Any, Literal, Protocol

import msgspec

from tidemill.kernel.errors import OperationError
from tidemill.workflows.records import AttemptKey

SERVER_URL_VARIABLE = "TIDEMILL_SERVER_URL"
"""Names the server that an attempt reports to."""

TOKEN_VARIABLE = "TIDEMILL_ATTEMPT_TOKEN"
"""Holds the token of an attempt."""

TOKEN_FILE_VARIABLE = f"{TOKEN_VARIABLE}_FILE"
"""Names a file with the token of an attempt, where units can mount one."""

ATTEMPT_COMMAND = ("tidemill", "attempt")
"""What a unit runs."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What a launcher needs to start the unit of one attempt."""

    key: AttemptKey
    tenant: str
    workflow: str
    version: str
    token: str
    """The token of the attempt: a secret. The unit gets it as TOKEN_VARIABLE, or as the file TOKEN_FILE_VARIABLE."""
    environment: Mapping[str, str]
    """The other variables of the unit, none of them secret."""
    resources: Mapping[str, Any] = {}
    """The resources that the task asks for."""
    options: Mapping[str, Any] = {}
    """The other options of the task that only launchers read: `image`, `pod`."""
    timeout: float | None = None
    """Seconds that the task may run; None for no limit."""

    def full_environment(self) -> dict[str, str]:
        """Return all variables of the unit, the token among them."""
        return {**self.environment, TOKEN_VARIABLE: self.token}


UnitState = Literal["pending", "running", "ended", "missing"]
"""The state of a unit. "missing" is final: the unit existed, and is gone without a trace of how it ended."""

UnitCause = Literal[
    "completed", "error", "oom", "evicted", "image_pull", "pending_timeout", "deleted", "node_lost", "refused"
]
"""Why a unit has ended. "refused": the cluster rejects it, and would reject it again."""


class UnitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a launcher sees of a unit."""

    state: UnitState
    reason: str = ""
    """A sentence for people: what the cluster says about the unit."""
    cause: UnitCause | None = None
    """Why it has ended; None while it has not."""
    problem: UnitCause | None = None
    """What keeps a pending unit from starting, and would be its cause of death if it does not pass."""
    exit: int | None = None
    """The exit code of its process, if there is one."""
    log_tail: str = ""
    """The end of what the unit has printed, if it has ended."""

    @property
    def is_over(self) -> bool:
        """Whether the unit no longer runs anything."""
        return self.state in ("ended", "missing")


class StartTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a unit may be pending, in seconds."""

    pending: float = inf
    """In all."""
    problem: float = inf
    """With a problem."""


class UnitObserver(Protocol):
    """Receives what a launcher sees."""

    def on_unit(self, key: AttemptKey, status: UnitStatus) -> None:
        """Accept the status of a unit; a repeated one changes nothing."""

    def on_removed(self, key: AttemptKey) -> None:
        """Accept that a unit is out of sight: the cluster keeps nothing of one that has ended, or another cluster has
        replaced that of one that runs. Unknown keys are ignored.
        """


class ClusterUnavailableError(OperationError):
    """The cluster takes no unit at present, whichever tenant it is for."""


class AttemptLauncher(Protocol):
    """Starts units on one cluster, and observes them.

    Every call is idempotent by the attempt's key. A call that the cluster does not answer, or answers with an error
    that may pass, raises OperationError; a launcher itself waits, backs off and repeats as its cluster asks.
    """

    name: str
    """The executor that it serves: "kubernetes", "ray"."""
    start_timeouts: StartTimeouts = StartTimeouts()
    """How long its units may be pending. The executor of the node that has launched a unit enforces it."""

    async def open(self, observer: UnitObserver, instance: str) -> None:
        """Begin to observe: every unit of this instance that exists, then all changes.

        `instance` identifies the store, and so all nodes that share the units: a launcher marks its units with it, and
        leaves those of other instances alone. It returns without waiting for a cluster that does not answer.
        """

    async def close(self) -> None:
        """Stop observing. The units live on."""

    def free_slots(self) -> int:
        """Return how many more units it can start now."""

    def is_watching(self, tenant: str) -> bool:  # noqa: ARG002
        """Return whether it sees the units of a tenant as they are now: not while the cluster does not answer."""
        return True

    async def launch(self, launch: Launch) -> None:
        """Start a unit; one that exists already is a success.

        OperationError if the cluster rejects it for a reason that passes, such as a quota: the attempt is handed back,
        and its tenant launches no other one for a while. After ClusterUnavailableError, no tenant does.
        A unit that can never be started is reported to the observer as ended, with its cause.
        """

    async def delete(self, key: AttemptKey, grace: float) -> None:
        """Stop a unit: SIGTERM, then SIGKILL after `grace` seconds. Unknown keys are ignored."""

    async def discard(self, key: AttemptKey) -> None:
        """Forget a unit whose end is recorded, or will be: its remains may be removed. Unknown keys are ignored."""
