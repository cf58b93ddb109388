"""The node of a server: it is listed as one, and loads the packages that are published in its store."""

from tidemill.node import Node
from tidemill.node_parts import NodeParts


class ServerNode(Node):
    """A node that is served over the network."""

    def _make_parts(self) -> NodeParts:
        return NodeParts(kind="server")

    async def _start(self) -> None:
        await super()._start()
        self.start_serving()
