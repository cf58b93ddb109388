"""The reactors and accumulators that a node has loaded, by name."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from weakref import WeakValueDictionary

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.durability.ownership import ReactorOwnedError
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.push_paths.by_partition import FrontPath
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.staging import (
    ManagedGraph,
    current_feeds,
    name_taken_error,
    not_shared_error,
    reactor_in_use_error,
)
from tidemill.engine.registry import Key
from tidemill.graphs.definition import Reactor
from tidemill.graphs.keys import PartitionId
from tidemill.graphs.outcomes import Receipt
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.graph_ports import PartKey, PartKind

PushNow = Callable[[Any], Receipt | None]
"""Pushes an event that need not wait; returns None if it may have to."""


def partitioned_error(kind: PartKind, name: str) -> RequestError:
    """Return the error for a call that needs the one reactor or accumulator of a name that has many."""
    message = f"{kind} '{name}' runs as partitions, and this call needs one of them: say which by its key"
    return RequestError(message, code="partitioned", status=409)


def check_whole(part: PartKey) -> PartKey:
    """Return an accumulator that callers may name, or raise NotFoundError: events reach a partition by their keys."""
    if part.kind == "accumulator" and PartitionId.parse(part.name) is not None:
        raise partition_named_error(part)
    return part


def partition_named_error(part: PartKey) -> NotFoundError:
    """Return the error for a caller who names a partition."""
    named = PartitionId.parse(part.name)
    declared = part.name if named is None else named.name
    message = f"unknown {part.kind} '{part.name}': use '{declared}', which finds the partition of each key"
    if part.kind == "reactor":
        return NotFoundError("reactor", part.name, message, [declared])
    return NotFoundError("accumulator", part.name, message, [declared])


class LoadedGraphs:
    """What the graph scheduler has loaded: reactors, partitions of keyed reactors, and their accumulators."""

    def __init__(self) -> None:
        self.is_closed = False
        self.keyed: dict[Key, PartitionedReactor] = {}
        """The keyed reactors, whether or not partitions of them run here."""
        self.keyed_accumulators: dict[Key, PartitionedReactor] = {}
        """The keyed reactor of each of their accumulators."""
        self.leaving: set[PartKey] = set()
        """Parts of partitions that this node hands over: they take nothing new."""
        self.standby: dict[PartKey, ReactorOwnedError] = {}  # what this node waits for, with the error that callers get
        self.managed: dict[Key, ManagedGraph] = {}
        """The reactors that run here, with the partitions of keyed ones."""
        self.running: dict[Key, RunningAccumulator] = {}
        """The accumulators that run here."""
        self._direct_pushes: dict[str, dict[str, PushNow]] = {}
        self._front_paths: WeakValueDictionary[Key, FrontPath] = WeakValueDictionary()

    # -- reactors and accumulators that run here

    def reactor(self, tenant: str, name: str) -> RunningReactor:
        """Return a loaded reactor, or raise RequestError."""
        managed = None if self.is_closed else self.managed.get((tenant, name))
        return (managed or self._find_managed(tenant, name)).reactor

    def accumulator(self, tenant: str, name: str) -> RunningAccumulator:
        """Return a running accumulator, or raise RequestError."""
        accumulator = None if self.is_closed else self.running.get((tenant, name))
        if accumulator is None:
            self._check_open()
            if (tenant, name) in self.keyed_accumulators:
                raise partitioned_error("accumulator", name)
            part = PartKey(tenant, "accumulator", name)
            if (standby := self.standby.get(part)) is not None:
                raise standby.naming(part)
            known = [other for owner, other in self.running if owner == tenant]
            message = f"accumulator '{name}' not loaded{did_you_mean(name, known)}"
            raise NotFoundError("accumulator", name, message, known)
        return accumulator

    def find_running(self, tenant: str, name: str) -> RunningAccumulator | None:
        """Return a running accumulator; None if it does not run here."""
        return self.running.get((tenant, name))

    def runs(self, part: PartKey) -> bool:
        """Return whether this node runs a reactor or an accumulator, and neither hands it over nor has lost it.

        Each node that has loaded a keyed reactor runs it as a whole: it calls the owners of the partitions.
        """
        return part not in self.leaving and (self.has_running(part) or self.is_partitioned(part))

    def has_running(self, part: PartKey) -> bool:
        """Return whether a reactor or an accumulator runs here, and no other node has acquired it."""
        if part.kind == "reactor":
            managed = self.managed.get((part.tenant, part.name))
            return managed is not None and not managed.reactor.is_fenced
        accumulator = self.running.get((part.tenant, part.name))
        return accumulator is not None and not accumulator.is_fenced

    def is_partitioned(self, part: PartKey) -> bool:
        """Return whether a part is a keyed reactor, or an accumulator of one."""
        loaded = self.keyed if part.kind == "reactor" else self.keyed_accumulators
        return (part.tenant, part.name) in loaded

    def is_partition(self, part: PartKey) -> bool:
        """Return whether a part belongs to one partition of a keyed reactor that is loaded."""
        partition = PartitionId.parse(part.name)
        return partition is not None and self.is_partitioned(part._replace(name=partition.name))

    def _check_open(self) -> None:
        if self.is_closed:
            raise RequestError("the node is no longer running", code="not_running", status=503)

    def _find_managed(self, tenant: str, name: str) -> ManagedGraph:
        self._check_open()
        owner, _, local = name.rpartition("/")
        if owner and owner != tenant:
            raise not_shared_error(owner, local, tenant)
        managed = self.managed.get((tenant, local))
        if managed is None:
            if (tenant, local) in self.keyed:
                raise partitioned_error("reactor", local)
            part = PartKey(tenant, "reactor", local)
            if (standby := self.standby.get(part)) is not None:
                raise standby.naming(part)
            known = [other for owned_by, other in (*self.managed, *self.keyed) if owned_by == tenant]
            message = f"reactor '{local}' not loaded{did_you_mean(local, known)}"
            raise NotFoundError("reactor", local, message, known)
        return managed

    @property
    def reactors(self) -> Iterable[RunningReactor]:
        """All reactors that run here, with the partitions of keyed ones."""
        return [managed.reactor for managed in self.managed.values()]

    @property
    def accumulators(self) -> Iterable[RunningAccumulator]:
        """All running accumulators."""
        return list(self.running.values())

    def direct_pushes(self, tenant: str) -> dict[str, PushNow]:
        """Return the way of a tenant's direct pushes by accumulator, which callers fill; what stops leaves it."""
        return self._direct_pushes.setdefault(tenant, {})

    # -- keyed reactors

    def front_path(self, tenant: str, name: str) -> FrontPath:
        """Return the path of an accumulator's events to the partitions that run here; handles of it share one."""
        path = self._front_paths.get((tenant, name))
        if path is None:
            path = self._front_paths[tenant, name] = FrontPath(self, tenant, name)
        return path

    def add_keyed(self, keyed: PartitionedReactor) -> None:
        """Add a keyed reactor, or replace it by a newer version."""
        self.keyed[keyed.key] = keyed
        for name in keyed.definition.accumulator_names:
            self.keyed_accumulators[keyed.tenant, name] = keyed
            self._reset_front(keyed.tenant, name)

    def drop_accumulator(self, tenant: str, name: str) -> None:
        """Forget an accumulator that has stopped; it may be that of a partition."""
        dropped = self.running.pop((tenant, name))
        self.direct_pushes(tenant).pop(name, None)
        if (partition := dropped.definition.partition) is not None:
            self._reset_front(tenant, partition.name)

    def _reset_front(self, tenant: str, name: str) -> None:
        if (path := self._front_paths.get((tenant, name))) is not None:
            path.forget()

    def drop_keyed(self, keyed: PartitionedReactor) -> None:
        """Forget a keyed reactor whose partitions have stopped."""
        for name in keyed.definition.accumulator_names:
            del self.keyed_accumulators[keyed.tenant, name]
        del self.keyed[keyed.key]

    # -- what a change may do

    def check_names(self, reactor: Reactor, tenant: str, replacing: frozenset[str] = frozenset()) -> None:
        """Reject a reactor if its name, or one of its accumulators' names, is taken."""
        key = tenant, reactor.name
        if (key in self.managed or key in self.keyed) and reactor.name not in replacing:
            raise name_taken_error("reactor", reactor.name, self.definition(*key))
        for one in reactor.accumulators:
            keyed = self.keyed_accumulators.get((tenant, one.name))
            declared = None if keyed is None else keyed.partitioners[one.name].accumulator
            if keyed is not None and declared is not one and keyed.name not in replacing:
                raise name_taken_error("accumulator", one.name, keyed.partitioners[one.name].accumulator)
            running = self.running.get((tenant, one.name))
            if running is None or running.definition is one:
                continue
            owners = {target.name for target, _ in running.emitter.targets}
            if not owners <= replacing:
                raise name_taken_error("accumulator", one.name, running.definition)

    def check_unloadable(
        self, tenant: str, name: str, leaving: frozenset[str] = frozenset(), changes: Sequence[str] = ()
    ) -> None:
        """Refuse to unload a reactor, or to apply `changes`, while graphs other than `leaving` are bound to it."""
        self.definition(tenant, name)
        feeding = current_feeds(self.managed, self.keyed).graphs_feeding((tenant, name))
        others = {*self.subscribers(tenant, name), *feeding} - leaving
        if others:
            raise reactor_in_use_error(name, others, changes=changes)

    # -- reactors by declared name

    def definition(self, tenant: str, name: str) -> Reactor:
        """Return the declaration of a loaded reactor, or raise RequestError."""
        keyed = self.keyed.get((tenant, name))
        return self._find_managed(tenant, name).reactor.definition if keyed is None else keyed.definition

    def find_keyed(self, tenant: str, name: str) -> PartitionedReactor:
        """Return a keyed reactor, or raise NotFoundError."""
        if (keyed := self.keyed.get((tenant, name))) is None:
            raise NotFoundError("reactor", name, f"reactor '{name}' not loaded")
        return keyed

    def partitions_of(self, keyed: PartitionedReactor) -> list[ManagedGraph]:
        """Return the partitions of a keyed reactor that run here, by number."""
        found = (self.managed.get((keyed.tenant, keyed.partition(number).name)) for number in keyed.numbers)
        return [one for one in found if one is not None]

    def reactors_of(self, tenant: str, name: str) -> list[RunningReactor]:
        """Return a reactor, or the partitions of a keyed one that run here; NotFoundError if there is none."""
        if (tenant, name) not in self.keyed:
            return [self._find_managed(tenant, name).reactor]
        return [one.reactor for one in self._managed_of(tenant, name)]

    def accumulators_of(self, tenant: str, name: str) -> list[RunningAccumulator]:
        """Return an accumulator, or its partitions that run here; NotFoundError if there is none."""
        if (keyed := self.keyed_accumulators.get((tenant, name))) is None:
            return [self.accumulator(tenant, name)]
        found = (self.find_running(tenant, str(PartitionId(name, number))) for number in keyed.numbers)
        return [one for one in found if one is not None]

    def _managed_of(self, tenant: str, name: str) -> list[ManagedGraph]:
        """Return a reactor, or the partitions of a keyed one that run here; none if there is no such reactor."""
        if (keyed := self.keyed.get((tenant, name))) is not None:
            return self.partitions_of(keyed)
        managed = self.managed.get((tenant, name))
        return [] if managed is None else [managed]

    def running_keys(self) -> tuple[set[Key], set[Key]]:
        """Return the declared names of the loaded reactors and accumulators."""
        whole = {key: one for key, one in self.managed.items() if not one.reactor.definition.is_partition}
        accumulators = {(one.tenant, one.name) for managed in whole.values() for one in managed.accumulators}
        return {*whole, *self.keyed}, {*accumulators, *self.keyed_accumulators}

    def subscribers(self, tenant: str, name: str) -> list[str]:
        """Return the graphs that are bound to a reactor; those of other tenants as "tenant/name"."""
        loaded = self.keyed.get((tenant, name)) or self.managed.get((tenant, name))
        return [] if loaded is None else sorted(loaded.subscribers)

    def is_bound(self, tenant: str, graph: str) -> bool:
        """Return whether a graph is bound to a reactor of its tenant."""
        keys = (key for key in (*self.managed, *self.keyed) if key[0] == tenant)
        return any(graph in self.subscribers(*key) for key in keys)

    def make_in_use_check(self, tenant: str, name: str) -> Callable[[], bool]:
        """Return a function that reports whether the calls of a reactor's author code in progress now still run."""
        checks = [managed.make_in_use_check() for managed in self._managed_of(tenant, name)]
        return lambda: any(check() for check in checks)

    def is_loaded(self, tenant: str, reactor: Reactor) -> bool:
        """Return whether this very declaration is loaded."""
        if (keyed := self.keyed.get((tenant, reactor.name))) is not None:
            return keyed.definition is reactor
        managed = self.managed.get((tenant, reactor.name))
        return managed is not None and managed.reactor.definition is reactor

    def refresh_subscribers(self, tenant: str, name: str) -> None:
        """Update the workflows that a reactor's firings start, if it is loaded."""
        for managed in self._managed_of(tenant, name):
            managed.reactor.refresh_subscribers()

    @property
    def is_on_thread(self) -> bool:
        """Whether some author function is running on a thread."""
        return any(one.kind.is_on_thread for one in self.running.values())


class GraphChanges:
    """Keeps changes of packages and moves of partitions from overlapping."""

    def __init__(self, loaded: LoadedGraphs) -> None:
        self.lock = asyncio.Lock()
        """Held while packages change, so that what was checked still holds when the change is applied."""
        self._loaded = loaded
        self._count = 0

    @asynccontextmanager
    async def exclude(self) -> AsyncIterator[None]:
        """Keep packages as they are meanwhile."""
        async with self.lock:
            with self.in_progress():
                yield

    @contextmanager
    def in_progress(self) -> Iterator[None]:
        """Let reactors leave and come back meanwhile; the last change in progress ends that for all."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:  # no journal entry is retained for a reactor that was being replaced
                for one in self._loaded.running.values():
                    one.emitter.departed_reactors.clear()
