"""Testing support: a node on a virtual clock, with fault injection.

async with tm.testing.node(load=[market, maker]) as node:
    await node.push("orderbook", {"bid": 1.0, "ask": 1.1})
    await node.advance("5s")
"""

from tidemill.kernel.clock import VirtualClock
from tidemill.testing import sources as sources
from tidemill.testing.node import TestNode, node

__all__ = ["TestNode", "VirtualClock", "node"]
