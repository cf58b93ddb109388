"""The options of tasks that a cluster runs."""

from typing import Any

import msgspec
import pytest

import tidemill as tm
from tidemill.workflows.task_overrides import TaskOverrides

POD = {"spec": {"nodeSelector": {"disk": "ssd"}}}


def declare(**options: Any) -> tm.Workflow:
    """Return a workflow with one task."""
    flow = tm.Workflow("w")
    flow.task(**options)(work)
    return flow


def work() -> None:
    """Do nothing."""


def test_resources_are_kept_as_numbers_and_belong_to_the_version() -> None:
    """W-19: two ways to write the same quantity are one version."""
    options = [{"cpu": "500m", "memory": "1Gi"}, {"memory": 2**30, "cpu": 0.5}, {"cpu": 1}, None]
    specs = [declare(executor="kubernetes", resources=one).wired().spec for one in options]
    assert specs[0].tasks[0].resources == {"cpu": 0.5, "memory": 2**30}
    assert specs[0].version == specs[1].version
    assert len({one.version for one in specs}) == 3
    assert specs[3].version == declare(executor="kubernetes").wired().spec.version


def test_a_task_says_which_image_and_pod_it_needs() -> None:
    """Both reach the planner's view of the task."""
    (task,) = declare(executor="kubernetes", image="train:2", pod=POD).wired().spec.tasks
    assert (task.image, task.pod) == ("train:2", POD)


@pytest.mark.parametrize(
    ("executor", "options", "message"),
    [
        (
            None,
            {"resources": {"cpu": 1}},
            'resources: only a cluster heeds it; set executor="kubernetes" or executor="ray"',
        ),
        ("worker", {"image": "train:2"}, 'image: only a cluster heeds it; set executor="kubernetes" too'),
        ("ray", {"pod": POD}, 'pod: only a cluster heeds it; set executor="kubernetes" too'),
        ("kubernetes", {"resources": {"gpu": "500m"}}, "resources: Kubernetes assigns whole GPUs, not 0.5"),
        ("kubernetes", {"resources": {"memory": "1.5"}}, "resources: memory: it is a whole number of bytes, not '1.5'"),
        ("kubernetes", {"resources": {"cpu": "much"}}, "resources: cpu: 'much' is not a quantity"),
        ("kubernetes", {"resources": {"a b": 1}}, "resources: 'a b' is not the name of a resource"),
        ("kubernetes", {"image": "a b"}, "image: it is the reference of an image"),
        ("kubernetes", {"pod": {"kind": "Job"}}, "pod: a task sets 'metadata' and 'spec' of its pod, not 'kind'"),
        ("kubernetes", {"pod": {"spec": []}}, r"pod: 'spec' is a mapping, not \[\]"),
        (
            "kubernetes",
            {"pod": {"metadata": {"name": "x"}}},
            "pod: a task sets 'labels' and 'annotations' of .*, not 'name'",
        ),
        (
            "kubernetes",
            {"pod": {"spec": {"serviceAccountName": "root"}}},
            "pod: a task cannot set 'serviceAccountName'",
        ),
        ("kubernetes", {"pod": {"spec": {"restartPolicy": "Always"}}}, "pod: a task cannot set 'restartPolicy'"),
        ("kubernetes", {"pod": {"spec": {"x": object()}}}, "pod: it is not JSON"),
        ("kubernetes", {"pod": {"spec": {"x": "y" * 40_000}}}, "pod: it has 40017 bytes, more than 32768"),
    ],
)
def test_what_no_executor_could_heed_is_refused(executor: str | None, options: dict[str, Any], message: str) -> None:
    """A declaration fails with the option, the problem and the remedy."""
    with pytest.raises(tm.DefinitionError, match=message):
        declare(executor=executor, **options)


def test_every_problem_is_reported_at_once() -> None:
    """An author corrects all of them in one go."""
    with pytest.raises(tm.DefinitionError) as caught:
        declare(resources={"cpu": 1}, image="train:2", pod=POD)
    assert [one.message.split(":")[1] for one in caught.value.problems] == [" resources", " image", " pod"]


def test_overrides_move_tasks_between_clusters() -> None:
    """P-1: a task loses the options that its new executor does not heed; an override that it ignores is refused."""
    flow = declare(executor="kubernetes", resources={"cpu": 2}, image="train:2", pod=POD)

    def moved(**changes: Any) -> tuple[object, ...]:
        (task,) = flow.with_overrides({"w.work": changes}).tasks
        return task.executor, task.resources, task.image, task.pod

    assert moved(resources={"cpu": 4}) == ("kubernetes", {"cpu": 4}, "train:2", POD)
    assert moved(executor="ray") == ("ray", {"cpu": 2}, None, {})
    assert moved(executor="subprocess") == ("subprocess", {}, None, {})
    with pytest.raises(tm.DefinitionError, match="settings of task 'work': image: only a cluster heeds it"):
        moved(executor="ray", image="train:3")


def test_overrides_keep_their_wire_format() -> None:
    """P-1: orders of an older release are read, and what this one writes is the same map, with lists for tuples."""
    written = b"\x83\xa7retries\x05\xa7timeout\xcb@\x82\xc0\x00\x00\x00\x00\x00\xa6labels\x91\xa2eu"
    overrides = {"retries": 5, "timeout": 600.0, "labels": ("eu",)}
    assert msgspec.msgpack.encode(overrides) == written
    flow = tm.Workflow("w")

    @flow.task(executor="worker")
    def work() -> None: ...

    read = msgspec.msgpack.decode(written, type=TaskOverrides)
    (task,), (other,) = (flow.with_overrides({"w.work": one}).tasks for one in (read, overrides))
    assert (task.retry.times, task.timeout, task.labels) == (5, 600.0, ("eu",))
    assert task.options == other.options


def test_an_override_to_kubernetes_needs_whole_gpus() -> None:
    """Ray shares a GPU among tasks, Kubernetes does not."""
    flow = declare(executor="ray", resources={"gpu": 0.5})
    with pytest.raises(tm.DefinitionError, match=r"resources: Kubernetes assigns whole GPUs, not 0\.5"):
        flow.with_overrides({"w.work": {"executor": "kubernetes"}})
