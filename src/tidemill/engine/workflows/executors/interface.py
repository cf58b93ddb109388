"""The interface of executors: they run attempts, each at most once, and report how each one ends.

An executor knows nothing of runs, trigger rules and retries. It accepts a request and reports that the attempt starts,
what it logs and how it ended. Every call is idempotent by the attempt's key, so a caller in doubt repeats it.
"""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from tidemill.kernel.errors import OperationError
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.attempt_results import AttemptResult
from tidemill.workflows.capabilities import Grants
from tidemill.workflows.node_calls import NodeCall
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, VersionKey

VALUE_LIMIT = 64 * 1024 * 1024
"""The size limit of a value that a process sends, in bytes."""

STOP_GRACE_PERIOD = 5.0
"""Seconds that code has to end after it was asked to."""


class SingleInput(msgspec.Struct, frozen=True, tag=True):
    """The encoded value of a task."""

    value: bytes


class ListInput(msgspec.Struct, frozen=True, tag=True):
    """The encoded values of the elements of a mapped task that succeeded, in order."""

    values: tuple[bytes, ...]


class ItemOfList(msgspec.Struct, frozen=True, tag=True):
    """One element of a task's list: the encoded list and the element's index."""

    value: bytes
    number: int


class EncodedItem(msgspec.Struct, frozen=True, tag=True):
    """One encoded element of a task's list, cut out so that the whole list need not be sent."""

    value: bytes


Input = SingleInput | ListInput | ItemOfList | EncodedItem


class AttemptRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything needed to run one attempt, except the code."""

    key: AttemptKey
    tenant: str
    workflow: str
    version: str
    executor: str
    number: int
    """The number of the try that the author sees: 1 for the first."""
    deferrals: int
    """The number of its deferrals that are over."""
    params: bytes
    inputs: Mapping[str, Input]
    """By parameter; a missing one has no value."""
    slot: datetime | None = None
    timeout: float | None = None
    has_begun: bool = False
    """Whether the attempt is already recorded as running; then `AttemptListener.record_start` is not called."""

    trace: str | None = None
    """The span of the attempt, as a `traceparent`; None if its run is not traced."""
    captures_output: bool = True
    """Whether what the code prints, logs and warns about is in the attempt's log."""
    value_limit: int = VALUE_LIMIT
    """The size limit of what the task returns, in bytes of its stored form."""

    grants: Grants | None = None
    """What the code may ask of its node; None if it is not restricted."""

    @property
    def version_key(self) -> VersionKey:
        """The workflow version that the attempt belongs to."""
        return VersionKey(self.tenant, self.workflow, self.version)

    def log_fields(self) -> dict[str, object]:
        """Return the fields of log records about the attempt."""
        key = self.key
        index = {} if key.element == UNMAPPED else {"index": key.element}
        ids = {"run_id": key.run, "workflow": self.workflow, "task": key.task, **index, "attempt": key.attempt}
        return {**ids, "tenant": self.tenant}


SlotClass = str
"""The name of one kind of slots of an executor: each kind has its own number."""
COMMON_SLOTS: SlotClass = ""
"""The only class of most executors."""

HandleCall = Callable[[AttemptRequest, NodeCall], Coroutine[Any, Any, Any]]
"""Makes a call of a running attempt on its node, and returns the answer."""


class AttemptListener(Protocol):
    """Receives what executors report about attempts."""

    async def record_start(self, key: AttemptKey) -> bool:
        """Record that an attempt starts; False if it must not, because it is no longer wanted."""

    def on_log(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        """Accept log records of an attempt."""

    def on_ended(self, key: AttemptKey, ending: AttemptResult) -> None:
        """Accept the result of an attempt; called at most once for each."""

    def resume_work(self) -> None:
        """Act on the reports now: no more will follow in this turn of the loop. Executors need not call it."""


class Executor(Protocol):
    """Runs attempts."""

    name: str
    is_immediate: bool
    """Whether it accepts all requests without waiting, through `submit_now`: then `starts_now` is not asked."""
    outlives_node: bool = False
    """Whether its attempts run on when this node ends: they report to any server, and another node adopts them."""

    async def open(self) -> None:
        """Start accepting requests."""

    async def close(self, timeout: float) -> None:
        """Stop every running attempt within `timeout` seconds, without reports."""

    def free_slots(self) -> int:
        """Return how many more attempts it can accept now, whatever slots they need."""

    def slot_class(self, version: VersionKey, task: str) -> SlotClass:  # noqa: ARG002
        """Return the class of slots that attempts of a task need."""
        return COMMON_SLOTS

    def free_slots_of(self, slot_class: SlotClass) -> int:  # noqa: ARG002
        """Return how many more attempts that need slots of a class it can accept now."""
        return self.free_slots()

    def blocked_tenants(self) -> Collection[str]:
        """Return the tenants of which it accepts no attempt for a while."""
        return ()

    def starts_now(self, version: VersionKey) -> bool:  # noqa: ARG002
        """Return whether it accepts requests for this version without waiting, through `submit_now`."""
        return self.is_immediate

    async def submit(self, request: AttemptRequest) -> None:
        """Accept a request, and return once it is accepted. A known attempt is not started again.

        A request that cannot be run raises OperationError, and nothing is started.
        """

    def submit_now(self, request: AttemptRequest) -> None:
        """Accept a request as `submit` does, without waiting; only possible if `starts_now`."""
        raise OperationError(f"executor '{self.name}' cannot accept {request.key} without waiting: use `submit`")

    def running(self) -> set[AttemptKey]:
        """Return the accepted attempts that have not ended."""

    def self_renewing(self) -> set[AttemptKey]:
        """Return the running attempts that renew their leases themselves."""
        return set()

    def on_reported(self, key: AttemptKey) -> None:  # noqa: ARG002
        """Forget an attempt that has reported its result itself. Unknown keys are ignored."""
        return

    def adopt(self, request: AttemptRequest) -> None:
        """Take over an attempt that another node has launched; only possible if its attempts outlive their node."""
        raise OperationError(f"executor '{self.name}' cannot adopt {request.key}: its attempts end with their node")

    def request_sweep(self) -> None:
        """Look soon for what is left of attempts that are over, of all nodes; only the leader asks for it."""
        return

    def on_leases_renewed(self) -> None:
        """Let the running attempts continue: the node has told the store that it owns them."""

    async def cancel(self, key: AttemptKey, reason: str) -> None:
        """Stop an attempt as far as possible; it then reports Cancelled. Unknown keys are ignored."""
