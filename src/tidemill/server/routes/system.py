"""The system: build, leader, store, retention, settings, and the metrics that a page plots."""

import platform

from tidemill import __version__
from tidemill.engine.workflows.leader.election import LEASE_NAME
from tidemill.node import Node
from tidemill.server.injection import InjectedContext, InjectedPrincipal
from tidemill.server.process_usage import read_process_usage
from tidemill.server.routes.meta import visible_samples
from tidemill.server.views.system import (
    InstanceView,
    LeaderView,
    MetricValues,
    RetentionView,
    SystemView,
    list_settings,
    read_store,
)


async def get_system(context: InjectedContext, principal: InjectedPrincipal) -> SystemView:
    """Return build, leader and retention; to an admin of the instance, also the store, the settings and the process."""
    node, owner = context.node, context.node.workflow_client.owner
    return SystemView(
        version=__version__,
        python=platform.python_version(),
        node=owner.id,
        started_at=owner.at,
        leader=await _read_leader(node),
        retention=_read_retention(node, principal.tenant),
        instance=InstanceView(
            store=await read_store(node.store), settings=list_settings(node.settings), process=read_process_usage()
        )
        if principal.is_instance_admin
        else None,
    )


async def get_system_metrics(context: InjectedContext, principal: InjectedPrincipal) -> MetricValues:
    """Return the metrics of this server as plain numbers; an admin of the instance sees those of all tenants."""
    node = context.node
    values = node.metrics_registry.by_name(visible_samples(node.metrics_registry, principal))
    return MetricValues(at=node.event_feed.clock.now(), values=values)


async def _read_leader(node: Node) -> LeaderView | None:
    lease = await node.store.leases.current(LEASE_NAME)
    if lease is None:
        return None
    names = {one.id: one.name for one in await node.store.owners.list_all()}
    return LeaderView(
        id=lease.holder,
        name=names.get(lease.holder) or lease.holder,
        epoch=lease.epoch,
        is_this_node=lease.holder == node.workflow_client.owner.id,
    )


def _read_retention(node: Node, tenant: str) -> RetentionView:
    settings, last = node.settings, node.workflow_client.last_prune()
    return RetentionView(
        runs=settings.tenant_retention.get(tenant, settings.retention),
        audit=settings.audit_retention,
        last_pass_at=None if last is None else last.at,
        last_pass_deleted=None if last is None else last.deleted,
    )
