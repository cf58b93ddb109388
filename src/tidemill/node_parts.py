"""The parts of a node that tests and scripts replace, and the store at an address."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tidemill.engine.workflows.executors.remote.interface import AttemptLauncher
from tidemill.engine.workflows.executors.remote.registry import make_launchers
from tidemill.engine.workflows.process_identity import HostLiveness, ProcessLiveness, current_owner
from tidemill.kernel.clock import Clock, SystemClock
from tidemill.kernel.errors import OperationError
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean
from tidemill.kernel.urls import mask_password
from tidemill.storage.node_kinds import NodeKind
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import NodeRow
from tidemill.telemetry.tracing import SpanRecorder

if TYPE_CHECKING:
    from tidemill.engine.ray.hosts import RayHosts


class NodeParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is built from, besides its settings."""

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
    labels: tuple[str, ...] = ()
    """What a worker offers to tasks."""
    spans: SpanRecorder | None = None
    """What records spans; None: as the settings say."""
    make_launchers: Callable[[Settings, Clock], Sequence[AttemptLauncher]] = make_launchers
    """Makes the launchers of remote attempts, as the settings say."""
    watches_loop: bool = True
    """Whether a thread watches the event loop; on a virtual clock no lease runs out."""
    substitutes_executor: bool = False
    """Whether tasks that name an unknown executor run at the node's own."""

    def make_owner(self, concurrency: int) -> NodeRow:
        """Return the identity of a new node in this process."""
        now, labels = self.clock.now(), self.labels
        return current_owner(now, kind=self.kind, name=self.name, labels=labels, concurrency=concurrency)


def make_ray_hosts(settings: Settings, clock: Clock, store: str, is_leader: Callable[[], bool]) -> "RayHosts | None":
    """Return the hosts that a node keeps alive on a Ray cluster; None, and nothing is imported, if it keeps none."""
    if settings.ray_address is None or settings.ray_hosts is None:
        return None
    make: Callable[..., RayHosts] = importlib.import_module("tidemill.engine.ray.hosts").make_hosts
    return make(settings, clock, store, is_leader)


STORE_SCHEMES = ("sqlite", "postgresql", "postgres")


def make_store(address: str, now: Callable[[], datetime] | None = None) -> Store:
    """Return the store at an address, not opened yet; its driver is imported here.

    Leases expire by `now` if it is given, and otherwise by the store's own clock.
    """
    scheme, _, rest = str(address).partition("://")
    if scheme == "sqlite" and rest.removeprefix("/"):
        return _import_store_class("sqlite.store", "SqliteStore")(rest.removeprefix("/"), now=now)
    if scheme in ("postgresql", "postgres") and rest:
        return _import_store_class("postgres.store", "PostgresStore")(f"postgresql://{rest}", now=now)
    is_known = scheme in STORE_SCHEMES or not rest
    unknown = "" if is_known else f"there is no store '{scheme}'{did_you_mean(scheme, STORE_SCHEMES)}; "
    raise OperationError(
        f"store {mask_password(str(address))!r}: {unknown}an address looks like 'sqlite:///tidemill.db' (SQLite) "
        "or 'postgresql://user@host:5432/database' (PostgreSQL); leave it out to keep everything in memory"
    )


def make_memory_store(now: Callable[[], datetime], *database: Any) -> Store:
    """Return a store that ends with its object; with a memory database, one that shares its rows."""
    return _import_store_class("sqlite.memory", "MemoryStore")(now, *database)


def with_absolute_path(address: str) -> str:
    """Return an address that names the same file even if author code changes the working directory."""
    scheme, _, rest = str(address).partition("://")
    return f"sqlite:///{Path(rest.removeprefix('/')).absolute()}" if scheme == "sqlite" else address


def _import_store_class(module: str, name: str) -> Callable[..., Store]:
    """Import a store and its driver; raise OperationError if the driver is not installed."""
    try:
        kind: Callable[..., Store] = getattr(importlib.import_module(f"tidemill.storage.{module}"), name)
    except ImportError as error:
        folder = module.partition(".")[0]
        raise OperationError(f"{folder} needs its driver: pip install 'tidemill[{folder}]' ({error})") from error
    return kind
