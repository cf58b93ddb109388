"""A launcher of pods with everything that it needs: an API server, a namespace, and a machine that runs pods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kubernetes.chosen_cluster import open_chosen_cluster
from tests.kubernetes.cluster import create_namespace
from tests.kubernetes.kubelet import open_kubelet
from tests.kubernetes.launching import IMAGE
from tidemill.engine.workflows.executors.kubernetes.configuration import KubernetesConfig
from tidemill.engine.workflows.executors.kubernetes.launcher import KubernetesLauncher
from tidemill.engine.workflows.executors.remote.interface import AttemptLauncher
from tidemill.kernel.clock import SystemClock


@asynccontextmanager
async def open_pod_launcher(folder: Path) -> AsyncIterator[AttemptLauncher]:
    """A launcher with eight slots; its pods are processes of this machine."""
    async with open_chosen_cluster(folder) as cluster:
        async with cluster.client() as client:
            namespace = await create_namespace(client)
        kubeconfig = cluster.write_kubeconfig(folder / "kubeconfig", namespace)
        config = KubernetesConfig(image=IMAGE, namespace=namespace, kubeconfig=str(kubeconfig), concurrency=8)
        async with open_kubelet(cluster, namespace):
            yield KubernetesLauncher(config, SystemClock())
