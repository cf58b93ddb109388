"""A served node that runs tasks as pods, configured as an operator does: by a file."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.launching import IMAGE
from tests.remote import flow
from tests.remote.remote_node import QUICK, RemoteServer
from tests.service.server.serving_node import served
from tidemill.node import Node
from tidemill.server.authentication import NoAuthentication


@asynccontextmanager
async def pod_node(
    store: str,
    cluster: Cluster,
    namespace: str,
    folder: Path,
    port: int = 0,
    lease: float = 3.0,
    load: Any = flow.ALL,
    **config: Any,
) -> AsyncIterator[RemoteServer]:
    """A running node with a server that its pods reach."""
    node = Node(
        store,
        load=load,
        settings={
            **QUICK,
            "heartbeat_timeout": lease,
            "kubernetes_config": write_config(cluster, namespace, folder, **config),
        },
    )
    authentication = NoAuthentication(node.access.tickets, node.access.attempts)
    async with node, served(node, authentication, port=port) as server:
        node.suggest_server_url(server.url)
        yield RemoteServer(node, server.url, server.http)


def write_config(cluster: Cluster, namespace: str, folder: Path, **config: Any) -> str:
    """Write the file that configures the executor; return its path."""
    kubeconfig = cluster.write_kubeconfig(folder / "kubeconfig", namespace)
    values = {"image": IMAGE, "namespace": namespace, "kubeconfig": str(kubeconfig), **config}
    path = folder / "kubernetes.toml"
    path.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items()))
    return str(path)
