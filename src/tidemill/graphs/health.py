"""The health of accumulators and reactors: states, and which may follow which."""

from enum import StrEnum

from tidemill.kernel.transitions import TransitionTable


class AccumulatorHealth(StrEnum):
    """How an accumulator stands with its source."""

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
    """Whether a reactor fires, and on what."""

    STARTING = "starting"  # being built, or waiting to be after a crash
    WARMING = "warming"  # takes boundaries in, waits for accumulators to become healthy
    LIVE = "live"
    DEGRADED = "degraded"  # fires on, with the last value of what was lost
    FAILED = "failed"  # given up; an operator may restart it

    @property
    def can_fire(self) -> bool:
        """Whether criteria lead to firings in this state."""
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
