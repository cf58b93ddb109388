"""The API server that tests use, and which tests it can take."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.kubernetes.api_server import ApiServer, open_api_server
from tests.kubernetes.chosen_cluster import CHOSEN, REAL, open_chosen_cluster
from tests.kubernetes.cluster import Cluster, create_namespace, delete_namespace
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.pods import Pods

LEFT_OUT = {
    None: ["apiserver", "smoke"],
    REAL: ["fake", "smoke/test_real_nodes.py"],
}
"""By the server: tests of another one. A cluster has kubelets of its own, and its API server stays alive."""

NEEDED = ("KUBERNETES_IMAGE", "KUBERNETES_SERVER_HOST")

collect_ignore = LEFT_OUT.get(CHOSEN, ["apiserver", "fake", "test_attempts_in_pods.py", "test_kubelet.py"])


def pytest_configure() -> None:
    """Refuse a cluster without what its pods need."""
    if CHOSEN not in LEFT_OUT and (missing := [name for name in NEEDED if name not in os.environ]):
        raise pytest.UsageError(
            f"the tests with pods of a cluster need {' and '.join(missing)}: an image that has this version of "
            "Tidemill, and the address at which pods reach this machine"
        )


@pytest.fixture
def own_control_plane() -> Iterator[ControlPlane]:
    """A real API server for one test, that the test may stop, kill and start."""
    plane = ControlPlane()
    try:
        plane.start()
        yield plane
    finally:
        plane.remove()


@pytest.fixture
async def api_server() -> AsyncIterator[ApiServer]:
    """A server that behaves like the API server, and fails as the test wants."""
    async with open_api_server() as server:
        yield server


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """The API server under test, for an administrator."""
    async with open_chosen_cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
async def pods(cluster: Cluster) -> AsyncIterator[Pods]:
    """The pods of a namespace that has none yet."""
    async with cluster.client() as client:
        namespace = await create_namespace(client)
        try:
            yield Pods(client, namespace)
        finally:
            await delete_namespace(client, namespace)
