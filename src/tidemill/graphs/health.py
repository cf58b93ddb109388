"""The health of accumulators and reactors: their states and the allowed transitions."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

from tidemill.kernel.transitions import TransitionTable

PartKind = Literal["reactor", "accumulator"]


class AccumulatorHealth(StrEnum):
    """The state of an accumulator's connection to its source."""

    STARTING = "starting"
    CONNECTING = "connecting"
    LIVE = "live"
    DISCONNECTED = "disconnected"
    SOCKET_ONLY = "socket_only"
    FAILED = "failed"

    @property
    def is_healthy(self) -> bool:
        """Whether a reactor may rely on it."""
        return self in (AccumulatorHealth.LIVE, AccumulatorHealth.SOCKET_ONLY)


class ReactorHealth(StrEnum):
    """The state of a reactor."""

    STARTING = "starting"  # being built, or waiting for a restart after a crash
    WARMING = "warming"  # accepts boundaries, and waits for its accumulators to become healthy
    LIVE = "live"
    DEGRADED = "degraded"  # fires with the last values of disconnected accumulators
    FAILED = "failed"  # no longer restarted; an operator may restart it

    @property
    def can_fire(self) -> bool:
        """Whether the reactor fires in this state when its criteria are met."""
        return self in (ReactorHealth.LIVE, ReactorHealth.DEGRADED)


_A, _R = AccumulatorHealth, ReactorHealth

ACCUMULATOR_TRANSITIONS = TransitionTable(
    {
        _A.STARTING: {_A.CONNECTING, _A.LIVE, _A.SOCKET_ONLY, _A.DISCONNECTED, _A.FAILED},
        _A.CONNECTING: {_A.LIVE, _A.SOCKET_ONLY, _A.DISCONNECTED, _A.FAILED, _A.STARTING},
        _A.LIVE: {_A.DISCONNECTED, _A.SOCKET_ONLY, _A.FAILED, _A.STARTING},
        _A.DISCONNECTED: {_A.STARTING, _A.CONNECTING, _A.LIVE, _A.SOCKET_ONLY, _A.FAILED},
        _A.SOCKET_ONLY: {_A.DISCONNECTED, _A.FAILED, _A.STARTING},
        _A.FAILED: {_A.STARTING},
    }
)

REACTOR_TRANSITIONS = TransitionTable(
    {
        _R.STARTING: {_R.WARMING, _R.FAILED},
        _R.WARMING: {_R.LIVE, _R.STARTING, _R.FAILED},
        _R.LIVE: {_R.DEGRADED, _R.STARTING, _R.FAILED},
        _R.DEGRADED: {_R.LIVE, _R.STARTING, _R.FAILED},
        _R.FAILED: {_R.STARTING},
    }
)


class UnhealthyPart(msgspec.Struct, frozen=True, kw_only=True):
    """A reactor or an accumulator that is not as it should be."""

    kind: PartKind
    name: str
    health: str
    since: datetime | None
    """When it entered this health; null if its node does not answer."""
    reason: str
