"""The names that callers use: of their tenant's reactors and accumulators, and of reactors that others share."""

from collections.abc import Iterable

from tidemill.access.principal import Caller
from tidemill.engine.graphs.client.routing import OperationRouter
from tidemill.engine.graphs.loaded_graphs import LoadedGraphs, check_whole, partition_named_error
from tidemill.engine.registry import Registry
from tidemill.graphs.keys import PartitionId
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.kernel.limits import is_storable
from tidemill.storage.graph_ports import PartKey, PartKind


class PartNames:
    """Finds the parts that callers name, and lists those of a caller's tenant."""

    def __init__(self, router: OperationRouter, loaded: LoadedGraphs, registry: Registry) -> None:
        self._router = router
        self._loaded = loaded
        self._registry = registry

    async def reactors(self, caller: Caller) -> list[str]:
        """Return the reactors of the caller's tenant, on any node, by name."""
        return await self._list(caller, "reactor", self._loaded.running_keys()[0])

    async def accumulators(self, caller: Caller) -> list[str]:
        """Return the accumulators of the caller's tenant, on any node, by name."""
        return await self._list(caller, "accumulator", self._loaded.running_keys()[1])

    async def _list(self, caller: Caller, kind: PartKind, running: Iterable[tuple[str, str]]) -> list[str]:
        here = {name for tenant, name in running if tenant == caller.tenant}
        return sorted(here | _whole_names(await self._router.owned_names(caller.tenant, kind)))

    def local(self, caller: Caller, kind: PartKind, name: str) -> PartKey:
        """Return the part of a name, "name" or "tenant/name", whether or not the caller may use it."""
        owner, _, local = name.rpartition("/")
        return PartKey(owner or caller.tenant, kind, local)

    def own(self, caller: Caller, kind: PartKind, name: str) -> PartKey:
        """Return a reactor or an accumulator of the caller's tenant."""
        part = self.local(caller, kind, name)
        if part.tenant == caller.tenant:
            return self._whole(part)
        if kind == "reactor" and self._registry.is_shared(part.tenant, part.name):
            message = (
                f"reactor '{name}' is shared: you may read it and bind graphs to it, and only '{part.tenant}' may more"
            )
            raise RequestError(message, code="not_allowed", status=403, reactor=name)
        raise _not_found(kind, name)

    def readable_reactor(self, caller: Caller, name: str) -> PartKey:
        """Return a reactor of the caller's tenant, or one that another tenant shares."""
        part = self.local(caller, "reactor", name)
        if part.tenant == caller.tenant or self._registry.is_shared(part.tenant, part.name):
            return self._whole(part)
        raise _not_found("reactor", name)

    def _whole(self, part: PartKey) -> PartKey:
        """Return a part that callers may name: a partition is not such a part, because keys belong to partitions."""
        if not is_storable(part.name):
            raise _not_found(part.kind, part.name)
        if part.kind == "reactor" and self._loaded.is_partition(part):
            raise partition_named_error(part)
        return check_whole(part)


def _whole_names(names: Iterable[str]) -> set[str]:
    """Return the names of reactors or accumulators, without those of partitions and of their hosts."""
    found = set(names)
    partitions = {name for name in found if (one := PartitionId.parse(name)) is not None and one.name in found}
    return {name for name in found - partitions if "/" not in name}


def _not_found(kind: PartKind, name: str) -> NotFoundError:
    """Return the error for a part of another tenant: it does not reveal whether there is one."""
    message = f"unknown {kind} '{name}'"
    return NotFoundError("reactor", name, message) if kind == "reactor" else NotFoundError("accumulator", name, message)
