"""The API server that tests use, as the environment chooses it.

Without TIDEMILL_TEST_KUBERNETES it is the one of `api_server.py`, in the loop of the test. `apiserver` is a real one
that the tests start, a path is the kubeconfig of a cluster: `make test-kubernetes` sets it.
"""

import atexit
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from tests.kubernetes.api_server import open_api_server
from tests.kubernetes.cluster import Cluster, read_kubeconfig
from tests.kubernetes.control_plane import ControlPlane

CHOSEN = os.environ.get("TIDEMILL_TEST_KUBERNETES")
REAL = "apiserver"


@asynccontextmanager
async def open_chosen_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """The API server under test, for an administrator."""
    if CHOSEN is None:
        async with open_api_server() as server:
            yield server.cluster
    elif CHOSEN == REAL:
        yield _shared_control_plane().cluster
    else:
        yield read_kubeconfig(Path(CHOSEN), folder)


@cache
def _shared_control_plane() -> ControlPlane:
    """Start a control plane for all tests of this process; no test may stop it."""
    plane = ControlPlane()
    atexit.register(plane.remove)
    plane.start()
    return plane
