"""The API server that tests use.

Without TIDEMILL_TEST_KUBERNETES it is the one of `api_server.py`, in the loop of the test. `apiserver` is a real one
that the tests start, a path is the kubeconfig of a cluster: `make test-kubernetes` sets it.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.kubernetes.api_server import ApiServer, open_api_server
from tests.kubernetes.cluster import Cluster, create_namespace, delete_namespace, read_kubeconfig
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.pods import Pods

VARIABLE = "TIDEMILL_TEST_KUBERNETES"

CHOSEN = os.environ.get(VARIABLE)

LEFT_OUT = {
    None: ["apiserver", "smoke"],
    "apiserver": ["fake", "smoke/test_real_nodes.py"],
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


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A real API server for all tests of a process; no test may stop it."""
    yield from _running()


@pytest.fixture
def own_control_plane() -> Iterator[ControlPlane]:
    """A real API server for one test, that the test may stop, kill and start."""
    yield from _running()


@pytest.fixture
async def api_server() -> AsyncIterator[ApiServer]:
    """A server that behaves like the API server, and fails as the test wants."""
    async with open_api_server() as server:
        yield server


@pytest.fixture
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """The API server under test, for an administrator."""
    if CHOSEN is None:
        async with open_api_server() as server:
            yield server.cluster
    elif CHOSEN == "apiserver":
        yield request.getfixturevalue("control_plane").cluster
    else:
        yield read_kubeconfig(Path(CHOSEN), tmp_path)


@pytest.fixture
async def pods(cluster: Cluster) -> AsyncIterator[Pods]:
    """The pods of a namespace that has none yet."""
    async with cluster.client() as client:
        namespace = await create_namespace(client)
        try:
            yield Pods(client, namespace)
        finally:
            await delete_namespace(client, namespace)


def _running() -> Iterator[ControlPlane]:
    plane = ControlPlane()
    try:
        plane.start()
        yield plane
    finally:
        plane.remove()
