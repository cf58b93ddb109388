"""The lives of pods that other tests use are such that an API server accepts every step."""

import pytest

from tests.kubernetes.lifecycles import LIVES, live
from tests.kubernetes.pods import Pods

LAST = {
    "succeeded": "Succeeded",
    "unschedulable at first": "Succeeded",
    "image after a while": "Succeeded",
    "unschedulable": "Pending",
    "no image": "Pending",
    "bad image name": "Pending",
    "no secret": "Pending",
}
GONE = {"deleted", "deleted while pending", "preempted", "drained", "node lost"}


@pytest.mark.parametrize("life", LIVES)
async def test_a_watch_sees_every_step_of_a_life(pods: Pods, life: str) -> None:
    await pods.create("one")
    version = (await pods.select())["metadata"]["resourceVersion"]
    await live(pods, "one", life)
    await pods.create("end")
    events = await pods.watch_until(lambda event: event["object"]["metadata"]["name"] == "end", resourceVersion=version)
    kinds = [event["type"] for event in events[:-1]]
    assert kinds == ["MODIFIED"] * len(LIVES[life]) + ["DELETED"] * (life in GONE)
    last = events[-2]["object"]
    assert last["status"]["phase"] == LAST.get(life, last["status"]["phase"] if life in GONE else "Failed")
