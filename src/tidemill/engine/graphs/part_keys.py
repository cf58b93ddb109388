"""The keys of the parts that a reactor and its accumulators have in checkpoints, and under which nodes own them."""

from tidemill.graphs.definition import Reactor
from tidemill.storage.graph_ports import PartKey


def reactor_part_keys(tenant: str, reactor: Reactor) -> set[PartKey]:
    """Return the keys of the parts of a reactor and its accumulators."""
    accumulators = {PartKey(tenant, "accumulator", one.name) for one in reactor.accumulators}
    return {PartKey(tenant, "reactor", reactor.name), *accumulators}
