"""The address that a server gives to its units."""

import socket
from typing import Self

from tidemill.cli.commands.server import _serve
from tidemill.cli.interrupts import Interrupts
from tidemill.cli.output import Format
from tidemill.server.app import make_server_app
from tidemill.server.serving import ServerNode


class _WatchedNode(ServerNode):
    """Notes the address that it has when it opens."""

    url_at_start: str | None = None

    async def __aenter__(self) -> Self:
        self.url_at_start = self.server_url
        return await super().__aenter__()


def own_address() -> str:
    """Return an address of this machine that others can use; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


async def test_a_server_knows_its_address_before_its_node_opens() -> None:
    """W-12: a node that starts continues the runs of its store at once. Their units need the address of a server."""
    interrupts = Interrupts(on_second=lambda: None)
    node, host = _WatchedNode(), own_address()
    interrupts.exit_code = 0  # a signal has come: the command ends as soon as it serves
    await _serve(node, make_server_app(node, has_authentication=False), host, 0, interrupts, Format.JSON)
    assert node.url_at_start is not None
    assert node.url_at_start.startswith(f"http://{host}:")
