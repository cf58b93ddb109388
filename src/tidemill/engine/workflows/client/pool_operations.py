"""Operations on pools: their sizes, how much of them is used, and changes, which hold for every process."""

from typing import NamedTuple

from tidemill.access.principal import Caller
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions, find_readable_spec
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.kernel.limits import MAX_INTEGER, WORD_RULE, is_word
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.tables.pools import PoolDemand
from tidemill.workflows.lookup import quote_name


class PoolUse(NamedTuple):
    """A pool, and how much the caller's tenant uses of it. Each tenant has all slots of a pool."""

    name: str
    slots: int
    demand: PoolDemand


class PoolOperations:
    """Reads and changes pools."""

    def __init__(self, runtime: WorkflowRuntime, versions: WorkflowVersions, leader: LeaderState) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._versions = versions
        self._leader = leader

    async def list_all(self, caller: Caller) -> list[PoolUse]:
        """Return every pool, by name."""
        sizes, demand = await self._store.pools.read_sizes(), await self._store.pools.read_demand(caller.tenant)
        none = PoolDemand(0, 0)
        return [PoolUse(name, slots, demand.get(name, none)) for name, slots in sorted(sizes.items())]

    async def get(self, caller: Caller, name: str) -> PoolUse:
        """Return a pool; NotFoundError if there is none of that name."""
        pools = {one.name: one for one in await self.list_all(caller)}
        if name not in pools:
            message = f"there is no pool {quote_name(name)}{did_you_mean(name, pools)}"
            raise NotFoundError("pool", name, message, pools)
        return pools[name]

    async def set(self, caller: Caller, name: str, slots: int) -> PoolUse:
        """Make a pool, or change its size. Tasks that have a slot of a pool that shrinks keep it."""
        if not is_word(name) or not 1 <= slots <= MAX_INTEGER:
            message = f"a pool has a name, {WORD_RULE}, and from 1 to {MAX_INTEGER} slots"
            raise RequestError(message, code="invalid_pool", pool=name)
        await self._store.pools.set_sizes({name: slots})
        await self._apply()
        return await self.get(caller, name)

    async def delete(self, caller: Caller, name: str) -> None:
        """Delete a pool that neither a loaded workflow nor a task run needs."""
        await self.get(caller, name)
        if user := await self._find_user(name):
            raise RequestError(f"pool '{name}' is needed by {user}", code="pool_in_use", status=409, pool=name)
        if not await self._store.pools.delete(name):
            message = f"pool '{name}' is needed by tasks of active runs: wait for their end, or cancel them"
            raise RequestError(message, code="pool_in_use", status=409, pool=name)
        await self._apply()

    async def _find_user(self, name: str) -> str | None:
        """Return a task of a workflow that a node has loaded and that names a pool; None if there is none."""
        for key in {one.key for one in await self._store.versions.list_loaded() if one.is_current}:
            spec = await find_readable_spec(self._versions, key)
            for task in spec.tasks if spec is not None else ():
                if task.pool == name:
                    return f"task '{task.name}' of workflow '{key.workflow}', which is loaded"
        return None

    async def _apply(self) -> None:
        """Use the new sizes on this node immediately; other nodes read them with their next tick."""
        await self._runtime.pools.refresh()
        if self._leader.scheduler is not None:
            self._leader.scheduler.wake()
