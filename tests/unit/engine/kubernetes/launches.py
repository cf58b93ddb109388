"""Launches of attempts, and configurations, for tests of their pods."""

from typing import Any

from tidemill.engine.workflows.executors.kubernetes.configuration import KubernetesConfig
from tidemill.engine.workflows.executors.remote.interface import SERVER_URL_VARIABLE, Launch
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey

INSTANCE = "store-1"
KEY = AttemptKey("run-1", "train", UNMAPPED, 1)
CONFIG = KubernetesConfig(image="registry.example.org/tidemill:1", namespace="tasks", service_account="attempt")


def launch(key: AttemptKey = KEY, **changes: Any) -> Launch:
    """Return a launch; `resources`, `options` and others may be changed."""
    values: dict[str, Any] = {
        "key": key,
        "tenant": "public",
        "workflow": "daily_report",
        "version": "abc",
        "token": "secret-token",
        "environment": {SERVER_URL_VARIABLE: "http://tidemill:8080"},
    }
    return Launch(**values | changes)
