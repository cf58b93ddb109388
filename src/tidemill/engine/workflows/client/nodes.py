"""Lists the nodes of a store: servers, workers and nodes of programs, which one leads, and which ones are gone."""

from datetime import datetime
from typing import NamedTuple

from tidemill.engine.workflows.leader.election import LEASE_NAME
from tidemill.engine.workflows.leader.retention import PrunePass
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.storage.node_kinds import NodeState
from tidemill.storage.workflow_ports import Lease, NodeBeat, NodeRow


class NodeLoad(NamedTuple):
    """A node, whether it lives, and how much it has to do."""

    owner: NodeRow
    state: NodeState
    leads: bool
    """Whether it plans the runs of the store."""
    running: int
    """The number of attempts that it has claimed."""
    last_beat: datetime


class Leader(NamedTuple):
    """The node that plans runs."""

    lease: Lease
    name: str
    """The name that people know it by, or its id."""
    is_this_node: bool


class StoreNodes:
    """The nodes of a store, as one of them, or a command, sees them."""

    def __init__(self, runtime: WorkflowRuntime, leader: LeaderState) -> None:
        self._runtime = runtime
        self._leader = leader
        self.owner = runtime.owner
        """The process itself, as the store knows it."""

    async def list_all(self) -> list[NodeLoad]:
        """Return the nodes and workers of the store, which serve all its tenants."""
        return await list_nodes(self._runtime)

    async def leader(self) -> Leader | None:
        """Return the node that plans the runs of the store; None if no node has led."""
        store = self._runtime.store
        lease = await store.leases.current(LEASE_NAME)
        if lease is None:
            return None
        names = {one.id: one.name for one in await store.owners.list_all()}
        return Leader(lease, names.get(lease.holder) or lease.holder, lease.holder == self.owner.id)

    def last_prune(self) -> PrunePass | None:
        """Return the last pass that deleted old runs; None unless this node leads, and has made one."""
        return None if self._leader.scheduler is None else self._leader.scheduler.retention.last_pass


async def count_live_nodes(runtime: WorkflowRuntime) -> int:
    """Return how many nodes that plan runs may be running on the store."""
    return sum(node.state == "alive" and node.owner.plans for node in await list_nodes(runtime))


async def list_nodes(runtime: WorkflowRuntime) -> list[NodeLoad]:
    """Return the nodes of the store, oldest first; a dead one until the leader has deleted its row."""
    store = runtime.store
    lease = await store.leases.current(LEASE_NAME)
    claims = await store.runs.count_claims()
    leader = lease.holder if lease is not None else None
    return [_to_load(runtime, beat, leader, claims) for beat in await store.owners.list_beats()]


def _to_load(runtime: WorkflowRuntime, beat: NodeBeat, leader: str | None, claims: dict[str, int]) -> NodeLoad:
    owner, state = beat.owner, _node_state(runtime, beat)
    return NodeLoad(
        owner=owner,
        state=state,
        leads=owner.id == leader and state == "alive",
        running=claims.get(owner.id, 0),
        last_beat=runtime.clock.now() if owner.id == runtime.owner.id else beat.at,
    )


def _node_state(runtime: WorkflowRuntime, beat: NodeBeat) -> NodeState:
    """Return what is known about a node. Only a process of this host is known to be gone."""
    if beat.owner.id == runtime.owner.id:
        return "alive"
    if runtime.liveness.is_dead(beat.owner):
        return "dead"
    return "alive" if beat.age < runtime.settings.heartbeat_timeout else "silent"
