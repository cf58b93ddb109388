"""A served node that runs tasks on a Ray cluster, for tests."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.ray import flow
from tests.ray.cluster import RayCluster
from tests.service.server.serving_node import Served, served
from tidemill.api.handles import AsyncRun
from tidemill.node import Node
from tidemill.node_arguments import NodeProfile
from tidemill.server.authentication import NoAuthentication
from tidemill.workflows.records import AttemptRow
from tidemill.workflows.workflow import Workflow

FLOWS = [flow.on_ray, flow.exclusive, flow.far, flow.slow, flow.huge]
QUICK = {"heartbeat_interval": 0.5, "heartbeat_timeout": 20.0, "tick_interval": 0.1, "lease_ttl": 1.0}


@asynccontextmanager
async def ray_node(
    cluster: RayCluster, folder: Path, port: int = 0, load: Sequence[Workflow] = FLOWS, **settings: Any
) -> AsyncIterator[Served]:
    """A running node with a server that attempts reach."""
    merged = QUICK | {"ray_address": cluster.address} | settings
    profile = NodeProfile(is_single_node=False)  # it expects others on its store
    node = Node(f"sqlite:///{folder}/store.db", load=list(load), settings=merged, _profile=profile)
    async with node, served(node, NoAuthentication(node.access.tickets, node.access.attempts), port=port) as server:
        node.suggest_server_url(server.url)
        yield server


async def begin(server: Served, workflow: str, folder: Path) -> AsyncRun:
    """Start a run whose tasks leave their process ids in a folder."""
    return await server.node.start(workflow, folder=str(folder))


async def attempts_of(server: Served, run: AsyncRun) -> list[AttemptRow]:
    """Return the attempts of a run, in order."""
    return sorted(await server.node.store.runs.read_attempts(run.id), key=lambda row: row.key)


def pids(folder: Path, task: str) -> list[int]:
    """Return the ids of the processes that have begun a task."""
    return [int(path.suffix[1:]) for path in folder.glob(f"{task}.*")]
