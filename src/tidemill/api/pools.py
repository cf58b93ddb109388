"""Pools: named limits of slots over all nodes. They are the instance's, so only its admins change them."""

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from tidemill.access.principal import Permission, Principal
from tidemill.api.fields import Positional
from tidemill.api.operation import DELETE, GET, PUT, CommandForm, Message, operation
from tidemill.api.paging import Page, PageRequest, page_of
from tidemill.api.services import Services
from tidemill.kernel.limits import MAX_INTEGER

if TYPE_CHECKING:
    from tidemill.engine.workflows.client.pool_operations import PoolUse

Slots = Annotated[int, Meta(ge=1, le=MAX_INTEGER, description="The number of slots.", examples=[4]), Positional()]


class Pool(Message, frozen=True, kw_only=True):
    """A pool, and how much the caller's tenant uses of it. Each tenant has all slots of a pool."""

    name: str
    slots: int
    used: int
    """The task runs that have a slot."""
    waiting: int
    """The task runs that wait for one."""

    @classmethod
    def of_use(cls, pool: "PoolUse") -> "Pool":
        """Return the message about a pool and its use."""
        return cls(name=pool.name, slots=pool.slots, used=pool.demand.used, waiting=pool.demand.waiting)


@operation(
    GET("/pools"),
    Permission.READ,
    command=CommandForm(
        "pool list", columns=("name", "slots", "used", "waiting"), empty="no pools; create one with `tidemill pool set`"
    ),
)
async def list_pools(services: Services, caller: Principal, page: PageRequest) -> Page[Pool]:
    """List pools by name, and how much of each the tenant uses."""
    pools = await services.workflows.pools.list_all(caller)
    return page_of(pools, page, key=lambda one: one.name, view=Pool.of_use)


@operation(GET("/pools/{name}"), Permission.READ, command=CommandForm("pool show"))
async def get_pool(services: Services, caller: Principal, name: str) -> Pool:
    """Return a pool, and how much of it the tenant uses."""
    return Pool.of_use(await services.workflows.pools.get(caller, name))


@operation(
    PUT("/pools/{name}"),
    Permission.INSTANCE,
    audit="pool.set",
    command=CommandForm("pool set", done="pool '{name}' has {slots} slots"),
)
async def set_pool(services: Services, caller: Principal, name: str, slots: Slots) -> Pool:
    """Create a pool, or change its size; tasks that have a slot keep it."""
    return Pool.of_use(await services.workflows.pools.set(caller, name, slots))


@operation(DELETE("/pools/{name}"), Permission.INSTANCE, audit="pool.delete", command=CommandForm("pool delete"))
async def delete_pool(services: Services, caller: Principal, name: str) -> None:
    """Delete a pool that neither a loaded workflow nor a task of an active run needs."""
    await services.workflows.pools.delete(caller, name)
