"""The file that configures the Kubernetes executor."""

from pathlib import Path

import pytest

from tidemill.engine.workflows.executors.kubernetes.configuration import KubernetesConfig, PodPolicy, read_config
from tidemill.kernel.errors import DefinitionError

WHOLE = """
image = "registry.example.org/tidemill:1"
namespace = "tasks"
service_account = "attempt"
kubeconfig = "/etc/tidemill/kubeconfig"
context = "prod"
concurrency = 50
concurrent_requests = 4
request_timeout = "5s"
pending_timeout = "15m"
start_timeout = "2m"
keep_failed_pods = "0s"
gpu_resource = "amd.com/gpu"

[resources]
cpu = "250m"
memory = "512Mi"

[template.spec]
nodeSelector = { pool = "tasks" }

[policy]
allow = ["spec.tolerations"]
images = ["registry.example.org/*"]
max_resources = { cpu = 8, memory = "32Gi" }

[policy.pod.spec]
priorityClassName = "low"

[tenants.acme]
namespace = "acme-tasks"
"""


def write(folder: Path, text: str) -> Path:
    """Write a configuration."""
    path = folder / "kubernetes.toml"
    path.write_text(text)
    return path


def test_everything_that_can_be_configured(tmp_path: Path) -> None:
    """Durations are seconds, quantities numbers."""
    assert read_config(write(tmp_path, WHOLE)) == KubernetesConfig(
        image="registry.example.org/tidemill:1",
        namespace="tasks",
        service_account="attempt",
        kubeconfig="/etc/tidemill/kubeconfig",
        context="prod",
        concurrency=50,
        concurrent_requests=4,
        request_timeout=5.0,
        pending_timeout=900.0,
        start_timeout=120.0,
        keep_failed_pods=0.0,
        gpu_resource="amd.com/gpu",
        resources={"cpu": 0.25, "memory": 2**29},
        template={"spec": {"nodeSelector": {"pool": "tasks"}}},
        policy=PodPolicy(
            pod={"spec": {"priorityClassName": "low"}},
            allow=("spec.tolerations",),
            images=("registry.example.org/*",),
            max_resources={"cpu": 8, "memory": 2**35},
        ),
        tenants={"acme": {"namespace": "acme-tasks"}},
    )


def test_only_the_image_is_needed(tmp_path: Path) -> None:
    """Everything else has a default."""
    assert read_config(write(tmp_path, 'image = "tidemill:1"')) == KubernetesConfig(image="tidemill:1")


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    """Each with its key, what it should be, and what was found."""
    text = """
namespace = "Not Valid"
concurrency = 0
pending_timeout = "soon"
imagee = "tidemill:1"
resources = { cpu = "much" }
[template]
kind = "Job"
[policy]
max = 1
[policy.pod.metadata]
name = "mine"
[tenants.acme]
namespaces = "x"
"""
    path = write(tmp_path, text)
    with pytest.raises(DefinitionError) as caught:
        read_config(path)
    found = [one.message for one in caught.value.problems]
    assert len(found) == 10
    for beginning in (
        "namespace: it is a name of Kubernetes: small letters, digits and '-', at most 63, not 'Not Valid'",
        "concurrency: it is a whole number from 1, not 0",
        "pending_timeout: 'soon' is not a duration",
        "imagee: there is no such key (did you mean 'image'?)",
        "resources: cpu: 'much' is not a quantity",
        "template: it has the tables 'metadata' and 'spec', not 'kind' = 'Job'",
        "policy.max: there is no such key",
        "policy.pod: it cannot set metadata.name",
        "tenants.acme.namespaces: there is no such key (did you mean 'namespace'?)",
        "image: it is missing",
    ):
        assert any(one.startswith(beginning) for one in found), beginning
    assert str(path) in str(caught.value)


def test_namespaces_are_limited(tmp_path: Path) -> None:
    """Each one is watched over a connection of its own."""
    tenants = "".join(f'[tenants.t{number}]\nnamespace = "n{number}"\n' for number in range(90))
    with pytest.raises(DefinitionError, match="tenants: they have 91 namespaces, more than 80"):
        read_config(write(tmp_path, f'image = "tidemill:1"\n{tenants}'))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The setting and the file are in the message."""
    with pytest.raises(DefinitionError, match=r"kubernetes_config.*missing\.toml cannot be read"):
        read_config(tmp_path / "missing.toml")
