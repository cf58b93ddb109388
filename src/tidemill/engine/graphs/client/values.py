"""Values that pass between nodes, and between the graph client and the server."""

import msgspec

from tidemill.graphs.health import UnhealthyPart
from tidemill.graphs.state import AccumulatorState, ReactorState
from tidemill.graphs.views import FiringView


class FiringPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the firings that a reactor keeps, newest first."""

    firings: list[FiringView]
    kept: int
    """The number of all firings that are kept."""
    has_more: bool
    """Whether older ones follow."""


class ReactorObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A reactor at one moment, and its newest firing, which shows the route that events take."""

    state: ReactorState
    last_firing: FiringView | None
    """None if there is none, or if it is the known one."""
    is_known: bool
    """Whether the newest firing is still the one that the caller knows."""


class KnownFiring(msgspec.Struct, frozen=True):
    """A firing that a caller has: a retry has the same id."""

    id: str
    attempt: int


class HostStates(msgspec.Struct, frozen=True, kw_only=True):
    """What one host runs of a keyed reactor."""

    partitions: list[ReactorState]
    sources: list[AccumulatorState]
    """The sources that it reads for all partitions."""


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a reactor and its accumulators, and how many dead letters they have."""

    unhealthy: list[UnhealthyPart]
    dead_letters: dict[str, int]
    """By kind and name, such as `accumulator orderbook`; those without any are left out."""
