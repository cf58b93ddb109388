"""Pools: named limits of slots over all nodes. They are the instance's, so only its admins change them."""

from typing import Annotated

import msgspec
from litestar.params import FromPath, JSONBody

from tidemill.engine.workflows.client.pool_operations import PoolSummary
from tidemill.kernel.limits import MAX_INTEGER
from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.paging import DEFAULT_LIMIT, Cursor, Limit, Page, page_of


class PoolSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size of a pool."""

    slots: Annotated[int, msgspec.Meta(ge=1, le=MAX_INTEGER, examples=[4])]


async def list_pools(
    context: InjectedContext, caller: InjectedCaller, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[PoolSummary]:
    """List pools by name, and how much of each the tenant uses."""
    pools = await context.node.workflow_client.pools.list_all(caller)
    return page_of(pools, limit=limit, cursor=cursor, key=lambda one: one.name, view=lambda one: one)


async def get_pool(context: InjectedContext, caller: InjectedCaller, name: FromPath[str]) -> PoolSummary:
    """Return a pool, and how much of it the tenant uses."""
    return await context.node.workflow_client.pools.get(caller, name)


async def put_pool(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], data: JSONBody[PoolSize]
) -> PoolSummary:
    """Make a pool, or change its size; tasks that have a slot keep it."""
    return await context.node.workflow_client.pools.set(caller, name, data.slots)


async def delete_pool(context: InjectedContext, caller: InjectedCaller, name: FromPath[str]) -> None:
    """Delete a pool that neither a loaded workflow nor a task of an active run needs."""
    await context.node.workflow_client.pools.delete(caller, name)
