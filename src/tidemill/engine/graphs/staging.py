"""Staging: prepares a package change while the graphs run, before anything changes.

A load has two halves. The first one, here, does everything that may fail: it compiles graphs, creates accumulators,
opens source readers, and compiles the subscribers of other packages against the new version. The result is
`StagedGraphs`, which the scheduler puts in place: first the new reactors with their graphs (`start_reactors`), then
graphs and newer versions of what keeps running, in one step that cannot fail (`rebind`). So a rejected load leaves
everything as it was.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tidemill.annotations.codec import UnstorableError
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.emit import AccumulatorCodecs
from tidemill.engine.graphs.accumulators.kinds import create_accumulator
from tidemill.engine.graphs.durability.backend import DurabilityBackend
from tidemill.engine.graphs.durability.ownership import reactor_part_keys
from tidemill.engine.graphs.feed_checks import FeedLayout
from tidemill.engine.graphs.keys.keyed_kinds import create_keyed_accumulator
from tidemill.engine.graphs.keys.keyed_reactor import create_reactor
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.registry import Key, PackageState, Registry
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import DefinitionError, Problem, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.graph_ports import PartKey


class ManagedGraph(msgspec.Struct, eq=False):
    """A loaded reactor with its accumulators, endpoint keys and bound graphs."""

    reactor: RunningReactor
    accumulators: list[RunningAccumulator]
    endpoints: list[str]
    subscribers: dict[str, CompiledGraph] = msgspec.field(default_factory=dict)

    @property
    def part_keys(self) -> set[PartKey]:
        """The keys of the reactor's and the accumulators' parts of a checkpoint."""
        return reactor_part_keys(self.reactor.tenant, self.reactor.definition)

    def connect(self, graphs: Mapping[str, CompiledGraph]) -> None:
        """Connect the reactor with its accumulators, and with its graphs: whatever it accepts has to fire."""
        for index, one in enumerate(self.accumulators):
            self.reactor.attach(one, index)
        self.subscribers = dict(graphs)
        self.reactor.set_graphs(self.subscribers)
        self.reactor.refresh_subscribers()

    def make_in_use_check(self) -> Callable[[], bool]:
        """Return a function that reports whether the calls of author code in progress now still run.

        Calls that start later do not count.
        """
        loop = self.reactor.firing_loop
        firing = loop.driver.token
        calls = [(one, one.intake.in_flight_call) for one in self.accumulators if one.intake.in_flight_call is not None]

        def is_in_use() -> bool:
            is_firing = firing is not None and loop.driver.token is firing
            return is_firing or any(one.intake.in_flight_call is call for one, call in calls)

        return is_in_use


class GraphChange(msgspec.Struct, frozen=True, kw_only=True):
    """The reactors and graphs of a package, and those of the version it replaces."""

    tenant: str
    package: str
    reactors: tuple[Reactor, ...]
    graphs: tuple[Graph, ...]
    previous: PackageState = PackageState()
    shared: frozenset[str] = frozenset()
    """Reactors that packages of other tenants may bind to."""


class StagedGraphs(msgspec.Struct, frozen=True, kw_only=True):
    """A package change that is ready to be applied."""

    change: GraphChange
    removed_reactors: tuple[str, ...]
    """Reactors of the older version that the new one does not continue."""
    added_reactors: dict[str, ManagedGraph]
    """Reactors to start, with their accumulators."""
    reset_reactors: tuple[str, ...]
    """Those of them with another contract than in the older version: they start with an empty cache."""
    redefined_reactors: dict[str, Reactor]
    """Newer versions of reactors that keep running."""
    redefined_accumulators: dict[str, RunningAccumulator]
    """Newer versions of accumulators that keep running; they are never started."""
    subscribers: dict[Key, dict[str, CompiledGraph]]
    """Graphs to bind, of this package and of others, by reactor: see `subscriber_name`."""
    removed_keyed: tuple[str, ...] = ()
    """Keyed reactors of the older version that the new one does not continue."""
    added_keyed: dict[str, PartitionedReactor] = {}
    """Keyed reactors to load. This node then starts its share of their partitions."""
    redefined_keyed: dict[str, PartitionedReactor] = {}
    """Newer versions of keyed reactors; those of the partitions that run here are among the redefined reactors."""

    def durable_parts(self, durability: DurabilityBackend) -> set[PartKey]:
        """Return the parts that the change writes from now on."""
        definitions = [one.reactor.definition for one in self.added_reactors.values()]
        definitions += self.redefined_reactors.values()
        durable = [one for one in definitions if durability.policy_for(one).is_durable]
        return {key for one in durable if not one.is_partition for key in reactor_part_keys(self.change.tenant, one)}


class GraphStager:
    """Stages one package change. It reads what is loaded and changes none of it."""

    def __init__(
        self,
        change: GraphChange,
        managed: Mapping[Key, ManagedGraph],
        keyed: Mapping[Key, PartitionedReactor],
        registry: Registry,
        runtime: GraphRuntime,
    ) -> None:
        self._change = change
        self._tenant = change.tenant
        self._all_managed = managed
        self._all_keyed = keyed
        self._managed = {name: one for (tenant, name), one in managed.items() if tenant == change.tenant}
        self._registry = registry
        self._runtime = runtime
        self._stage_keyed()
        self._incoming = {one.name: one for one in self._expand_partitions()}
        self._continuing = {name: one for name, one in self._incoming.items() if self._can_continue(one)}
        self._removed = tuple(name for name in self._previous if name not in self._continuing)
        self._remaining = {
            name: one
            for name, one in self._managed.items()
            if name not in self._removed and one.reactor.definition.declared_name not in self._removed_keyed
        }
        self._running_accumulators = {
            one.name: one for managed in self._remaining.values() for one in managed.accumulators
        }
        self._definitions: dict[str, Accumulator] = {}
        self._created: dict[str, RunningAccumulator] = {}

    def _stage_keyed(self) -> None:
        """Stage the keyed reactors as such; their partitions that run here are staged like other reactors."""
        loaded = {name: one for (tenant, name), one in self._all_keyed.items() if tenant == self._tenant}
        replaced = {name: one for name, one in loaded.items() if name in self._change.previous.reactors}
        self._keyed = {
            one.name: loaded[one.name]
            if one.name in loaded and loaded[one.name].definition is one
            else PartitionedReactor(one, self._tenant, self._runtime.clock.now())
            for one in self._change.reactors
            if one.is_keyed
        }
        self._continuing_keyed = {
            name: one
            for name, one in self._keyed.items()
            if name in replaced and has_same_contract(replaced[name].definition, one.definition)
        }
        self._removed_keyed = tuple(name for name in replaced if name not in self._continuing_keyed)
        self._remaining_keyed = {name: one for name, one in loaded.items() if name not in self._removed_keyed}

    def _expand_partitions(self) -> list[Reactor]:
        """Return the reactors of the change, with the partitions that run here instead of continuing keyed ones."""
        self._previous = [
            name for name in self._change.previous.reactors if (self._tenant, name) not in self._all_keyed
        ]
        reactors = [one for one in self._change.reactors if not one.is_keyed]
        for keyed in self._continuing_keyed.values():
            for number in keyed.numbers:
                partition = keyed.partition(number)
                if partition.name in self._managed:
                    self._previous.append(partition.name)
                    reactors.append(partition)
        return reactors

    def _can_continue(self, reactor: Reactor) -> bool:
        """Return whether the older version becomes the new one; a closed accumulator is never opened again."""
        if reactor.name not in self._previous:
            return False
        is_closed = any(one.is_closing for one in self._managed[reactor.name].accumulators)
        return not is_closed and self._has_same_contract(reactor)

    def _has_same_contract(self, reactor: Reactor) -> bool:
        return has_same_contract(self._managed[reactor.name].reactor.definition, reactor)

    def build(self) -> StagedGraphs:
        """Stage everything, or raise and change nothing."""
        for reactor in self._change.reactors:
            reactor.check_key_fields()
            self._check_storable(reactor)
        self._check_not_shared()
        accumulators = {
            name: [self._resolve_accumulator(one, reactor) for one in reactor.accumulators]
            for name, reactor in self._incoming.items()
        }
        added = {
            name: self._build_managed(reactor, accumulators[name])
            for name, reactor in self._incoming.items()
            if name not in self._continuing
        }
        redefined = {
            name: one for name, one in self._continuing.items() if self._managed[name].reactor.definition is not one
        }
        redefined_keyed = {
            name: one for name, one in self._continuing_keyed.items() if self._remaining_keyed[name] is not one
        }
        subscribers = self._compile_subscribers(
            [*redefined.values(), *(keyed.definition for keyed in redefined_keyed.values())]
        )
        self._check_feeds(subscribers)
        return StagedGraphs(
            change=self._change,
            removed_reactors=self._removed,
            added_reactors=added,
            reset_reactors=tuple(
                name for name in added if name in self._removed and not self._has_same_contract(self._incoming[name])
            ),
            redefined_reactors=redefined,
            redefined_accumulators={
                name: one for name, one in self._created.items() if name in self._running_accumulators
            },
            subscribers=subscribers,
            removed_keyed=self._removed_keyed,
            added_keyed={name: one for name, one in self._keyed.items() if name not in self._continuing_keyed},
            redefined_keyed=redefined_keyed,
        )

    def _compile_subscribers(self, redefined: Iterable[Reactor]) -> dict[Key, dict[str, CompiledGraph]]:
        """Compile the graphs to bind: those of other packages to newer versions of reactors, and those of this one."""
        subscribers = {
            (self._tenant, one.name): self._recompile_subscribers(one) for one in redefined if not one.is_partition
        }
        for graph in self._change.graphs:
            key = reactor_key(graph, self._tenant)
            compiled = graph.compiled() if key is None else graph.compile_for(self._resolve_reactor(key, graph))
            if key is not None:
                name = subscriber_name(key, self._tenant, graph.name)
                subscribers.setdefault(key, {})[name] = compiled.with_name(name)
        return subscribers

    def _check_storable(self, reactor: Reactor) -> None:
        """Reject a durable reactor whose values cannot be stored."""
        if not self._runtime.durability.policy_for(reactor).is_durable:
            return
        problems = []
        for one in reactor.accumulators:
            try:
                AccumulatorCodecs.for_definition(one)
            except UnstorableError as error:
                remedy = "use a type that msgspec knows, or durability='none' on the reactor"
                problems.append(Problem(message=f"accumulator '{one.name}': {error}; {remedy}", location=one.location))
        if problems:
            raise DefinitionError(problems, f"reactor '{reactor.name}'")

    def _check_not_shared(self) -> None:
        """Reject a keyed reactor that shares an accumulator: what it holds is per key, of this reactor's keys."""
        incoming = {one.name for one in self._change.reactors}
        remaining = [one.reactor.definition for one in self._remaining.values() if not one.reactor.is_partition]
        remaining += [one.definition for one in self._remaining_keyed.values()]
        users: dict[str, list[Reactor]] = {}
        for reactor in (*self._change.reactors, *(one for one in remaining if one.name not in incoming)):
            for name in reactor.accumulator_names:
                users.setdefault(name, []).append(reactor)
        for name, sharing in users.items():
            keyed = next((one for one in sharing if one.is_keyed), None)
            user = next((one for one in sharing if one is not keyed), None)
            if keyed is not None and user is not None:
                message = (
                    f"accumulator '{name}' belongs to the keyed reactor '{keyed.name}' alone, and reactor "
                    f"'{user.name}' uses it too: declare one for each"
                )
                raise DefinitionError.single(f"reactor '{sharing[0].name}'", message, sharing[0].location)

    def _check_feeds(self, subscribers: Mapping[Key, Mapping[str, CompiledGraph]]) -> None:
        """Check the feeds of all graphs as they will be after the change."""
        removed = {(self._tenant, name) for name in (*self._removed, *self._removed_keyed)}
        loaded = current_feeds(self._all_managed, self._all_keyed)
        leaving = self._change.previous.graphs
        graphs: dict[Key, Mapping[str, CompiledGraph]] = {}
        for key in dict.fromkeys((*(key for key in loaded.graphs if key not in removed), *subscribers)):
            own = {subscriber_name(key, self._tenant, name) for name in leaving}
            bound = loaded.graphs.get(key, {}) if key not in removed else {}
            remaining = {name: one for name, one in bound.items() if name not in own}
            graphs[key] = {**remaining, **subscribers.get(key, {})}
        reactors = {key: one for key, one in loaded.reactors.items() if key not in removed}
        reactors |= {(self._tenant, one.name): one for one in self._change.reactors}
        names = {graph.name for graph in self._change.graphs}
        FeedLayout(reactors, graphs).check(self._tenant, lambda owner, name: owner == self._tenant and name in names)

    # -- accumulators

    def _resolve_accumulator(self, definition: Accumulator, reactor: Reactor) -> RunningAccumulator:
        """Return the accumulator that will run under a name: the running one, or one created here."""
        name = definition.name
        chosen = self._definitions.setdefault(name, definition)
        if chosen is not definition:
            raise name_taken_error("accumulator", name, chosen)
        running = self._running_accumulators.get(name)
        if (running is None or running.definition is not definition) and name not in self._created:
            create = create_keyed_accumulator if reactor.is_keyed else create_accumulator
            self._created[name] = create(definition, self._tenant, self._runtime)
        return running or self._created[name]

    def _build_managed(self, definition: Reactor, accumulators: list[RunningAccumulator]) -> ManagedGraph:
        return build_managed(definition, accumulators, self._tenant, self._runtime)

    # -- graphs

    def _resolve_reactor(self, key: Key, graph: Graph) -> Reactor:
        """Return the reactor that a graph is bound to: a new one, a remaining one, or another tenant's."""
        owner, name = key
        if owner != self._tenant:
            if not self._registry.is_shared(owner, name):
                raise not_shared_error(owner, name, self._tenant)
            return (
                self._all_keyed[key].definition if key in self._all_keyed else self._all_managed[key].reactor.definition
            )
        incoming = {one.name: one for one in self._change.reactors}
        if name in incoming:
            return incoming[name]
        if name in self._remaining_keyed:
            return self._remaining_keyed[name].definition
        if name not in self._remaining:
            hint = did_you_mean(name, [*self._remaining, *self._remaining_keyed, *incoming])
            package = self._change.package
            message = (
                f"reactor '{name}' not loaded{hint}: graph '{graph.name}' of package '{package}' ({graph.location}) is "
                f"bound to it; load the package or module that declares tm.Reactor('{name}', ...) too"
            )
            facts = {"reactor": name, "graph": graph.name, "package": package}
            raise RequestError(message, code="reactor_not_found", status=404, **facts)
        return self._remaining[name].reactor.definition

    def _recompile_subscribers(self, reactor: Reactor) -> dict[str, CompiledGraph]:
        """Compile the graphs of other packages against a reactor's newer version."""
        bound = (self._remaining_keyed if reactor.is_keyed else self._managed)[reactor.name].subscribers
        others = [name for name in bound if name not in self._change.previous.graphs]
        compiled: dict[str, CompiledGraph] = {}
        problems: list[DefinitionError] = []
        for name in others:
            try:
                compiled[name] = self._find_graph(name).compile_for(reactor).with_name(name)
            except DefinitionError as error:
                problems.append(error)
        if problems:
            raise reactor_in_use_error(
                reactor.name, [name for name in others if name not in compiled], fit_errors=problems
            )
        return compiled

    def _find_graph(self, name: str) -> Graph:
        tenant, _, local = name.rpartition("/")
        graph = self._registry.graphs.find(tenant or self._tenant, local)
        assert graph is not None, "a bound graph is registered"
        return graph


def build_managed(
    definition: Reactor, accumulators: Sequence[RunningAccumulator], tenant: str, runtime: GraphRuntime
) -> ManagedGraph:
    """Return a reactor with its accumulators, ready to be started."""
    reactor = create_reactor(definition, tenant, runtime)
    keys = [f"reactors/{definition.name}", *(f"accumulators/{one.name}" for one in accumulators)]
    return ManagedGraph(reactor, list(accumulators), [] if definition.is_partition else keys)


def build_partitions(
    keyed: PartitionedReactor, numbers: Iterable[int], runtime: GraphRuntime
) -> dict[str, ManagedGraph]:
    """Return partitions of a keyed reactor, ready to be started, by their names."""
    partitions = {}
    for definition in map(keyed.partition, numbers):
        accumulators = [create_keyed_accumulator(one, keyed.tenant, runtime) for one in definition.accumulators]
        partitions[definition.name] = build_managed(definition, accumulators, keyed.tenant, runtime)
    return partitions


def current_feeds(managed: Mapping[Key, ManagedGraph], keyed: Mapping[Key, PartitionedReactor]) -> FeedLayout:
    """Return the feeds between the loaded reactors; a keyed one counts as one, wherever its partitions run."""
    whole = {key: one for key, one in managed.items() if not one.reactor.definition.is_partition}
    reactors = {key: one.reactor.definition for key, one in whole.items()}
    reactors |= {key: one.definition for key, one in keyed.items()}
    graphs: dict[Key, Mapping[str, CompiledGraph]] = {key: one.subscribers for key, one in whole.items()}
    return FeedLayout(reactors, graphs | {key: one.subscribers for key, one in keyed.items()})


def reactor_key(graph: Graph, tenant: str) -> Key | None:
    """Return the key of the reactor that a graph is bound to, its own tenant's or "tenant/name"; None for none."""
    if graph.reactor_name is None:
        return None
    owner, _, name = graph.reactor_name.rpartition("/")
    return owner or tenant, name


def subscriber_name(reactor: Key, tenant: str, graph: str) -> str:
    """Return a graph's name among a reactor's subscribers: "tenant/name" if the reactor is another tenant's."""
    return graph if reactor[0] == tenant else f"{tenant}/{graph}"


def not_shared_error(owner: str, reactor: str, tenant: str) -> RequestError:
    """Return the error for a reactor of another tenant; it does not reveal whether there is one."""
    message = f"reactor '{reactor}' of tenant '{owner}' is not shared with tenant '{tenant}'"
    return RequestError(message, code="not_shared", status=403, reactor=f"{owner}/{reactor}")


def has_same_contract(before: Reactor, after: Reactor) -> bool:
    """Return whether a new version takes the same inputs in the same way."""
    return _describe_contract(before) == _describe_contract(after)


def contract_changes(before: Reactor, after: Reactor | None) -> list[str]:
    """Describe how a new version differs from the older one; None is a version without the reactor."""
    if after is None:
        return [f"has no reactor '{before.name}'"]
    return [
        f"has {new}, not {old}"
        for old, new in zip(_describe_contract(before), _describe_contract(after), strict=True)
        if new != old
    ]


def _describe_contract(reactor: Reactor) -> tuple[str, ...]:
    """Describe what subscribers rely on: the sources in order, their kinds, the criteria and the strategy."""
    named = ", ".join(one.name for one in reactor.when.accumulators)
    return (
        f"the accumulators {', '.join(f'{one.name} ({one.kind})' for one in reactor.accumulators)}",
        f"when={reactor.when.mode}_of({named})" if named else f"when='{reactor.when.mode}'",
        f"strategy='{reactor.strategy}'",
        f"{reactor.partitions} partitions of keys" if reactor.is_keyed else "no keys",
    )


def name_taken_error(kind: str, name: str, existing: Reactor | Accumulator) -> RequestError:
    """Return the error for a second definition of a name."""
    message = f"{kind} '{name}' is already defined at {existing.location}; another definition of that name is refused"
    return RequestError(message, code="name_taken", status=409, name=name)


def reactor_in_use_error(
    reactor: str, subscribers: Iterable[str], fit_errors: Sequence[DefinitionError] = (), changes: Sequence[str] = ()
) -> RequestError:
    """Return the error for a reactor that cannot be removed or changed because of the graphs bound to it."""
    names = sorted(subscribers)
    message = describe_subscribers(f"reactor '{reactor}'", names, fit_errors, changes)
    return RequestError(message, code="reactor_in_use", status=409, subscribers=names)


def describe_subscribers(
    subject: str, names: Sequence[str], fit_errors: Sequence[DefinitionError] = (), changes: Sequence[str] = ()
) -> str:
    """Describe why something cannot be removed or changed: its subscribers, what does not fit them, and the changes."""
    message = f"{subject} has {len(names)} bound subscriber(s): {list(names)}; unbind them first"
    differences = [*(f"does not fit {error}" for error in fit_errors), *changes]
    if not differences:
        return message
    advice = "\nunload the packages of the subscribers before this one is loaded, or leave that as it was"
    return "".join([message, *(f"\nthe new version {one}" for one in differences), advice])
