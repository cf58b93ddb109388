"""How an API server of Kubernetes treats pods.

`make test` asks the server of these tests, `make test-kubernetes` a real one: a difference is a defect of ours.
"""

import asyncio
from itertools import count

import httpx
import pytest

from tests.kubernetes.cluster import Cluster, create_identity, delete_namespace
from tests.kubernetes.lifecycles import condition
from tests.kubernetes.pods import MERGE_PATCH, Json, Pods, brief, pod

RUNNING = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}


async def test_a_new_pod_is_pending_and_has_an_identity_of_its_own(pods: Pods) -> None:
    made = await pods.create("one", {"tidemill/run": "r1"})
    metadata = made["metadata"]
    assert made["status"]["phase"] == "Pending"
    assert metadata["namespace"] == pods.namespace
    assert metadata["uid"]
    assert metadata["resourceVersion"]
    assert metadata["creationTimestamp"]
    assert made["spec"]["terminationGracePeriodSeconds"] == 30


async def test_a_second_pod_of_a_name_is_refused(pods: Pods) -> None:
    await pods.create("one")
    check_status(await pods.try_create("one"), 409, "AlreadyExists", 'pods "one" already exists')


async def test_an_invalid_pod_is_refused_with_the_field(pods: Pods) -> None:
    answer = await pods.try_create("Not_A_Name", restartPolicy="Nope")
    check_status(answer, 422, "Invalid", 'Pod "Not_A_Name" is invalid')
    fields = {cause["field"] for cause in answer.json()["details"]["causes"]}
    assert {"metadata.name", "spec.restartPolicy"} <= fields


async def test_a_field_of_the_wrong_type_is_a_bad_request(pods: Pods) -> None:
    check_status(await pods.try_create("one", activeDeadlineSeconds="soon"), 400, "BadRequest")


async def test_a_pod_in_an_unknown_namespace_is_refused(pods: Pods) -> None:
    elsewhere = Pods(pods.client, "nowhere")
    answer = await elsewhere.try_create("one")
    check_status(answer, 404, "NotFound", 'namespaces "nowhere" not found')
    assert answer.json()["details"]["kind"] == "namespaces"


async def test_a_missing_pod_is_not_found(pods: Pods) -> None:
    check_status(await pods.client.get(f"{pods.path}/none"), 404, "NotFound", 'pods "none" not found')
    answer = await pods.delete("none")
    check_status(answer, 404, "NotFound", 'pods "none" not found')
    assert answer.json()["details"]["kind"] == "pods"


async def test_a_list_selects_by_label(pods: Pods) -> None:
    for name, run in (("one", "r1"), ("two", "r2"), ("three", "r1")):
        await pods.create(name, {"run": run, "app": "tidemill"})
    assert names(await pods.select(labelSelector="run=r1")) == {"one", "three"}
    assert names(await pods.select(labelSelector="app=tidemill,run!=r1")) == {"two"}
    assert names(await pods.select(labelSelector="run in (r2,r3)")) == {"two"}
    assert names(await pods.select(fieldSelector="metadata.name=two")) == {"two"}
    assert names(await pods.select(fieldSelector="status.phase=Running")) == set()


async def test_a_list_comes_in_pages(pods: Pods) -> None:
    for number in range(5):
        await pods.create(f"pod-{number}")
    first = await pods.select(limit=2)
    second = await pods.select(limit=2, **{"continue": first["metadata"]["continue"]})
    third = await pods.select(limit=2, **{"continue": second["metadata"]["continue"]})
    assert [len(page["items"]) for page in (first, second, third)] == [2, 2, 1]
    assert not third["metadata"].get("continue")
    assert names(first) | names(second) | names(third) == {f"pod-{number}" for number in range(5)}


async def test_a_watch_continues_a_list_without_a_gap(pods: Pods) -> None:
    await pods.create("before")
    version = (await pods.select())["metadata"]["resourceVersion"]
    await pods.create("after")
    await pods.set_status("after", **RUNNING)
    await pods.delete("before", gracePeriodSeconds=0)
    events = await pods.watch_until(lambda event: event["type"] == "DELETED", resourceVersion=version)
    assert brief(events) == [
        ("ADDED", "after"),
        ("MODIFIED", "after"),
        ("MODIFIED", "before"),  # it has the time of its deletion now
        ("DELETED", "before"),
    ]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(version)


async def test_a_watch_without_a_version_begins_with_what_exists_and_ends_in_time(pods: Pods) -> None:
    await pods.create("one")
    await pods.create("two")
    events = [event async for event in pods.watch(timeoutSeconds=1)]
    assert sorted(brief(events)) == [("ADDED", "one"), ("ADDED", "two")]


async def test_a_pod_that_no_longer_matches_leaves_a_watch(pods: Pods) -> None:
    await pods.create("one", {"run": "r1"})
    version = (await pods.select())["metadata"]["resourceVersion"]
    body = {"metadata": {"labels": {"run": "r2"}}}
    await pods.client.patch(f"{pods.path}/one", json=body, headers=MERGE_PATCH)
    await pods.create("two", {"run": "r1"})
    events = await pods.watch_until(
        lambda event: event["type"] == "ADDED", resourceVersion=version, labelSelector="run=r1"
    )
    assert brief(events) == [("DELETED", "one"), ("ADDED", "two")]


async def test_a_bookmark_carries_a_version_and_nothing_else(pods: Pods) -> None:
    """It spares a watch that sees few pods to read again what happened to the others meanwhile."""
    version = (await pods.select())["metadata"]["resourceVersion"]
    params = {"resourceVersion": version, "labelSelector": "run=r1", "allowWatchBookmarks": "true"}

    async def collect() -> list[Json]:
        return [event async for event in pods.watch(timeoutSeconds=4, **params)]

    async with asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(collect(), name="watch")
        for number in count():
            if watch.done():
                break
            await pods.create(f"other-{number}", {"run": "r2"})
            await asyncio.wait([watch], timeout=0.2)
    events = watch.result()
    assert {event["type"] for event in events} == {"BOOKMARK"}
    bookmark = events[-1]["object"]
    assert bookmark["kind"] == "Pod"
    assert int(bookmark["metadata"]["resourceVersion"]) > int(version)
    assert "name" not in bookmark["metadata"]


async def test_a_version_of_the_future_is_refused_after_a_wait(pods: Pods) -> None:
    """A client that lists at a version which this server has not seen yet is asked to come again."""
    version = int((await pods.select())["metadata"]["resourceVersion"]) + 1_000_000
    answer = await pods.client.get(pods.path, params={"resourceVersion": version})
    check_status(answer, 504, "Timeout", "Too large resource version")


async def test_an_update_of_an_old_version_conflicts(pods: Pods) -> None:
    old = await pods.create("one")
    await pods.set_status("one", **RUNNING)
    old["metadata"]["labels"] = {"seen": "yes"}
    check_status(await pods.client.put(f"{pods.path}/one", json=old), 409, "Conflict")


async def test_spec_and_status_are_written_apart(pods: Pods) -> None:
    await pods.create("one")
    body = {"metadata": {"annotations": {"a": "b"}}, "status": {"phase": "Failed"}}
    patched = (await pods.client.patch(f"{pods.path}/one", json=body, headers=MERGE_PATCH)).json()
    assert (patched["metadata"]["annotations"], patched["status"]["phase"]) == ({"a": "b"}, "Pending")
    assert (await pods.set_status("one", **RUNNING))["status"]["phase"] == "Running"


async def test_conditions_are_merged_by_type(pods: Pods) -> None:
    """The kubelet's conditions and those of the control plane do not overwrite each other."""
    await pods.create("one")
    await pods.set_status("one", conditions=[condition("DisruptionTarget", True, "EvictionByEvictionAPI")])
    await pods.set_status("one", phase="Running", conditions=[condition("Ready", True)])
    await pods.set_status("one", conditions=[condition("Ready", False)])
    status = (await pods.get("one"))["status"]
    assert {one["type"]: one["status"] for one in status["conditions"]} == {
        "DisruptionTarget": "True",
        "Ready": "False",
    }
    assert status["phase"] == "Running"


async def test_what_a_pod_runs_cannot_change(pods: Pods) -> None:
    await pods.create("one")
    body = {"spec": {"restartPolicy": "Always"}}
    answer = await pods.client.patch(f"{pods.path}/one", json=body, headers=MERGE_PATCH)
    check_status(answer, 422, "Invalid", 'Pod "one" is invalid')


async def test_a_pod_without_a_node_is_deleted_at_once(pods: Pods) -> None:
    """No kubelet has to stop anything."""
    await pods.create("one")
    assert (await pods.delete("one", gracePeriodSeconds=30)).status_code == httpx.codes.OK
    assert not await pods.exists("one")


async def test_a_pod_on_a_node_waits_for_its_kubelet(pods: Pods) -> None:
    await pods.create("one")
    await pods.bind("one")
    await pods.set_status("one", **RUNNING)
    version = (await pods.select())["metadata"]["resourceVersion"]
    answer = (await pods.delete("one", gracePeriodSeconds=25)).json()
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 25
    assert answer["metadata"]["deletionTimestamp"]
    assert (await pods.get("one"))["status"]["phase"] == "Running"
    await pods.delete("one", gracePeriodSeconds=0)  # the kubelet, when the process has ended
    assert not await pods.exists("one")
    events = await pods.watch_until(lambda event: event["type"] == "DELETED", resourceVersion=version)
    assert brief(events) == [("MODIFIED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]
    graces = [event["object"]["metadata"]["deletionGracePeriodSeconds"] for event in events]
    assert graces == [25, 0, 0]


async def test_a_pod_without_a_grace_in_its_deletion_gets_that_of_its_spec(pods: Pods) -> None:
    await pods.create("one", terminationGracePeriodSeconds=7)
    await pods.bind("one")
    assert (await pods.delete("one")).json()["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_a_second_deletion_can_only_shorten_the_grace(pods: Pods) -> None:
    await pods.create("one")
    await pods.bind("one")
    graces = [
        (await pods.delete("one", gracePeriodSeconds=seconds)).json()["metadata"]["deletionGracePeriodSeconds"]
        for seconds in (25, 40, 5)
    ]
    assert graces == [25, 25, 5]


async def test_an_ended_pod_is_deleted_at_once(pods: Pods) -> None:
    await pods.create("one")
    await pods.bind("one")
    await pods.set_status("one", phase="Succeeded")
    await pods.delete("one", gracePeriodSeconds=30)
    assert not await pods.exists("one")


async def test_a_deletion_can_be_meant_for_one_pod_of_a_name(pods: Pods) -> None:
    first = (await pods.create("one"))["metadata"]["uid"]
    await pods.delete("one")
    await pods.create("one")
    check_status(await pods.delete("one", preconditions={"uid": first}), 409, "Conflict")
    assert await pods.exists("one")


async def test_a_name_can_be_used_again(pods: Pods) -> None:
    first = await pods.create("one")
    await pods.delete("one")
    assert (await pods.create("one"))["metadata"]["uid"] != first["metadata"]["uid"]


async def test_an_unknown_token_is_refused(cluster: Cluster, pods: Pods) -> None:
    async with cluster.as_identity("wrong").client() as client:
        check_status(await client.get(pods.path), 401, "Unauthorized")


async def test_an_identity_without_a_verb_is_refused(cluster: Cluster, pods: Pods) -> None:
    """The message names the identity, the verb, the resource and the namespace."""
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    token = await create_identity(pods.client, pods.namespace, "reader", rules)
    async with cluster.as_identity(token).client() as client:
        reader = Pods(client, pods.namespace)
        assert names(await reader.select()) == set()
        refusal = (
            f'pods is forbidden: User "system:serviceaccount:{pods.namespace}:reader" cannot create resource "pods" '
            f'in API group "" in the namespace "{pods.namespace}"'
        )
        check_status(await reader.try_create("one"), 403, "Forbidden", refusal)


async def test_a_pod_beyond_the_quota_is_refused(pods: Pods) -> None:
    """It has the code of an identity without rights: only the message tells them apart."""
    quotas = f"/api/v1/namespaces/{pods.namespace}/resourcequotas"
    hard = {"pods": "1"}
    await pods.client.post(quotas, json={"metadata": {"name": "few"}, "spec": {"hard": hard}})
    status = {"status": {"hard": hard, "used": {"pods": "0"}}}  # as the quota controller does
    await pods.client.patch(f"{quotas}/few/status", json=status, headers=MERGE_PATCH)
    await pods.create("one")
    message = 'pods "two" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1'
    check_status(await pods.try_create("two"), 403, "Forbidden", message)


async def test_a_namespace_that_is_being_deleted_takes_no_pods(pods: Pods) -> None:
    """It has the code of an identity without rights, too."""
    await delete_namespace(pods.client, pods.namespace)
    message = f"unable to create new content in namespace {pods.namespace} because it is being terminated"
    check_status(await pods.try_create("two"), 403, "Forbidden", message)


async def test_a_pod_without_a_node_has_no_log(pods: Pods) -> None:
    await pods.create("one")
    answer = await pods.client.get(f"{pods.path}/one/log")
    assert (answer.status_code, answer.text) == (httpx.codes.NO_CONTENT, "")


async def test_a_pod_is_bound_once(pods: Pods) -> None:
    await pods.create("one")
    await pods.bind("one")
    assert (await pods.get("one"))["spec"]["nodeName"] == "test-node"
    with pytest.raises(httpx.HTTPStatusError, match="already assigned to node"):
        await pods.bind("one")


async def test_a_dry_run_checks_a_pod_and_creates_none(pods: Pods) -> None:
    answer = await pods.client.post(pods.path, json=pod("one"), params={"dryRun": "All"})
    assert answer.status_code == httpx.codes.CREATED
    assert not await pods.exists("one")


def check_status(answer: httpx.Response, code: int, reason: str, message: str = "") -> None:
    """Check that an answer is a Status object of a failure, as clients of Kubernetes read it."""
    status: Json = answer.json()
    assert (answer.status_code, status["reason"]) == (code, reason), answer.text
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", code)
    assert message in status["message"]


def names(found: Json) -> set[str]:
    """Return the names of the pods in a list."""
    return {item["metadata"]["name"] for item in found["items"]}
