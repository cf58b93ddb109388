"""Lists the nodes of a store: servers, workers and nodes of programs, which one leads, and which ones are gone."""

from tidemill.engine.workflows.client.values import NodeState, NodeSummary
from tidemill.engine.workflows.leader.election import LEASE_NAME
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.storage.workflow_ports import OwnerBeat


async def list_nodes(runtime: WorkflowRuntime) -> list[NodeSummary]:
    """Return the nodes of the store, oldest first; a dead one until the leader has deleted its row."""
    store = runtime.store
    lease = await store.leases.current(LEASE_NAME)
    claims = await store.runs.count_claims()
    leader = lease.holder if lease is not None else None
    return [_summarize(runtime, beat, leader, claims) for beat in await store.owners.list_beats()]


def _summarize(runtime: WorkflowRuntime, beat: OwnerBeat, leader: str | None, claims: dict[str, int]) -> NodeSummary:
    owner, state = beat.owner, _node_state(runtime, beat)
    return NodeSummary(
        id=owner.id,
        name=owner.name,
        kind=owner.kind,
        state=state,
        leads=owner.id == leader and state == "alive",
        host=owner.host.partition(" ")[0],  # without the pid namespace
        pid=owner.pid,
        labels=owner.labels,
        concurrency=owner.concurrency,
        running=claims.get(owner.id, 0),
        started_at=owner.at,
        last_beat=runtime.clock.now() if owner.id == runtime.owner.id else beat.at,
    )


def _node_state(runtime: WorkflowRuntime, beat: OwnerBeat) -> NodeState:
    """Return what is known about a node. Only a process of this host is known to be gone."""
    if beat.owner.id == runtime.owner.id:
        return "alive"
    if runtime.liveness.is_dead(beat.owner):
        return "dead"
    return "alive" if beat.age < runtime.settings.heartbeat_timeout else "silent"
