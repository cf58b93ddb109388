"""Health: the allowed transitions, over the full product of states."""

from itertools import product
from typing import Any

import pytest

import tidemill as tm
from tidemill.graphs.health import ACCUMULATOR_TRANSITIONS, REACTOR_TRANSITIONS
from tidemill.kernel.errors import IllegalTransitionError

ACCUMULATOR = {
    "starting": "connecting live disconnected socket_only failed",
    "connecting": "starting live disconnected socket_only failed",
    "live": "starting disconnected socket_only failed",
    "disconnected": "starting connecting live socket_only failed",
    "socket_only": "starting disconnected failed",
    "failed": "starting",
}
REACTOR = {
    "starting": "warming failed",
    "warming": "starting live failed",
    "live": "starting degraded failed",
    "degraded": "starting live failed",
    "failed": "starting",
}


@pytest.mark.parametrize(("before", "after"), list(product(tm.AccumulatorHealth, tm.AccumulatorHealth)))
def test_accumulators_change_state_only_as_the_table_allows(
    before: tm.AccumulatorHealth, after: tm.AccumulatorHealth
) -> None:
    """Accumulators: Starting, Connecting, Live, Disconnected, SocketOnly, Failed."""
    allowed = before is after or after.value in ACCUMULATOR[before.value].split()
    assert ACCUMULATOR_TRANSITIONS.is_allowed(before, after) is allowed


@pytest.mark.parametrize(("before", "after"), list(product(tm.ReactorHealth, tm.ReactorHealth)))
def test_reactors_change_state_only_as_the_table_allows(before: tm.ReactorHealth, after: tm.ReactorHealth) -> None:
    """G-8: no way to Live but through Warming, and none to Degraded but from Live."""
    allowed = before is after or after.value in REACTOR[before.value].split()
    assert REACTOR_TRANSITIONS.is_allowed(before, after) is allowed


def test_the_names_are_those_of_the_documentation() -> None:
    """Values that come back: the members of both enumerations."""
    assert [one.name for one in tm.ReactorHealth] == ["STARTING", "WARMING", "LIVE", "DEGRADED", "FAILED"]
    assert [one.name for one in tm.AccumulatorHealth] == [
        *("STARTING", "CONNECTING", "LIVE", "DISCONNECTED", "SOCKET_ONLY", "FAILED")
    ]


def test_only_live_and_degraded_reactors_fire() -> None:
    """G-8, G-9: no firing before Live; Degraded still fires."""
    assert [one for one in tm.ReactorHealth if one.can_fire] == [tm.ReactorHealth.LIVE, tm.ReactorHealth.DEGRADED]


def test_an_accumulator_is_healthy_when_live_or_fed_by_sockets_alone() -> None:
    """cloacina 2: socket_only is all a passthrough can be."""
    healthy = [one for one in tm.AccumulatorHealth if one.is_healthy]
    assert healthy == [tm.AccumulatorHealth.LIVE, tm.AccumulatorHealth.SOCKET_ONLY]


@pytest.mark.parametrize("moves", [ACCUMULATOR_TRANSITIONS, REACTOR_TRANSITIONS])
def test_no_state_is_a_trap_and_every_state_can_be_reached(moves: Any) -> None:
    """G-20: a failed component can be restarted."""
    states = set(moves.table)
    assert all(moves.table.values())
    for start in states:
        seen, todo = {start}, [start]
        while todo:
            fresh = moves.table[todo.pop()] - seen
            seen |= fresh
            todo += fresh
        assert seen == states


def test_an_illegal_transition_names_its_subject_and_both_states() -> None:
    """A transition outside the table is an OperationError."""
    with pytest.raises(IllegalTransitionError, match="market cannot move from starting to live") as caught:
        REACTOR_TRANSITIONS.check("market", tm.ReactorHealth.STARTING, tm.ReactorHealth.LIVE)
    assert isinstance(caught.value, tm.OperationError)
