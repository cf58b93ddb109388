"""Renders the Helm chart with the real Helm."""

from pathlib import Path
from typing import Any

import yaml

from tests.service.export.tools import run_tool

ADDRESS = "postgresql://tidemill:open-sesame@db/tidemill"
EVERYTHING = {
    "store": {"address": ADDRESS, "secretKeys": f"2026:{'A' * 43}=,2025:{'B' * 43}="},
    "imagePullSecrets": [{"name": "registry"}],
    "settings": {"retention": "30d", "require_signatures": True, "dead_letter_limit": 50},
    "extraEnv": [{"name": "PROXY", "value": "http://proxy:3128"}],
    "extraVolumes": [{"name": "keys", "configMap": {"name": "keys"}}],
    "extraVolumeMounts": [{"name": "keys", "mountPath": "/etc/tidemill/keys"}],
    "podLabels": {"team": "data"},
    "podAnnotations": {"note": "x"},
    "server": {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    },
    "worker": {"enabled": True, "labels": ["gpu", "large"], "autoscaling": {"enabled": True}},
    "kubernetesExecutor": {
        "enabled": True,
        "namespace": "tasks",
        "tenantNamespaces": ["acme-tasks"],
        "config": 'concurrency = 50\n\n[resources]\ncpu = "250m"\n\n[tenants.acme]\nnamespace = "acme-tasks"\n',
    },
    "service": {"annotations": {"note": "x"}},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"note": "x"},
        "hosts": ["tidemill.example.com"],
        "tls": [{"secretName": "certificate", "hosts": ["tidemill.example.com"]}],
    },
    "serviceAccount": {"annotations": {"note": "x"}},
    "networkPolicy": {"enabled": True, "from": [{"podSelector": {"matchLabels": {"role": "proxy"}}}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "keySecret": {"name": "metrics-key"}},
}
"""Values that switch on every part of the chart."""

Manifest = dict[str, Any]


def render(chart: Path, values: dict[str, Any], release: str = "tidemill") -> list[Manifest]:
    """Return the manifests of a release."""
    rendered = run_tool("helm", "template", release, chart, "--values", "-", given=yaml.safe_dump(values))
    assert rendered.returncode == 0, rendered.stderr
    return [one for one in yaml.safe_load_all(rendered.stdout) if one]


def refusal(chart: Path, values: dict[str, Any]) -> str:
    """Return why Helm refuses values."""
    rendered = run_tool("helm", "template", "tidemill", chart, "--values", "-", given=yaml.safe_dump(values))
    assert rendered.returncode != 0
    return rendered.stderr


def only(manifests: list[Manifest], kind: str, suffix: str = "") -> Manifest:
    """Return the one manifest of a kind whose name ends so."""
    (found,) = [one for one in manifests if one["kind"] == kind and one["metadata"]["name"].endswith(suffix)]
    return found


def pods(manifests: list[Manifest]) -> list[Manifest]:
    """Return the templates of pods."""
    return [one["spec"]["template"] for one in manifests if one["kind"] == "Deployment"]
