"""The Ray cluster that most tests share."""

from collections.abc import Iterator

import pytest

from tests.ray.cluster import RayCluster, token_of
from tests.ray.launchers import start_shared_cluster


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    """The shared cluster; its token is in the environment."""
    cluster = start_shared_cluster()
    with token_of(cluster):
        yield cluster
