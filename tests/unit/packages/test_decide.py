"""What is to be done with a package, for everything that can be known of it."""

from itertools import product
from math import inf

import pytest

from tidemill.kernel.errors import DefinitionError, OperationError, Problem, RequestError, StoreError
from tidemill.packages.decision import Decision, Hope, Pace, Trouble, View, decide, hope_after
from tidemill.packages.probe import ProbeError

NOW = 100.0


def trouble(digest: str | None, again_at: float) -> Trouble:
    return Trouble(digest=digest, reason="broken", again_at=again_at)


@pytest.mark.parametrize(
    ("view", "decision"),
    [
        (View(), Decision.FORGET),
        (View(is_held=True), Decision.FORGET),
        (View(trouble=trouble(None, inf)), Decision.FORGET),
        (View(wanted="1"), Decision.PREPARE),
        (View(wanted="1", is_held=True), Decision.YIELD),
        (View(wanted="1", ready="1", is_held=True), Decision.YIELD),
        (View(wanted="1", loaded="1"), Decision.REST),
        (View(wanted="1", loaded="1", trouble=trouble("1", inf)), Decision.REST),
        (View(wanted="2", loaded="1"), Decision.PREPARE),
        (View(wanted="2", loaded="1", ready="1"), Decision.PREPARE),
        (View(wanted="2", ready="2"), Decision.INSTALL),
        (View(wanted="2", loaded="1", ready="2"), Decision.INSTALL),
        (View(wanted="2", loaded="1", ready="2", missing=("reactor 'market'",)), Decision.WAIT),
        (View(loaded="1"), Decision.REMOVE),
    ],
)
def test_wanted_and_loaded_decide(view: View, decision: Decision) -> None:
    """P-12: what is next follows from what is wanted and what there is."""
    assert decide(view, NOW) is decision


@pytest.mark.parametrize("again_at", [NOW + 1, inf])
def test_what_has_failed_is_left_alone_until_its_time(again_at: float) -> None:
    """P-12: back-off, of loading and of removing alike."""
    assert decide(View(wanted="2", loaded="1", trouble=trouble("2", again_at)), NOW) is Decision.BACK_OFF
    assert decide(View(loaded="1", trouble=trouble(None, again_at)), NOW) is Decision.BACK_OFF


def test_what_has_failed_is_tried_again_when_its_time_has_come() -> None:
    """P-12: the moment itself is in time."""
    assert decide(View(wanted="2", trouble=trouble("2", NOW)), NOW) is Decision.PREPARE
    assert decide(View(wanted="2", ready="2", trouble=trouble("2", NOW)), NOW) is Decision.INSTALL
    assert decide(View(loaded="1", trouble=trouble(None, NOW)), NOW) is Decision.REMOVE


def test_a_failure_says_nothing_about_another_wish() -> None:
    """P-12: a new save is tried at once, and so is a removal, and a wish after a removal that failed."""
    assert decide(View(wanted="3", loaded="1", trouble=trouble("2", inf)), NOW) is Decision.PREPARE
    assert decide(View(loaded="1", trouble=trouble("2", inf)), NOW) is Decision.REMOVE
    assert decide(View(wanted="2", loaded="1", trouble=trouble(None, inf)), NOW) is Decision.PREPARE


def test_whatever_is_known_a_step_is_possible() -> None:
    """P-4, P-12: nothing of others is touched, only what is ready is installed, only what is loaded is removed."""
    digests = (None, "1", "2")
    troubles = (None, *(trouble(digest, at) for digest in digests for at in (NOW, inf)))
    missing: tuple[tuple[str, ...], ...] = ((), ("reactor 'market'",))
    for wanted, loaded, ready, lack, held, known in product(digests, digests, digests, missing, (0, 1), troubles):
        if held and loaded is not None:
            continue  # a key is held by one
        view = View(
            wanted=wanted, loaded=loaded, ready=ready, missing=lack if ready else (), is_held=bool(held), trouble=known
        )
        found = decide(view, NOW)
        if found in (Decision.PREPARE, Decision.INSTALL, Decision.REMOVE):
            assert not held
            assert wanted != loaded
        assert (found is Decision.REMOVE) <= (wanted is None and loaded is not None)
        assert (found is Decision.INSTALL) <= (ready == wanted is not None and not view.missing)
        assert (found is Decision.WAIT) <= bool(view.missing)
        assert (found is Decision.FORGET) == (wanted is None and loaded is None)
        assert (found is Decision.REST) == (wanted is not None and wanted == loaded)
        assert (found is Decision.BACK_OFF) <= (known is not None and known.again_at > NOW and known.digest == wanted)


def refusal(code: str) -> RequestError:
    return RequestError("refused", code=code, status=409)


def tried(*, may_pass: bool) -> ProbeError:
    return ProbeError([Problem(message="importing it failed")], may_pass=may_pass)


@pytest.mark.parametrize(
    ("error", "tried", "pace", "others"),
    [
        (DefinitionError.of("package", "no such task"), Decision.PREPARE, Pace.SLOW, False),
        (tried(may_pass=False), Decision.PREPARE, Pace.SLOW, False),
        (tried(may_pass=True), Decision.PREPARE, Pace.FADING, False),
        (refusal("unmet_requirement"), Decision.PREPARE, Pace.SLOW, False),
        (refusal("invalid_signature"), Decision.PREPARE, Pace.SLOW, False),
        (refusal("unknown_key"), Decision.PREPARE, Pace.STEADY, False),
        (refusal("no_file"), Decision.PREPARE, Pace.STEADY, False),
        (refusal("name_taken"), Decision.PREPARE, Pace.STEADY, True),
        (refusal("name_taken"), Decision.INSTALL, Pace.STEADY, True),
        (refusal("reactor_in_use"), Decision.INSTALL, Pace.STEADY, True),
        (refusal("reactor_in_use"), Decision.REMOVE, Pace.STEADY, True),
        (DefinitionError.of("graph", "no accumulator 'mid'"), Decision.INSTALL, Pace.SLOW, True),
        (DefinitionError.of("graph", "anything"), Decision.REMOVE, Pace.STEADY, True),
        (OperationError("no more processes"), Decision.PREPARE, Pace.STEADY, False),
        (StoreError("away"), Decision.INSTALL, Pace.STEADY, False),
        (StoreError("away"), Decision.REMOVE, Pace.STEADY, False),
        (OSError("disk full"), Decision.PREPARE, Pace.STEADY, False),
        (ZeroDivisionError(), Decision.INSTALL, Pace.STEADY, False),
    ],
)
def test_what_may_help_follows_from_the_error(error: Exception, tried: Decision, pace: Pace, *, others: bool) -> None:
    """P-12: everything is tried again, by time or by its neighbours; what seems to be wrong in itself, slowly."""
    assert hope_after(error, tried) == Hope(pace=pace, others=others)
