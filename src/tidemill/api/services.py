"""The services that operations use: those of a node, or those of a store without a node.

The engines are imported where services are made: a command that only declares its options needs none of them.
"""

from typing import TYPE_CHECKING, NamedTuple

from tidemill.kernel.errors import RequestError

if TYPE_CHECKING:
    from tidemill.engine.access.services import AccessServices
    from tidemill.engine.graphs.client.dead_letter_client import DeadLetterClient
    from tidemill.engine.graphs.client.graph_client import GraphClient
    from tidemill.engine.graphs.client.listed_values import StoredDeadLetters
    from tidemill.engine.history import History
    from tidemill.engine.workflows.client.catalog import WorkflowCatalog
    from tidemill.engine.workflows.client.workflow_client import WorkflowClient
    from tidemill.kernel.settings import Settings
    from tidemill.packages.format.signature import TrustPolicy
    from tidemill.packages.published import PublishedPackages
    from tidemill.packages.service import PackageService
    from tidemill.storage.store import Store
    from tidemill.storage.workflow_ports import NodeRow
    from tidemill.telemetry.metrics import Metrics


class NodeServices(NamedTuple):
    """What only a running node has."""

    graphs: "GraphClient"
    packages: "PackageService"
    metrics: "Metrics"
    history: "History"


class Services:
    """What operations call. What only a running node has raises a RequestError on a store without one."""

    def __init__(
        self,
        *,
        access: "AccessServices",
        workflows: "WorkflowClient",
        package_registry: "PublishedPackages",
        store: "Store",
        settings: "Settings",
        node: NodeServices | None = None,
    ) -> None:
        self.access = access
        self.workflows = workflows
        self.package_registry = package_registry
        """The packages of the store; on a node, with what it has made of them."""
        self.store = store
        self.settings = settings
        self._node = node

    @property
    def owner(self) -> "NodeRow":
        """The node, as its store knows it."""
        self._require_node()
        return self.workflows.nodes.owner

    @property
    def catalog(self) -> "WorkflowCatalog":
        """The workflows that the node has loaded, with their schedules and triggers."""
        self._require_node()
        return self.workflows.catalog

    @property
    def graphs(self) -> "GraphClient":
        """The graphs, reactors and accumulators of the node, and of the nodes that it knows."""
        return self._require_node().graphs

    @property
    def dead_letters(self) -> "DeadLetterClient | StoredDeadLetters":
        """The dead letters of the node; without one, those in the store."""
        from tidemill.engine.graphs.client.listed_values import StoredDeadLetters  # on use: help needs no engine

        return StoredDeadLetters(self.store) if self._node is None else self._node.graphs.dead_letters

    @property
    def packages(self) -> "PackageService":
        """The packages of the node."""
        return self._require_node().packages

    @property
    def metrics(self) -> "Metrics":
        """The metrics of the node."""
        return self._require_node().metrics

    @property
    def history(self) -> "History":
        """What the figures of the node were."""
        return self._require_node().history

    def _require_node(self) -> NodeServices:
        if self._node is None:
            raise no_server_error()
        return self._node


def open_services(store: "Store", settings: "Settings") -> Services:
    """Return the services of an open store without a node: the nodes on the store pick up what they change."""
    from tidemill.engine.access.services import AccessServices  # on use: commands that show help need no engine
    from tidemill.engine.workflows.client.store_client import make_store_client  # on use: likewise
    from tidemill.kernel.clock import SystemClock  # on use: likewise, it imports asyncio
    from tidemill.packages.published import PublishedPackages  # on use: likewise

    clock = SystemClock()
    workflows = make_store_client(store, clock, settings, executor="in_process")
    packages = PublishedPackages(store, clock, settings, lambda: _make_trust(store, settings))
    access = AccessServices(store, clock, settings)
    return Services(access=access, workflows=workflows, package_registry=packages, store=store, settings=settings)


def _make_trust(store: "Store", settings: "Settings") -> "TrustPolicy":
    from tidemill.packages.publishing import make_trust  # on use: cryptography takes long to import

    return make_trust(store.trusted_keys, settings)


def no_server_error() -> RequestError:
    """Return the error for what a store without a running server cannot do."""
    return RequestError("this works with a running server, not on a store alone", code="no_server")
