"""The pods of attempts: what each layer contributes, and what a task cannot change."""

from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.engine.kubernetes.launches import CONFIG, INSTANCE, launch
from tidemill.engine.workflows.executors.kubernetes.configuration import DEFAULT_ALLOWED, KubernetesConfig, PodPolicy
from tidemill.engine.workflows.executors.kubernetes.pod_manifest import RefusedPodError, build_pod, build_token_secret
from tidemill.engine.workflows.executors.kubernetes.pod_names import pod_labels, pod_name, read_key
from tidemill.workflows.records import AttemptKey

SCHEMAS = ("1.25", "1.37")
"""The oldest and the newest schema that there is."""


def validate(manifest: dict[str, Any]) -> None:
    """Check a manifest against the schema of Kubernetes."""
    for version in SCHEMAS:
        kubernetes_validate.validate(manifest, version, strict=True)


def container(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the container of the attempt."""
    (found,) = [one for one in pod["spec"]["containers"] if one["name"] == "attempt"]
    return found


def environment(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of the attempt's container."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container(pod)["env"]}


def test_a_task_that_asks_for_nothing_gets_a_restricted_pod() -> None:
    """It runs as no root, without rights in the cluster, and never again by itself."""
    pod = build_pod(launch(), INSTANCE, CONFIG)
    validate(pod)
    spec = pod["spec"]
    assert (spec["restartPolicy"], spec["serviceAccountName"]) == ("Never", "attempt")
    assert (spec["automountServiceAccountToken"], spec["securityContext"]["runAsNonRoot"]) == (False, True)
    assert container(pod)["command"] == ["tidemill", "attempt"]
    assert container(pod)["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["metadata"]["namespace"] == "tasks"
    assert read_key(pod) == launch().key


def test_the_token_is_in_a_secret_that_the_pod_owns() -> None:
    """Pods can be read by more people than Secrets: the manifest of the pod has no token."""
    pod = build_pod(launch(), INSTANCE, CONFIG)
    assert "secret-token" not in str(pod)
    secret = build_token_secret(launch(), pod, "uid-1")
    validate(secret)
    assert secret["stringData"] == {"token": "secret-token"}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    reference = environment(pod)["TIDEMILL_ATTEMPT_TOKEN"]["secretKeyRef"]
    assert reference == {"name": secret["metadata"]["name"], "key": "token"}


def test_resources_are_requested_and_all_but_cores_limited() -> None:
    """A task may use idle cores; memory that it exceeds is that of others."""
    config = replace(CONFIG, resources={"cpu": 0.25, "memory": 2**28})
    pod = build_pod(launch(resources={"cpu": 1.5, "gpu": 2}), INSTANCE, config)
    validate(pod)
    assert container(pod)["resources"] == {
        "requests": {"cpu": "1500m", "memory": "268435456", "nvidia.com/gpu": "2"},
        "limits": {"memory": "268435456", "nvidia.com/gpu": "2"},
    }


def test_layers_win_in_order() -> None:
    """Defaults, then the operator's template, then the task, then the operator's policy."""
    template = {"spec": {"nodeSelector": {"pool": "template", "zone": "template", "disk": "template"}}}
    task = {
        "spec": {
            "nodeSelector": {"pool": "task", "zone": "task"},
            "containers": [{"name": "attempt", "env": [{"name": "A", "value": "1"}]}],
        }
    }
    policy = PodPolicy(pod={"spec": {"nodeSelector": {"pool": "policy"}}})
    config = replace(CONFIG, template=template, policy=policy)
    pod = build_pod(launch(options={"image": "other:2", "pod": task}), INSTANCE, config)
    validate(pod)
    assert pod["spec"]["nodeSelector"] == {"pool": "policy", "zone": "task", "disk": "template"}
    assert (container(pod)["image"], environment(pod)["A"]) == ("other:2", "1")
    assert len(pod["spec"]["containers"]) == 1


def test_tenants_have_namespaces_and_identities_of_their_own() -> None:
    """What a tenant does not set is that of everybody."""
    config = replace(CONFIG, tenants={"acme": {"namespace": "acme-tasks", "service_account": "acme"}})
    pod = build_pod(launch(tenant="acme"), INSTANCE, config)
    assert (pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"]) == ("acme-tasks", "acme")
    assert container(pod)["image"] == CONFIG.image
    assert config.namespaces() == ["acme-tasks", "tasks"]


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ({"spec": {"hostNetwork": True}}, "spec.hostNetwork"),
        ({"spec": {"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}}, "spec.volumes.hostPath.path"),
        ({"spec": {"volumes": [{"name": "x", "secret": {"secretName": "y"}}]}}, "spec.volumes.secret.secretName"),
        ({"spec": {"volumes": None}}, "spec.volumes"),
        ({"spec": {"securityContext": None}}, "spec.securityContext"),
        ({"spec": {"automountServiceAccountToken": True}}, "spec.automountServiceAccountToken"),
        (
            {"spec": {"containers": [{"name": "attempt", "securityContext": {"privileged": True}}]}},
            "spec.containers.securityContext.privileged",
        ),
        ({"spec": {"containers": [{"name": "attempt", "command": ["sh"]}]}}, "spec.containers.command"),
        (
            {
                "spec": {
                    "containers": [
                        {"name": "attempt", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x"}}}]}
                    ]
                }
            },
            "spec.containers.env.valueFrom.secretKeyRef.name",
        ),
        ({"spec": {"initContainers": [{"name": "x", "image": "y"}]}}, "spec.initContainers.name"),
        ({"metadata": {"labels": {"app": "shop"}}}, "metadata.labels.app"),
    ],
)
def test_a_task_cannot_set_what_the_policy_does_not_allow(part: dict[str, Any], path: str) -> None:
    """The list of what is allowed is closed: a new field of Kubernetes is not allowed."""
    with pytest.raises(RefusedPodError, match=rf"does not let a task set {path} of its pod"):
        build_pod(launch(options={"pod": part}), INSTANCE, CONFIG)


def test_the_operator_may_allow_more() -> None:
    """A list of its own replaces the usual one."""
    config = replace(CONFIG, policy=PodPolicy(allow=("spec.priorityClassName",)))
    pod = build_pod(launch(options={"pod": {"spec": {"priorityClassName": "urgent"}}}), INSTANCE, config)
    assert pod["spec"]["priorityClassName"] == "urgent"
    with pytest.raises(RefusedPodError, match=r"spec\.nodeSelector\.a"):
        build_pod(launch(options={"pod": {"spec": {"nodeSelector": {"a": "b"}}}}), INSTANCE, config)


def test_a_task_cannot_exceed_the_largest_pod_or_choose_any_image() -> None:
    """Every excess is named with its limit."""
    policy = PodPolicy(max_resources={"cpu": 2, "gpu": 1}, images=("registry.example.org/*",))
    config = replace(CONFIG, policy=policy)
    with pytest.raises(RefusedPodError, match=r"at most 2 of cpu for a pod, not 4 \(requests\)"):
        build_pod(launch(resources={"cpu": 4}), INSTANCE, config)
    with pytest.raises(RefusedPodError, match=r"at most 1 of gpu for a pod, not 2 \(requests\)"):
        build_pod(launch(resources={"gpu": 2}), INSTANCE, config)
    with pytest.raises(RefusedPodError, match=r"does not allow the image evil:1, only registry\.example\.org/\*"):
        build_pod(launch(options={"image": "evil:1"}), INSTANCE, config)
    assert container(build_pod(launch(options={"image": "registry.example.org/a"}), INSTANCE, config))["image"]


def test_a_task_that_asks_for_nothing_cannot_use_more_than_the_largest_pod() -> None:
    """The maximum is the limit; it is not requested, as Kubernetes would by itself."""
    policy = PodPolicy(max_resources={"cpu": 2, "memory": 2**30, "gpu": 1})
    pod = build_pod(launch(), INSTANCE, replace(CONFIG, resources={}, policy=policy))
    validate(pod)
    limits = {"cpu": "2", "memory": str(2**30)}
    assert container(pod)["resources"] == {"requests": {"cpu": "0", "memory": "0"}, "limits": limits}
    asking = container(
        build_pod(launch(resources={"cpu": 1, "memory": 2**20}), INSTANCE, replace(CONFIG, policy=policy))
    )
    requests = {"cpu": "1", "memory": str(2**20)}
    assert asking["resources"] == {"requests": requests, "limits": {"cpu": "2", "memory": str(2**20)}}


def test_containers_share_the_largest_pod() -> None:
    """What one with a limit leaves is the limit of the others; one that is left nothing is refused."""
    sidecar = {"name": "proxy", "image": "proxy", "resources": {"limits": {"cpu": "1500m"}}}
    template = {"spec": {"containers": [sidecar]}}
    config = replace(CONFIG, resources={}, template=template, policy=PodPolicy(max_resources={"cpu": 2}))
    assert container(build_pod(launch(), INSTANCE, config))["resources"]["limits"] == {"cpu": "500m"}
    config = replace(config, policy=PodPolicy(max_resources={"cpu": 1.5}))
    with pytest.raises(RefusedPodError, match=r"leave nothing of the 1\.5 of cpu"):
        build_pod(launch(), INSTANCE, config)


def test_a_task_mounts_only_its_own_volumes() -> None:
    """A volume of the template may hold what is meant for another container."""
    volume, mount = {"name": "data", "emptyDir": {}}, {"name": "data", "mountPath": "/data"}
    mounts = {"containers": [{"name": "attempt", "volumeMounts": [mount]}]}
    own = build_pod(launch(options={"pod": {"spec": {"volumes": [volume], **mounts}}}), INSTANCE, CONFIG)
    validate(own)
    assert mount in container(own)["volumeMounts"]
    config = replace(CONFIG, template={"spec": {"volumes": [{"name": "data", "secret": {"secretName": "keys"}}]}})
    with pytest.raises(RefusedPodError, match="a task can only mount volumes that it declares itself, not data"):
        build_pod(launch(options={"pod": {"spec": mounts}}), INSTANCE, config)


SECRET_VOLUME = {"spec": {"volumes": [{"name": "data", "secret": {"secretName": "keys"}}]}}


@pytest.mark.parametrize(
    "config", [replace(CONFIG, template=SECRET_VOLUME), replace(CONFIG, policy=PodPolicy(pod=SECRET_VOLUME))]
)
def test_a_task_does_not_get_a_volume_of_the_operator_by_its_name(config: KubernetesConfig) -> None:
    """Volumes are merged by name: one that a task declares without a source would be the operator's."""
    mounts = [{"name": "attempt", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]
    part = {"spec": {"volumes": [{"name": "data"}], "containers": mounts}}
    with pytest.raises(RefusedPodError, match="a task can only mount volumes that it declares itself, not data"):
        build_pod(launch(options={"pod": part}), INSTANCE, config)


VAULT = {
    "name": "vault",
    "image": "vault",
    "volumeMounts": [{"name": "keys", "mountPath": "/keys"}],
}
SIDECAR = {"spec": {"containers": [VAULT], "volumes": [{"name": "keys", "secret": {"secretName": "keys"}}]}}
INIT = {"spec": {"initContainers": [VAULT], "volumes": SIDECAR["spec"]["volumes"]}}


@pytest.mark.parametrize("layer", [SIDECAR, INIT], ids=["container", "init container"])
@pytest.mark.parametrize("section", ["containers", "initContainers"])
@pytest.mark.parametrize("is_policy", [False, True])
def test_a_task_cannot_change_a_container_of_the_operator(layer: dict[str, Any], section: str, is_policy: bool) -> None:
    """Containers are merged by name: a task could load code into one that holds secrets, or replace its mounts."""
    allow = (*DEFAULT_ALLOWED, "spec.initContainers")
    policy = PodPolicy(allow=allow, pod=layer) if is_policy else PodPolicy(allow=allow)
    config = replace(CONFIG, template={} if is_policy else layer, policy=policy)
    for change in (
        {"env": [{"name": "LD_PRELOAD", "value": "/data/evil.so"}]},
        {"volumeMounts": [{"name": "data", "mountPath": "/keys"}]},
    ):
        spec = {section: [{"name": "vault", **change}], "volumes": [{"name": "data", "emptyDir": {}}]}
        with pytest.raises(RefusedPodError, match=r"a task can only .* not (of )?'vault'"):
            build_pod(launch(options={"pod": {"spec": spec}}), INSTANCE, config)


@pytest.mark.parametrize(
    "containers", [[{"name": "istio-proxy"}], [{"env": []}], [None], ["x"], None, {"name": "attempt"}]
)
def test_a_task_sets_fields_of_its_own_container_only(containers: object) -> None:
    """A container of another name may be one that an admission webhook adds; what is no list would remove them all."""
    config = replace(CONFIG, template=SIDECAR, policy=PodPolicy(allow=("spec",)))
    with pytest.raises(RefusedPodError, match="a task can only set fields of its own container 'attempt'"):
        build_pod(launch(options={"pod": {"spec": {"containers": containers}}}), INSTANCE, config)


def test_the_operator_may_allow_init_containers_of_the_task() -> None:
    """They have names of their own."""
    config = replace(CONFIG, template=SIDECAR, policy=PodPolicy(allow=("spec.initContainers",)))
    part = {"spec": {"initContainers": [{"name": "setup", "image": "setup"}]}}
    pod = build_pod(launch(options={"pod": part}), INSTANCE, config)
    validate(pod)
    assert [one["name"] for one in pod["spec"]["initContainers"]] == ["setup"]


def test_a_task_cannot_pass_for_another_attempt() -> None:
    """Its labels, its token and its server are Tidemill's, whatever the policy allows."""
    forged = {"metadata": {"labels": {"tidemill/instance": "x"}}}
    lenient = replace(CONFIG, policy=PodPolicy(allow=("metadata",)))
    with pytest.raises(RefusedPodError, match="names that begin with 'tidemill/' are Tidemill's"):
        build_pod(launch(options={"pod": forged}), INSTANCE, lenient)
    variables = [{"name": name, "value": "evil"} for name in ("TIDEMILL_SERVER_URL", "TIDEMILL_ATTEMPT_TOKEN")]
    part = {"spec": {"containers": [{"name": "attempt", "env": variables}]}}
    pod = build_pod(launch(options={"pod": part}), INSTANCE, CONFIG)
    validate(pod)
    assert "evil" not in str(pod)


LEAVES = st.one_of(st.none(), st.booleans(), st.text(max_size=3), st.integers(0, 9))
FIELDS = st.sampled_from(
    [
        *("hostNetwork", "nodeSelector", "containers", "initContainers", "volumes", "volumeMounts", "emptyDir"),
        *("securityContext", "name", "env", "value", "restartPolicy", "image", "resources", "limits", "cpu", "x"),
    ]
)
PARTS = st.recursive(
    LEAVES, lambda inner: st.dictionaries(FIELDS, inner, max_size=3) | st.lists(inner, max_size=2), max_leaves=12
)


@settings(max_examples=300)
@given(st.dictionaries(FIELDS, PARTS, max_size=3))
def test_whatever_a_task_asks_for_the_policy_and_the_identity_hold(spec: dict[str, Any]) -> None:
    """A pod is refused, or has the operator's last word and is the pod of its own attempt."""
    forced = {"hostNetwork": False, "securityContext": {"runAsNonRoot": True, "runAsUser": 7}}
    allow = (*DEFAULT_ALLOWED, "spec.hostNetwork", "spec.securityContext", "spec.containers.resources")
    config = replace(CONFIG, policy=PodPolicy(pod={"spec": forced}, allow=allow, max_resources={"cpu": 2}))
    try:
        pod = build_pod(launch(options={"pod": {"spec": spec}}), INSTANCE, config)
    except RefusedPodError:
        return
    assert pod["spec"]["hostNetwork"] is False
    assert pod["spec"]["securityContext"].items() >= forced["securityContext"].items()  # type: ignore[attr-defined]
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["serviceAccountName"] == "attempt"
    assert pod["metadata"]["labels"].items() >= pod_labels(INSTANCE, launch()).items()
    assert container(pod)["command"] == ["tidemill", "attempt"]


@given(st.text(min_size=1), st.text(min_size=1), st.integers(-1, 10**6), st.integers(1, 10**6))
def test_names_and_labels_are_valid_for_every_attempt(workflow: str, task: str, element: int, number: int) -> None:
    """A name is a DNS label, and the schema takes every label."""
    key = AttemptKey("run 1/ü", task, element, number)
    pod = build_pod(launch(key, workflow=workflow, tenant="Äcme & co."), INSTANCE, CONFIG)
    name = pod["metadata"]["name"]
    assert len(name) <= 63
    assert name.isascii()
    assert name.replace("-", "").isalnum()
    assert name == name.lower().strip("-")
    for value in pod["metadata"]["labels"].values():
        assert len(value) <= 63
        assert value[0].isalnum()
        assert value[-1].isalnum()
        assert value.isascii()
    assert read_key(pod) == key


def test_attempts_have_pods_of_their_own() -> None:
    """The name follows from the attempt alone, and no other attempt has it."""
    keys = [
        AttemptKey(run, task, element, number)
        for run in "ab"
        for task in ("x", "x_y")
        for element in (-1, 0)
        for number in (1, 2)
    ]
    names = {pod_name(instance, key, "w") for key in keys for instance in ("s1", "s2")}
    assert len(names) == 2 * len(keys)
    assert pod_name("s1", keys[0], "w") == pod_name("s1", keys[0], "w")
