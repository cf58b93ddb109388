"""The Helm chart: Helm renders it, Kubernetes accepts it, and it agrees with what the commands accept and need."""

import json
import shutil
import textwrap
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer.main
import yaml

from tests.service.export.chart import ADDRESS, EVERYTHING, only, pods, refusal, render
from tests.service.export.tools import WORDS, exported, run_tool
from tidemill.cli.main import app
from tidemill.engine.workflows.executors.kubernetes.configuration import read_config
from tidemill.kernel.settings import Settings
from tidemill.server.route_table import ROUTES
from tidemill.server.serving import DRAIN_SECONDS

CUSTOM_KINDS = {"ServiceMonitor"}
"""Kinds of the Prometheus operator, which Kubernetes itself does not know."""
KUBERNETES_VERSIONS = ("1.25", "1.37")
SECRET_SETTINGS = {
    *("store", "postgres_url", "redis_url", "mqtt_url", "ray_host_store"),
    *("secret_keys", "oidc_client_secret", "vault_token"),
}
REQUIRED = {"store": {"address": ADDRESS}}


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported chart."""
    return exported("helm", tmp_path_factory.mktemp("chart")) / "tidemill"


@pytest.fixture(scope="module", params=["required", "everything"])
def manifests(request: pytest.FixtureRequest, chart: Path) -> list[dict[str, Any]]:
    """What Kubernetes gets, with as few values as possible, and with every part switched on."""
    return render(chart, REQUIRED if request.param == "required" else EVERYTHING)


def test_helm_finds_nothing(chart: Path, tmp_path: Path) -> None:
    """S-Ops: no warning either, and the chart can be packed."""
    checked = run_tool("helm", "lint", "--strict", "--quiet", chart, "--set", f"store.address={ADDRESS}")
    assert (checked.returncode, checked.stdout.strip()) == (0, ""), checked.stdout
    assert run_tool("helm", "package", chart, "--destination", tmp_path).returncode == 0
    assert [one.name for one in tmp_path.iterdir()] == [f"tidemill-{WORDS['VERSION']}.tgz"]


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kubernetes_accepts_every_manifest(manifests: list[dict[str, Any]], version: str) -> None:
    """By its own schemas, oldest and newest; unknown fields are errors."""
    known = [one for one in manifests if one["kind"] not in CUSTOM_KINDS]
    assert len(known) >= 5
    for manifest in known:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_schemas_of_kubernetes_would_find_a_mistake(chart: Path) -> None:
    """A field that Kubernetes does not know."""
    deployment = only(render(chart, REQUIRED), "Deployment", "-server")
    deployment["spec"]["template"]["spec"]["containers"][0]["portz"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES_VERSIONS[-1], strict=True)


def test_every_part_can_be_switched_on(chart: Path) -> None:
    """The other tests see all of them."""
    assert sorted(one["kind"] for one in render(chart, EVERYTHING)) == [
        *(
            "ConfigMap",
            "Deployment",
            "Deployment",
            "HorizontalPodAutoscaler",
            "Ingress",
            "NetworkPolicy",
            "NetworkPolicy",
        ),
        *("PodDisruptionBudget", "Role", "Role", "RoleBinding", "RoleBinding", "Secret", "Service", "ServiceAccount"),
        *("ServiceAccount", "ServiceAccount", "ServiceMonitor"),
    ]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "the chart needs a PostgreSQL: set store.existingSecret, or store.address"),
        ({"store": {"address": "sqlite:///tidemill.db"}}, "store.address"),
        ({"store": {"address": ADDRESS, "secretKeys": "2026:short"}}, "store.secretKeys"),
        ({**REQUIRED, "settings": {"retentoin": "30d"}}, "retentoin"),
        ({**REQUIRED, "sever": {}}, "sever"),
        ({**REQUIRED, "server": {"replicas": 0}}, "server.replicas"),
        ({**REQUIRED, "ingress": {"enabled": True}}, "ingress.hosts"),
        ({**REQUIRED, "serviceMonitor": {"enabled": True}}, "names a Secret with a key of the role `read`"),
    ],
)
def test_helm_refuses_values_that_cannot_work(chart: Path, values: dict[str, Any], reason: str) -> None:
    """Before anything is installed; the message names the value."""
    assert reason in refusal(chart, values)


def test_the_schema_knows_every_setting(chart: Path) -> None:
    """And none that holds a secret: those come from a Secret."""
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    names = schema["properties"]["settings"]["propertyNames"]["enum"]
    assert names == sorted(set(Settings.__struct_fields__) - SECRET_SETTINGS)


def test_the_schema_knows_every_value(chart: Path) -> None:
    """A value without a default is one that users do not find."""
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    assert schema["properties"].keys() - {"global"} == values.keys()
    for name, part in schema["properties"].items():
        if "properties" in part:
            assert part["properties"].keys() == values[name].keys(), name


def test_pods_can_do_little(manifests: list[dict[str, Any]], tmp_path: Path) -> None:
    """The restricted profile of Kubernetes' pod security standards, and a root file system that cannot be written."""
    dockerfile = (exported("docker", tmp_path) / "Dockerfile").read_text(encoding="utf-8")
    for pod in pods(manifests):
        context = pod["spec"]["securityContext"]
        assert (context["runAsNonRoot"], context["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
        assert f"\nUSER {context['runAsUser']}:{context['runAsGroup']}\n" in dockerfile
        volumes = {one["name"] for one in pod["spec"]["volumes"]}
        assert pod["spec"]["automountServiceAccountToken"] is ("kubernetes-executor" in volumes)
        for container in pod["spec"]["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]  # packages are copied there
            assert container["resources"]["limits"]["memory"]


def test_containers_use_options_that_the_commands_have(manifests: list[dict[str, Any]]) -> None:
    """As `tidemill COMMAND --help` lists them."""
    for pod in pods(manifests):
        (container,) = pod["spec"]["containers"]
        command, *words = container["args"]
        assert command == container["name"]
        options = {word for one in typer.main.get_command(app).get_command(None, command).params for word in one.opts}  # type: ignore[attr-defined]
        assert {word.partition("=")[0] for word in words} <= options


def test_probes_ask_for_paths_that_need_no_key(manifests: list[dict[str, Any]]) -> None:
    """Live is asked at start and later; ready decides whether requests come."""
    (server,) = only(manifests, "Deployment", "-server")["spec"]["template"]["spec"]["containers"]
    asked = {name: server[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert set(asked.values()) == {"/health/live", "/health/ready"}
    assert asked["readinessProbe"] == "/health/ready"
    open_paths = {route.path for route in ROUTES if route.permission == "none"}
    assert set(asked.values()) <= open_paths


def test_pods_have_time_to_drain(chart: Path) -> None:
    """Kubernetes kills them only after everything that they wait for, the preStop hook included."""
    manifests = render(chart, EVERYTHING)
    server = only(manifests, "Deployment", "-server")["spec"]["template"]["spec"]
    *_, pause = server["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    needed = int(pause) + 2 * (DRAIN_SECONDS + Settings().unload_timeout)
    assert server["terminationGracePeriodSeconds"] >= needed
    worker = only(manifests, "Deployment", "-worker")["spec"]["template"]["spec"]
    assert "--drain-timeout=600s" in worker["containers"][0]["args"]
    assert worker["terminationGracePeriodSeconds"] == 630


def test_selectors_find_the_pods_of_their_component(manifests: list[dict[str, Any]]) -> None:
    """And no others: a Service must not send requests to workers."""
    labels = {pod["spec"]["containers"][0]["name"]: pod["metadata"]["labels"] for pod in pods(manifests)}

    def selected(selector: dict[str, str]) -> list[str]:
        return [name for name, found in labels.items() if selector.items() <= found.items()]

    assert selected(only(manifests, "Service")["spec"]["selector"]) == ["server"]
    assert selected(only(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]) == ["server"]
    for deployment in (one for one in manifests if one["kind"] == "Deployment"):
        component = deployment["metadata"]["name"].rpartition("-")[2]
        assert selected(deployment["spec"]["selector"]["matchLabels"]) == [component]


def test_secrets_are_only_in_the_secret(chart: Path) -> None:
    """Pods refer to it, and are replaced when it changes."""
    manifests = render(chart, EVERYTHING)
    holding = [one["kind"] for one in manifests if "open-sesame" in json.dumps(one) or "AAAA" in json.dumps(one)]
    assert holding == ["Secret"]
    changed = render(chart, {**EVERYTHING, "store": {"address": ADDRESS + "2"}})
    before, after = (pods(one)[0]["metadata"]["annotations"]["checksum/secret"] for one in (manifests, changed))
    assert before != after


def test_a_secret_of_the_user_is_used_as_it_is(chart: Path) -> None:
    """The chart makes none then."""
    manifests = render(chart, {"store": {"existingSecret": "mine"}})
    assert "Secret" not in {one["kind"] for one in manifests}
    (container,) = pods(manifests)[0]["spec"]["containers"]
    keys = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container["env"]}
    assert keys["TIDEMILL_STORE"] == {"name": "mine", "key": "store"}
    assert keys["TIDEMILL_SECRET_KEYS"] == {"name": "mine", "key": "secret_keys", "optional": True}


def test_settings_become_variables(chart: Path) -> None:
    """In the form in which Tidemill reads them."""
    (container,) = pods(render(chart, EVERYTHING))[0]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    found = Settings.read(environment=variables)
    assert (found.retention, found.require_signatures, found.dead_letter_limit) == (30 * 86400, True, 50)


def test_a_service_account_of_the_operator_is_not_created(chart: Path) -> None:
    """The pods of each namespace run as it."""
    executor = {**EVERYTHING["kubernetesExecutor"], "serviceAccount": "mine"}
    manifests = render(chart, {**EVERYTHING, "kubernetesExecutor": executor})
    accounts = [one["metadata"]["name"] for one in manifests if one["kind"] == "ServiceAccount"]
    assert accounts == ["tidemill"]


def test_servers_are_configured_to_run_tasks_as_pods(chart: Path, tmp_path: Path) -> None:
    """The executor reads what the chart writes, and workers know nothing of it."""
    manifests = render(chart, EVERYTHING)
    server, worker = (one["spec"]["containers"][0] for one in pods(manifests))
    variables = {one["name"]: one["value"] for one in server["env"] if "value" in one}
    assert variables["TIDEMILL_SERVER_URL"] == "http://tidemill.default.svc:80"
    (mount,) = [one for one in server["volumeMounts"] if one["name"] == "kubernetes-executor"]
    assert variables["TIDEMILL_KUBERNETES_CONFIG"] == f"{mount['mountPath']}/kubernetes.toml"
    assert "kubernetes" not in json.dumps(worker)
    (path := tmp_path / "kubernetes.toml").write_text(only(manifests, "ConfigMap")["data"]["kubernetes.toml"])
    config = read_config(path)
    assert (config.image, config.namespace, config.concurrency) == (f"{WORDS['IMAGE']}:{WORDS['VERSION']}", "tasks", 50)
    accounts = [
        one["metadata"] for one in manifests if one["kind"] == "ServiceAccount" and "namespace" in one["metadata"]
    ]
    assert {one["name"] for one in accounts} == {config.service_account}
    assert sorted(one["namespace"] for one in accounts) == config.namespaces()
    assert config.namespaces() == sorted(one["metadata"]["namespace"] for one in manifests if one["kind"] == "Role")


def test_pods_of_the_release_reach_the_servers_under_a_policy(chart: Path) -> None:
    """G-31: servers and workers open links to the server that owns a reactor, without being named."""
    policy = only(render(chart, EVERYTHING), "NetworkPolicy", "-server")
    labels = only(render(chart, EVERYTHING), "Deployment", "-server")["spec"]["template"]["metadata"]["labels"]
    clients, pods = (one["from"][0]["podSelector"]["matchLabels"] for one in policy["spec"]["ingress"])
    assert clients == {"role": "proxy"}
    assert pods.items() <= labels.items()
    assert "app.kubernetes.io/component" not in pods


def test_a_server_url_of_the_operator_replaces_that_of_the_chart(chart: Path) -> None:
    """A variable that is there twice has the value that the cluster chooses, and `kubectl apply` warns."""
    settings = {"server_url": "https://tidemill.example.org"}
    server, *_ = (one["spec"]["containers"][0] for one in pods(render(chart, {**EVERYTHING, "settings": settings})))
    found = [one["value"] for one in server["env"] if one["name"] == "TIDEMILL_SERVER_URL"]
    assert found == ["https://tidemill.example.org"]


def test_servers_may_run_pods_and_write_tokens(chart: Path) -> None:
    """And may not read Secrets; the role is bound to their service account, in each namespace of tasks."""
    manifests = render(chart, EVERYTHING)
    for role in (one for one in manifests if one["kind"] == "Role"):
        rights = {(one["resources"][0], verb) for one in role["rules"] for verb in one["verbs"]}
        assert rights == {
            *(("pods", verb) for verb in ("create", "get", "list", "watch", "delete")),
            *(("pods/log", "get"), ("secrets", "create"), ("secrets", "update")),
        }
    for binding in (one for one in manifests if one["kind"] == "RoleBinding"):
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == ("tidemill", "default")
    assert not [one["kind"] for one in render(chart, REQUIRED) if one["kind"] in ("Role", "ConfigMap")]


@pytest.mark.parametrize(
    ("release", "name"), [("tidemill", "tidemill"), ("data", "data-tidemill"), ("r" * 53, "r" * 52)]
)
def test_names_come_from_the_release_and_fit(chart: Path, release: str, name: str) -> None:
    """Several releases share a namespace, and no name is longer than Kubernetes allows."""
    manifests = render(chart, REQUIRED, release)
    assert only(manifests, "Service")["metadata"]["name"] == name
    assert all(len(one["metadata"]["name"]) <= 63 for one in manifests)


def test_the_notes_name_what_was_installed(chart: Path, tmp_path: Path) -> None:
    """Helm prints them after an installation only, so a copy of the chart has them as a manifest."""
    copy = shutil.copytree(chart, tmp_path / "tidemill") / "templates"
    notes = textwrap.indent((copy / "NOTES.txt").read_text(encoding="utf-8"), "  ")
    (copy / "notes.yaml").write_text(f"kind: Notes\nmetadata: {{name: notes}}\ntext: |\n{notes}", encoding="utf-8")
    printed = only(render(copy.parent, REQUIRED, "data"), "Notes")["text"]
    assert "exec deployment/data-tidemill-server -- tidemill key create --role admin" in printed
    assert "port-forward service/data-tidemill 8080:80" in printed
    assert "store.secretKeys is empty" in printed
    assert "https://tidemill.example.com/" in only(render(copy.parent, EVERYTHING), "Notes")["text"]
