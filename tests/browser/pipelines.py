"""A node with the workflows of `workflows/pipelines.py`, which tests start, change and stop."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.browser.demo_node import DemoNode, demo_node
from tidemill.client import Client

WORKFLOWS = Path(__file__).parent / "workflows"
TIMEOUT = 20.0
"""Seconds after which an answer will not come."""


@dataclass(slots=True)
class Pipelines:
    """The node, and a copy of the package that tests may edit."""

    node: DemoNode
    folder: Path

    @property
    def url(self) -> str:
        """Return where its pages begin."""
        return self.node.url

    @property
    def gate(self) -> Path:
        """Return the file for which the workflow `gated` waits."""
        return self.folder.parent / "gate"

    def get(self, path: str, **query: Any) -> Any:
        """Return an answer of the API."""
        answer = httpx.get(f"{self.url}/api/v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: Any) -> Any:
        """Send a change to the API."""
        answer = httpx.post(f"{self.url}/api/v1{path}", json=body, timeout=TIMEOUT)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def start(self, workflow: str, **params: Any) -> str:
        """Start a run, and return its id."""
        run: str = self.post(f"/workflows/{workflow}/runs", params=params)["id"]
        return run

    def wait(self, run: str) -> None:
        """Wait for the end of a run."""
        with Client(self.url) as client:
            client.run_handle(run).wait(timeout=TIMEOUT)

    def finish(self, workflow: str, **params: Any) -> str:
        """Start a run, wait for its end, and return its id."""
        run = self.start(workflow, **params)
        self.wait(run)
        return run


@contextmanager
def run_pipelines(folder: Path) -> Iterator[Pipelines]:
    """Run a copy of the package."""
    packages = folder / "packages"
    shutil.copytree(WORKFLOWS, packages)
    os.environ["PIPELINES_GATE"] = str(folder / "gate")
    with demo_node(folder, packages=packages) as node:
        yield Pipelines(node, packages)
