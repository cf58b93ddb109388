"""What the status of a pod means for its attempt."""

from typing import Any

import pytest

from tests.unit.engine.kubernetes.pods import (
    FAILED,
    NO_IMAGE,
    RUNNING,
    SUCCEEDED,
    UNSCHEDULABLE,
    container,
    disruption,
    stored_pod,
    terminated,
)
from tidemill.engine.workflows.executors.kubernetes.pod_status import read_deleted_pod, read_pod


@pytest.mark.parametrize(
    ("status", "state", "cause", "code"),
    [
        ({}, "pending", None, None),
        ({"phase": "Pending"}, "pending", None, None),
        (UNSCHEDULABLE, "pending", None, None),
        (NO_IMAGE, "pending", None, None),
        (RUNNING, "running", None, None),
        ({**RUNNING, "phase": "Unknown"}, "running", None, None),
        (SUCCEEDED, "ended", "completed", 0),
        (FAILED, "ended", "error", 3),
        ({"phase": "Running", "containerStatuses": terminated(0, "Completed")}, "ended", "completed", 0),
        ({"phase": "Failed", "containerStatuses": terminated(137, "OOMKilled")}, "ended", "oom", 137),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "ended", "evicted", None),
        ({"phase": "Failed", "reason": "OutOfcpu"}, "ended", "evicted", None),
        ({"phase": "Failed", "reason": "NodeLost"}, "ended", "node_lost", None),
        (
            {"phase": "Failed", "reason": "DeadlineExceeded", "containerStatuses": terminated(137)},
            "ended",
            "error",
            137,
        ),
        (
            {
                "phase": "Failed",
                "conditions": disruption("DeletionByTaintManager"),
                "containerStatuses": terminated(143),
            },
            "ended",
            "node_lost",
            143,
        ),
        (
            {
                "phase": "Failed",
                "conditions": disruption("EvictionByEvictionAPI"),
                "containerStatuses": terminated(143),
            },
            "ended",
            "evicted",
            143,
        ),
        (
            {
                "phase": "Succeeded",
                "conditions": disruption("EvictionByEvictionAPI"),
                "containerStatuses": terminated(0),
            },
            "ended",
            "completed",
            0,
        ),
        (
            {"phase": "Failed", "initContainerStatuses": [{"name": "setup", "state": {"terminated": {"exitCode": 4}}}]},
            "ended",
            "error",
            4,
        ),
    ],
)
def test_a_status_says_whether_an_attempt_waits_runs_or_has_ended(
    status: dict[str, Any], state: str, cause: str | None, code: int | None
) -> None:
    """Memory, eviction, a lost node and the program's own error are distinguished."""
    found = read_pod(stored_pod(status))
    assert (found.state, found.cause, found.exit) == (state, cause, code)


@pytest.mark.parametrize(
    ("reason", "problem"),
    [
        ("ErrImagePull", "image_pull"),
        ("ImagePullBackOff", "image_pull"),
        ("InvalidImageName", "image_pull"),
        ("CreateContainerConfigError", "error"),
        ("CreateContainerError", "error"),
        ("ContainerCreating", None),
    ],
)
def test_a_container_that_cannot_start_is_a_problem_that_may_pass(reason: str, problem: str | None) -> None:
    """The pod still waits; the executor decides for how long."""
    found = read_pod(stored_pod({"phase": "Pending", "containerStatuses": container(waiting={"reason": reason})}))
    assert (found.state, found.problem) == ("pending", problem)


def test_a_pod_whose_token_was_never_stored_is_not_the_authors_fault() -> None:
    """The server died between the two requests: it costs a recovery, as a deletion does."""
    name = stored_pod()["metadata"]["name"]
    for secret, problem in ((name, "deleted"), ("of-the-author", "error")):
        waiting = {"reason": "CreateContainerConfigError", "message": f'secret "{secret}" not found'}
        found = read_pod(stored_pod({"phase": "Pending", "containerStatuses": container(waiting=waiting)}))
        assert found.problem == problem


def test_a_waiting_pod_says_what_it_waits_for() -> None:
    """The words are those of the cluster."""
    assert read_pod(stored_pod(UNSCHEDULABLE)).reason == "Unschedulable: 0/3 nodes"
    assert read_pod(stored_pod(NO_IMAGE)).reason == "ImagePullBackOff: Back-off pulling image"


def test_a_deleted_pod_has_ended_as_it_said_or_without_a_trace() -> None:
    """A pod that was evicted or whose node was lost has another cause than one that a person deleted."""
    assert read_deleted_pod(stored_pod(SUCCEEDED)).cause == "completed"
    vanished = read_deleted_pod(stored_pod(RUNNING))
    assert (vanished.state, vanished.cause) == ("missing", "deleted")
    evicted = read_deleted_pod(stored_pod({**RUNNING, "conditions": disruption("EvictionByEvictionAPI")}))
    assert (evicted.state, evicted.cause) == ("missing", "evicted")
    lost = read_deleted_pod(stored_pod({**RUNNING, "reason": "NodeLost"}))
    assert (lost.state, lost.cause) == ("missing", "node_lost")


def test_a_program_that_a_deletion_has_ended_did_not_fail_itself() -> None:
    """Exit code 143 is the SIGTERM of the deletion."""
    status = {"phase": "Failed", "containerStatuses": terminated(143)}
    assert read_pod(stored_pod(status, deletionTimestamp="2026-01-01T00:00:00Z")).cause == "deleted"
