"""Transition tables."""

from enum import StrEnum

import pytest

from tidemill.kernel.errors import IllegalTransitionError
from tidemill.kernel.transitions import TransitionTable


class Light(StrEnum):
    """A small state machine."""

    RED = "red"
    GREEN = "green"
    BROKEN = "broken"


LIGHTS = TransitionTable({Light.RED: {Light.GREEN, Light.BROKEN}, Light.GREEN: {Light.RED}, Light.BROKEN: frozenset()})


def test_the_table_decides_which_transitions_are_allowed() -> None:
    """Staying in a state is always allowed."""
    allowed = {(one, other) for one in Light for other in Light if LIGHTS.is_allowed(one, other)}
    assert allowed - {(one, one) for one in Light} == {
        (Light.RED, Light.GREEN),
        (Light.RED, Light.BROKEN),
        (Light.GREEN, Light.RED),
    }


def test_a_transition_outside_the_table_is_rejected() -> None:
    """The error names the subject and both states."""
    LIGHTS.check("light", Light.RED, Light.GREEN)
    with pytest.raises(IllegalTransitionError) as caught:
        LIGHTS.check("light", Light.BROKEN, Light.RED)
    assert (caught.value.subject, caught.value.before, caught.value.after) == ("light", "broken", "red")
