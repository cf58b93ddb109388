"""A node whose pods share nothing with this machine: their code comes as a package.

Against a kube-apiserver of the tests, their kubelet runs the pods. Against a cluster, its nodes do.
"""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.kubernetes.chosen_cluster import CHOSEN, REAL
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.kubelet import open_kubelet
from tests.kubernetes.launching import IMAGE
from tests.kubernetes.pod_node import write_config
from tests.kubernetes.pods import Pods
from tidemill.node import Node
from tidemill.server.app import make_app
from tidemill.server.authentication import CredentialAuthentication
from tidemill.server.serving import serving

PACKAGE = Path(__file__).parent / "package"
IS_CLUSTER = CHOSEN != REAL
HOST = os.environ.get("KUBERNETES_SERVER_HOST", "127.0.0.1")


@pytest.fixture
async def node(cluster: Cluster, pods: Pods, tmp_path: Path) -> AsyncIterator[Node]:
    """A node with a server that takes only calls with a credential: it may be on a network."""
    async with AsyncExitStack() as stack:
        if not IS_CLUSTER:
            await stack.enter_async_context(open_kubelet(cluster, pods.namespace))
        image = os.environ.get("KUBERNETES_IMAGE", IMAGE)
        config = write_config(cluster, pods.namespace, tmp_path, image=image, start_timeout="20s")
        settings = {"kubernetes_config": config, "tick_interval": 0.2}
        node = await stack.enter_async_context(Node(f"sqlite:///{tmp_path}/store.db", load=PACKAGE, settings=settings))
        app = make_app(node, CredentialAuthentication(node.access))
        url = await stack.enter_async_context(serving(app, "0.0.0.0" if IS_CLUSTER else HOST, 0))
        node.suggest_server_url(f"http://{HOST}:{urlsplit(url).port}")
        yield node
