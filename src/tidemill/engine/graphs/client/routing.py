"""Routing of operations: which node runs a reactor or an accumulator."""

from typing import Any, Protocol

from tidemill.engine.graphs.client.operations import GraphOperations
from tidemill.storage.graph_ports import PartKey, PartKind


class NodeOperationsByPart(Protocol):
    """The operations of one node."""

    def for_part(self, part: PartKey) -> Any:
        """Return the operations for a part: those of keyed reactors have the same methods, those of hosts others."""


class OperationRouter(Protocol):
    """Finds the node that runs a reactor or an accumulator."""

    def at(self, part: PartKey) -> GraphOperations:
        """Return the operations of the node that runs a part."""

    async def owned_names(self, tenant: str, kind: PartKind) -> list[str]:
        """Return the names of a tenant's durable parts that some node runs."""

    async def open(self) -> None:
        """Serve the requests of other nodes from now on."""

    @property
    def is_idle(self) -> bool:
        """Whether no request of another node is being served."""


class LocalRouter(OperationRouter):
    """The router of a node without a store: it runs everything itself."""

    def __init__(self, operations: NodeOperationsByPart) -> None:
        self._operations = operations

    def at(self, part: PartKey) -> GraphOperations:
        operations: GraphOperations = self._operations.for_part(part)
        return operations

    async def owned_names(self, tenant: str, kind: PartKind) -> list[str]:  # noqa: ARG002 - as above
        return []

    async def open(self) -> None:
        pass

    @property
    def is_idle(self) -> bool:
        return True
