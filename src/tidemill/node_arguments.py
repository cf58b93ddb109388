"""The arguments of a node, with their checks, and its profile: what kinds of nodes choose about their parts."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from tidemill.engine.access.given_values import GivenValues
from tidemill.engine.forwarding.wire import OpenWire, open_websocket
from tidemill.engine.graphs.runtime import HealthFilter, OpenReader, keep_health
from tidemill.engine.graphs.sources.reader import open_reader
from tidemill.engine.workflows.executors.code import LoadedWorkflows
from tidemill.engine.workflows.executors.in_process import InProcess
from tidemill.engine.workflows.executors.interface import AttemptListener, Executor, HandleCall
from tidemill.engine.workflows.executors.remote.executor import RemoteExecutor
from tidemill.engine.workflows.executors.remote.interface import AttemptLauncher
from tidemill.engine.workflows.executors.remote.registry import make_launchers
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.engine.workflows.process_identity import HostLiveness, ProcessLiveness, current_owner
from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.kernel.clock import Clock, SystemClock
from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.limits import MAX_INTEGER, WORD_RULE, is_word
from tidemill.kernel.masking import SecretMask
from tidemill.kernel.settings import Settings
from tidemill.storage.addresses import make_memory_store, make_store
from tidemill.storage.node_kinds import NodeKind
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import NodeRow
from tidemill.telemetry.tracing import SpanRecorder
from tidemill.workflows.workflow import Workflow


class NodeArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What a program gives a node, checked; see `Node`."""

    address: str | None
    """The address of the store."""
    settings: Settings
    executor: str
    concurrency: int
    pools: Mapping[str, int]
    tenant: str
    given: GivenValues


def check_count(name: str, value: int) -> int:
    """Return a number of something that there must be one of at least; DefinitionError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_INTEGER:
        raise DefinitionError.single("node", f"{name} is a whole number from 1 to {MAX_INTEGER}, not {value!r}")
    return value


def list_loads(load: Any) -> list[Any]:
    """Return what a node is to load as a list; a single thing makes one, too."""
    return [load] if isinstance(load, Reactor | Graph | Workflow | ModuleType | str | Path) else list(load)


def check_pools(pools: Mapping[str, int] | None) -> dict[str, int]:
    """Return the slots of pools by name; DefinitionError if they are not words and numbers."""
    if not isinstance(pools, Mapping | None):
        raise DefinitionError.single("node", f"pools= takes slots by pool, such as {{'warehouse': 2}}, not {pools!r}")
    for name in pools or ():
        if not is_word(name):
            raise DefinitionError.single("node", f"a pool has a name, {WORD_RULE}, not {name!r}")
    return {name: check_count(f"pool '{name}'", slots) for name, slots in (pools or {}).items()}


class ServerAddress:
    """The address of a server of a node, under which units of clusters reach it; None if none is known."""

    def __init__(self, url: str | None) -> None:
        self.url = url

    def suggest(self, url: str | None) -> None:
        """Use an address, unless the settings have named one."""
        self.url = self.url or url


class ExecutorContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the executors of a node are made with."""

    workflows: LoadedWorkflows
    listener: AttemptListener
    launchers: Sequence[AttemptLauncher]
    clock: Clock
    settings: Settings
    store: Store
    owner: NodeRow
    concurrency: int
    handle_call: HandleCall
    mask: SecretMask
    address: ServerAddress

    @property
    def options(self) -> dict[str, Any]:
        """The options that every executor of this host takes."""
        return {"concurrency": self.concurrency, "handle_call": self.handle_call, "mask": self.mask}

    def make_remote(self, launcher: AttemptLauncher) -> RemoteExecutor:
        """Return the executor whose attempts a launcher starts."""
        return RemoteExecutor(
            launcher,
            self.store,
            self.workflows,
            self.listener,
            self.clock,
            self.settings,
            owner=self.owner.id,
            server_url=lambda: self.address.url,
            mask=self.mask,
        )


def make_executors(context: ExecutorContext) -> dict[str, Executor]:
    """Return the executors of a node that plans runs: in this process, in subprocesses, and one for each launcher."""
    own = [
        kind(context.workflows, context.listener, context.clock, **context.options) for kind in (InProcess, Subprocess)
    ]
    executors: list[Executor] = [*own, *map(context.make_remote, context.launchers)]
    return {executor.name: executor for executor in executors}


class NodeProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What kinds of nodes, and tests, choose about the parts of a node; programs choose what `Node` takes."""

    clock: Clock = msgspec.field(default_factory=SystemClock)
    liveness: ProcessLiveness = msgspec.field(default_factory=HostLiveness)
    is_single_node: bool | None = None
    """Whether no other node can use the same store; None: if the node has no store."""
    assumed_pools: Mapping[str, int] = {}
    """The sizes of pools that neither the node nor the store has; they are not stored."""
    kind: NodeKind = "embedded"
    """What the node is: a worker only runs attempts."""
    name: str | None = None
    """The name under which the node is listed; None: the host's name and the pid."""
    open_wire: OpenWire = open_websocket
    """Opens a connection to another node."""
    labels: tuple[str, ...] = ()
    """What a worker offers to tasks."""
    spans: SpanRecorder | None = None
    """What records spans; None: as the settings say."""
    open_store: Callable[[str], Store] = make_store
    """Returns the store at an address, not opened yet."""
    make_run_store: Callable[[Callable[[], datetime]], Store] = make_memory_store
    """Makes the store of runs for a node without an address: it ends with the node."""
    make_launchers: Callable[[Settings, Clock], Sequence[AttemptLauncher]] = make_launchers
    """Makes the launchers of remote attempts, as the settings say."""
    make_executors: Callable[[ExecutorContext], Mapping[str, Executor]] = make_executors
    """Makes the executors of the node, by name."""
    open_reader: OpenReader = open_reader
    """Opens the sources of streams."""
    health_filter: HealthFilter = keep_health
    """Returns the health that an accumulator gets."""
    watches_loop: bool = True
    """Whether a thread watches the event loop; on a virtual clock no lease runs out."""
    substitutes_executor: bool = False
    """Whether tasks that name an unknown executor run at the node's own."""

    def make_owner(self, concurrency: int) -> NodeRow:
        """Return the identity of a new node in this process."""
        now, labels = self.clock.now(), self.labels
        return current_owner(now, kind=self.kind, name=self.name, labels=labels, concurrency=concurrency)
