"""The Ray cluster that most tests share: a start takes seconds."""

from collections.abc import Iterator

import pytest

from tests.ray.cluster import RayCluster, running_cluster


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[RayCluster]:
    """A cluster with one node of four cores."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> RayCluster:
    """The shared cluster; its token is in the environment, from which gateways inherit it."""
    for name, value in shared_cluster.environment.items():
        monkeypatch.setenv(name, value)
    return shared_cluster
