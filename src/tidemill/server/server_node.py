"""The node of a server: it is listed as one, and keeps keys, sessions and its history up to date."""

from typing import Any

from tidemill.node import Node
from tidemill.node_arguments import NodeProfile


class ServerNode(Node):
    """A node that is served over the network; it takes what `Node` takes."""

    def __init__(self, store: str | None = None, **options: Any) -> None:
        super().__init__(store, **options, _profile=NodeProfile(kind="server"))

    async def _start(self) -> None:
        await super()._start()
        self.start_serving()
