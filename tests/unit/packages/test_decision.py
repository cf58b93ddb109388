"""What is to be done with a package, for everything that can be known of it."""

from itertools import product
from math import inf

import pytest

from tidemill.kernel.errors import DefinitionError, OperationError, Problem, RequestError, StoreError
from tidemill.packages.loading.probe import ProbeError
from tidemill.packages.reconcile.decision import (
    Action,
    LastFailure,
    ObservedState,
    RetryAdvice,
    RetryPace,
    decide,
    retry_advice,
)

NOW = 100.0


def trouble(digest: str | None, again_at: float) -> LastFailure:
    return LastFailure(digest=digest, reason="broken", retry_at=again_at)


@pytest.mark.parametrize(
    ("view", "decision"),
    [
        (ObservedState(), Action.FORGET),
        (ObservedState(is_loaded_elsewhere=True), Action.FORGET),
        (ObservedState(last_failure=trouble(None, inf)), Action.FORGET),
        (ObservedState(desired="1"), Action.PREPARE),
        (ObservedState(desired="1", is_loaded_elsewhere=True), Action.LEAVE_TO_OWNER),
        (ObservedState(desired="1", prepared="1", is_loaded_elsewhere=True), Action.LEAVE_TO_OWNER),
        (ObservedState(desired="1", loaded="1"), Action.NONE),
        (ObservedState(desired="1", loaded="1", last_failure=trouble("1", inf)), Action.NONE),
        (ObservedState(desired="2", loaded="1"), Action.PREPARE),
        (ObservedState(desired="2", loaded="1", prepared="1"), Action.PREPARE),
        (ObservedState(desired="2", prepared="2"), Action.INSTALL),
        (ObservedState(desired="2", loaded="1", prepared="2"), Action.INSTALL),
        (ObservedState(desired="2", loaded="1", prepared="2", missing=("reactor 'market'",)), Action.WAIT),
        (ObservedState(loaded="1"), Action.REMOVE),
    ],
)
def test_wanted_and_loaded_decide(view: ObservedState, decision: Action) -> None:
    """P-12: what is next follows from what is wanted and what there is."""
    assert decide(view, NOW) is decision


@pytest.mark.parametrize("again_at", [NOW + 1, inf])
def test_what_has_failed_is_left_alone_until_its_time(again_at: float) -> None:
    """P-12: back-off, of loading and of removing alike."""
    assert decide(ObservedState(desired="2", loaded="1", last_failure=trouble("2", again_at)), NOW) is Action.BACK_OFF
    assert decide(ObservedState(loaded="1", last_failure=trouble(None, again_at)), NOW) is Action.BACK_OFF


def test_what_has_failed_is_tried_again_when_its_time_has_come() -> None:
    """P-12: the moment itself is in time."""
    assert decide(ObservedState(desired="2", last_failure=trouble("2", NOW)), NOW) is Action.PREPARE
    assert decide(ObservedState(desired="2", prepared="2", last_failure=trouble("2", NOW)), NOW) is Action.INSTALL
    assert decide(ObservedState(loaded="1", last_failure=trouble(None, NOW)), NOW) is Action.REMOVE


def test_a_failure_says_nothing_about_another_wish() -> None:
    """P-12: a new save is tried at once, and so is a removal, and a wish after a removal that failed."""
    assert decide(ObservedState(desired="3", loaded="1", last_failure=trouble("2", inf)), NOW) is Action.PREPARE
    assert decide(ObservedState(loaded="1", last_failure=trouble("2", inf)), NOW) is Action.REMOVE
    assert decide(ObservedState(desired="2", loaded="1", last_failure=trouble(None, inf)), NOW) is Action.PREPARE


def test_whatever_is_known_a_step_is_possible() -> None:
    """P-4, P-12: nothing of others is touched, only what is ready is installed, only what is loaded is removed."""
    digests = (None, "1", "2")
    troubles = (None, *(trouble(digest, at) for digest in digests for at in (NOW, inf)))
    missing: tuple[tuple[str, ...], ...] = ((), ("reactor 'market'",))
    for wanted, loaded, ready, lack, held, known in product(digests, digests, digests, missing, (0, 1), troubles):
        if held and loaded is not None:
            continue  # a key is held by one
        view = ObservedState(
            desired=wanted,
            loaded=loaded,
            prepared=ready,
            missing=lack if ready else (),
            is_loaded_elsewhere=bool(held),
            last_failure=known,
        )
        found = decide(view, NOW)
        if found in (Action.PREPARE, Action.INSTALL, Action.REMOVE):
            assert not held
            assert wanted != loaded
        assert (found is Action.REMOVE) <= (wanted is None and loaded is not None)
        assert (found is Action.INSTALL) <= (ready == wanted is not None and not view.missing)
        assert (found is Action.WAIT) <= bool(view.missing)
        assert (found is Action.FORGET) == (wanted is None and loaded is None)
        assert (found is Action.NONE) == (wanted is not None and wanted == loaded)
        assert (found is Action.BACK_OFF) <= (known is not None and known.retry_at > NOW and known.digest == wanted)


def refusal(code: str) -> RequestError:
    return RequestError("refused", code=code, status=409)


def tried(*, may_pass: bool) -> ProbeError:
    return ProbeError([Problem(message="importing it failed")], is_transient=may_pass)


@pytest.mark.parametrize(
    ("error", "tried", "pace", "others"),
    [
        (DefinitionError.single("package", "no such task"), Action.PREPARE, RetryPace.SLOW, False),
        (tried(may_pass=False), Action.PREPARE, RetryPace.SLOW, False),
        (tried(may_pass=True), Action.PREPARE, RetryPace.SLOWING, False),
        (refusal("unmet_requirement"), Action.PREPARE, RetryPace.SLOW, False),
        (refusal("invalid_signature"), Action.PREPARE, RetryPace.SLOW, False),
        (refusal("unknown_key"), Action.PREPARE, RetryPace.STEADY, False),
        (refusal("no_file"), Action.PREPARE, RetryPace.STEADY, False),
        (refusal("name_taken"), Action.PREPARE, RetryPace.STEADY, True),
        (refusal("name_taken"), Action.INSTALL, RetryPace.STEADY, True),
        (refusal("reactor_in_use"), Action.INSTALL, RetryPace.STEADY, True),
        (refusal("reactor_in_use"), Action.REMOVE, RetryPace.STEADY, True),
        (DefinitionError.single("graph", "no accumulator 'mid'"), Action.INSTALL, RetryPace.SLOW, True),
        (DefinitionError.single("graph", "anything"), Action.REMOVE, RetryPace.STEADY, True),
        (OperationError("no more processes"), Action.PREPARE, RetryPace.STEADY, False),
        (StoreError("away"), Action.INSTALL, RetryPace.STEADY, False),
        (StoreError("away"), Action.REMOVE, RetryPace.STEADY, False),
        (OSError("disk full"), Action.PREPARE, RetryPace.STEADY, False),
        (ZeroDivisionError(), Action.INSTALL, RetryPace.STEADY, False),
    ],
)
def test_what_may_help_follows_from_the_error(
    error: Exception, tried: Action, pace: RetryPace, *, others: bool
) -> None:
    """P-12: everything is tried again, by time or by its neighbours; what seems to be wrong in itself, slowly."""
    assert retry_advice(error, tried) == RetryAdvice(pace=pace, retries_on_others=others)
