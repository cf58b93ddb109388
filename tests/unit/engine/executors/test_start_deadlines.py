"""How long a unit may be pending, and how it ends then."""

from tidemill.engine.workflows.executors.remote.interface import StartTimeouts, UnitStatus
from tidemill.engine.workflows.executors.remote.remote_attempt import StartDeadline

TIMEOUTS = StartTimeouts(pending=600.0, problem=60.0)
NO_IMAGE = UnitStatus(state="pending", problem="image_pull", reason="ImagePullBackOff: Back-off pulling image")
UNSCHEDULABLE = UnitStatus(state="pending", reason="Unschedulable: 0/3 nodes")


def test_a_unit_that_does_not_start_is_given_up() -> None:
    """A missing image is given up sooner than a full cluster, and a problem that has passed is forgiven."""
    deadline = StartDeadline()
    deadline.update(NO_IMAGE, 0.0)
    deadline.update(UnitStatus(state="pending"), 50.0)
    deadline.update(NO_IMAGE, 55.0)
    assert deadline.find_end(TIMEOUTS, 100.0) is None
    found = deadline.find_end(TIMEOUTS, 115.0)
    assert found is not None
    assert (found.cause, found.reason) == (
        "image_pull",
        "its unit cannot be started for 1m: ImagePullBackOff: Back-off pulling image",
    )
    deadline.update(UNSCHEDULABLE, 120.0)
    assert deadline.find_end(TIMEOUTS, 599.0) is None
    found = deadline.find_end(TIMEOUTS, 600.0)
    assert found is not None
    assert (found.cause, found.reason) == ("pending_timeout", "it did not start within 10m: Unschedulable: 0/3 nodes")


def test_a_unit_that_runs_is_never_given_up() -> None:
    """The timeout of the task is another matter. Nor is one of which nothing is known yet."""
    deadline = StartDeadline()
    assert deadline.find_end(TIMEOUTS, 10**6) is None
    deadline.update(UNSCHEDULABLE, 0.0)
    deadline.update(UnitStatus(state="running"), 1.0)
    assert deadline.find_end(TIMEOUTS, 10**6) is None
