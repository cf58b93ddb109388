"""The collaborators that every part of the workflow engine shares on one node, with the sizes of pools."""

import logging
from collections.abc import Callable, Mapping
from random import Random

import msgspec

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.executors.interface import Executor
from tidemill.engine.workflows.metrics import WorkflowMetrics
from tidemill.engine.workflows.process_identity import ProcessLiveness
from tidemill.engine.workflows.spans import run_span
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings
from tidemill.storage.tables.pools import Pools
from tidemill.storage.workflow_ports import NodeRow, WorkflowStore
from tidemill.telemetry import events
from tidemill.telemetry.node_events import NodeEvents
from tidemill.telemetry.tracing import NoSpans, SpanRecorder
from tidemill.workflows.records import RunRow
from tidemill.workflows.spec import TaskSpec

STORE_RETRY = Backoff(0.05, 1.0)
"""The delay before a failed store call is retried."""


logger = logging.getLogger(__name__)


class PoolSizes:
    """The slots of each pool, as the store last had them; the store itself decides about each claim.

    `given` are the sizes that this node sets when it starts; `assumed` are those of pools that the store has no size
    of, and are not stored.
    """

    def __init__(
        self, pools: Pools, given: Mapping[str, int] | None = None, assumed: Mapping[str, int] | None = None
    ) -> None:
        self._pools = pools
        self._given = dict(given or {})
        self._assumed = dict(assumed or {})
        self.sizes = self._assumed | self._given
        self.missing: set[str] = set()
        """The pools that workflows named when they could not be loaded, and that still do not exist."""
        self._listeners: list[Callable[[], None]] = []

    async def open(self) -> None:
        """Store the sizes that this node was given, and read those of all pools."""
        for name, before in (await self._pools.set_sizes(self._given) if self._given else {}).items():
            _log_resized(name, before, self._given[name])
        self.sizes = self._assumed | await self._pools.read_sizes()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a listener whenever one of the missing pools exists."""
        self._listeners.append(listener)

    async def refresh(self) -> None:
        """Read the sizes again: other processes may have changed them."""
        known, self.sizes = self.sizes, self._assumed | await self._pools.read_sizes()
        for name, slots in self.sizes.items():
            if known.get(name, slots) != slots:
                _log_resized(name, known[name], slots)
        if self.missing & self.sizes.keys():
            self.missing -= self.sizes.keys()
            for listener in self._listeners:
                listener()


def _log_resized(name: str, before: int, slots: int) -> None:
    logger.warning(events.POOL_RESIZED, extra={"pool": name, "slots": slots, "before": before})


class StoreRetry:
    """Waits between retries of a failed store call, and counts the waiters."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.waiting = 0
        """The number of calls that wait at the moment."""

    async def wait(self, failures: int) -> None:
        """Wait before the next retry, after a number of failures in a row."""
        self.waiting += 1
        try:
            await self._clock.sleep(STORE_RETRY.delay(failures))
        finally:
            self.waiting -= 1


class StoreSharing:
    """Whether other nodes use the store, which may begin while a node runs; `on_begun` is called then."""

    def __init__(self, *, is_shared: bool, on_begun: Callable[[], None] | None = None) -> None:
        self.is_shared = is_shared
        self._on_begun = on_begun

    def begin(self) -> None:
        """Expect other nodes on the store from now on."""
        self.is_shared = True
        if self._on_begun is not None:
            self._on_begun()


class WorkflowRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """The collaborators and settings of the workflow engine on one node."""

    store: WorkflowStore
    owner: NodeRow
    clock: Clock
    settings: Settings
    metrics: WorkflowMetrics
    node_events: NodeEvents
    spans: SpanRecorder = msgspec.field(default_factory=NoSpans)
    tasks: TaskScope = msgspec.field(default_factory=TaskScope)
    liveness: ProcessLiveness
    default_executor: str
    """The executor of tasks that name none."""
    pools: PoolSizes
    sharing: StoreSharing
    executors: dict[str, Executor] = {}
    """The executors of this node, by name; the engine makes them."""
    substitutes_executor: bool = False
    """Whether tasks that name an unknown executor run at the default one."""
    rng: Random = msgspec.field(default_factory=Random)
    """The source of the jitter of retries."""

    @property
    def is_single_node(self) -> bool:
        """Whether no other node can change the store."""
        return not self.sharing.is_shared

    def record_run_span(self, run: RunRow) -> None:
        """Record the span of a run that has ended, if it is traced."""
        span = run_span(run, self.clock.now())
        if span is not None:
            self.spans.record(span)

    def executor_for(self, task: TaskSpec) -> str:
        """Return the executor of a task: the one that it names, or the node's default."""
        named = task.executor
        is_served = not self.substitutes_executor or named in self.executors
        return named if named is not None and is_served else self.default_executor
