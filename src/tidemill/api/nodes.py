"""Nodes: servers, workers, hosts, and the nodes of programs. They serve all tenants of the store."""

from datetime import datetime
from typing import TYPE_CHECKING

from tidemill.access.principal import Permission, Principal
from tidemill.api.operation import GET, CommandForm, Message, operation
from tidemill.api.paging import Page, PageRequest, page_of
from tidemill.api.services import Services
from tidemill.storage.node_kinds import NodeKind, NodeState

if TYPE_CHECKING:
    from tidemill.engine.workflows.client.nodes import NodeLoad


class NodeSummary(Message, frozen=True, kw_only=True):
    """A process on the store: what it is, whether it lives, and how much it has to do."""

    id: str
    name: str
    kind: NodeKind
    state: NodeState
    leads: bool
    """Whether it plans the runs of the store."""
    host: str
    pid: int
    labels: tuple[str, ...]
    """What a worker offers to tasks."""
    concurrency: int
    """The number of attempts that it runs at a time, at most."""
    running: int
    """The number of attempts that it has claimed."""
    started_at: datetime
    last_beat: datetime

    @classmethod
    def of_load(cls, load: "NodeLoad") -> "NodeSummary":
        """Return the message about a node."""
        owner = load.owner
        return cls(
            id=owner.id,
            name=owner.name,
            kind=owner.kind,
            state=load.state,
            leads=load.leads,
            host=owner.host.partition(" ")[0],  # without the pid namespace
            pid=owner.pid,
            labels=owner.labels,
            concurrency=owner.concurrency,
            running=load.running,
            started_at=owner.at,
            last_beat=load.last_beat,
        )


@operation(
    GET("/nodes"),
    Permission.READ,
    command=CommandForm(
        "node list",
        columns=("name", "id", "kind", "state", "leads", "running", "concurrency", "last_beat", "labels"),
        empty="no nodes",
    ),
)
async def list_nodes(services: Services, _: Principal, page: PageRequest) -> Page[NodeSummary]:
    """List the nodes of the store by name: which one leads, their load, and their last heartbeat."""
    loads = await services.workflows.nodes.list_all()
    return page_of(loads, page, key=lambda one: f"{one.owner.name}\n{one.owner.id}", view=NodeSummary.of_load)
