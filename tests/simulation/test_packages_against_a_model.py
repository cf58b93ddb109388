"""Packages that need one another, through any story of loads, swaps, unloads, faults and pushes: as a model says.

The model is what a reader of the contracts expects: who is loaded in which edition, and so who is bound to whom, what
is refused, and which edition answers. After each step everything that can be seen of the node is compared with it.
"""

import asyncio
from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import tidemill as tm
from tests.simulation.editions import Edition, Guest, Publisher, Subscriber, made
from tidemill.kernel.errors import StoreError

TENANTS = {"publisher": "public", "subscriber": "public", "guest": "beta"}
SCHEDULES = ("early", "late")
LONG = "10m"
"""Enough for everything that is owed to be paid once the store is back."""

publishers = st.builds(
    Publisher,
    sources=st.sampled_from([("book",), ("book",), ("book", "limits")]),
    reactor=st.sampled_from([True, True, True, False]),
    book=st.sampled_from([int, int, int, str]),
    shared=st.sampled_from([True, True, False]),
    graph=st.sampled_from(["maker", "maker", "taker", ""]),
    scoring=st.sampled_from(["scoring", "scoring", "scoring", "rating", "bound", ""]),
    takes=st.sampled_from(["count", "count", "amount"]),
    trigger=st.sampled_from(["ticker", "ticker", "clock", ""]),
    schedule=st.sampled_from(SCHEDULES),
    breakage=st.sampled_from(["", "", "", "", "graph", "workflow", "trigger"]),
)
subscribers = st.builds(
    Subscriber,
    binds=st.booleans(),
    calls=st.booleans(),
    polls=st.booleans(),
    graph=st.sampled_from(["reader", "viewer"]),
    breakage=st.sampled_from(["", "", "", "graph", "workflow", "trigger"]),
)
guests = st.builds(
    Guest,
    graph=st.sampled_from(["watcher", "reader"]),
    sources=st.sampled_from([("book",), ("book",), ("book", "limits")]),
    breakage=st.sampled_from(["", "", "graph"]),
)
editions = st.one_of(st.just(Publisher()), publishers, subscribers, guests)
names = st.sampled_from(sorted(TENANTS))


class Keepsake:
    """What was imported for an edition."""

    def __init__(self, mark: int) -> None:
        self.mark = mark
        self.is_kept = True

    def discard(self) -> None:
        self.is_kept = False


class Model:
    """Who is loaded, in which edition, and by which mark it is known."""

    def __init__(self) -> None:
        self.loaded: dict[str, tuple[Edition, int]] = {}

    @property
    def publisher(self) -> Publisher | None:
        edition, _ = self.loaded.get("publisher", (None, 0))
        return edition if isinstance(edition, Publisher) else None

    @property
    def subscriber(self) -> Subscriber | None:
        edition, _ = self.loaded.get("subscriber", (None, 0))
        return edition if isinstance(edition, Subscriber) else None

    @property
    def guest(self) -> Guest | None:
        edition, _ = self.loaded.get("guest", (None, 0))
        return edition if isinstance(edition, Guest) else None

    @property
    def foreign(self) -> dict[str, str]:
        """The graphs of other packages that are bound to the reactor, with the package of each."""
        found = {}
        if self.subscriber is not None and self.subscriber.binds:
            found[self.subscriber.graph] = "subscriber"
        if self.guest is not None:
            found[f"beta/{self.guest.graph}"] = "guest"
        return found

    @property
    def bound(self) -> dict[str, str]:
        """The graphs that are bound to the reactor, with the package of each."""
        publisher = self.publisher
        if publisher is None or not publisher.reactor:
            return {}
        own = [publisher.graph] if publisher.graph else []
        own += ["scoring"] if publisher.scoring == "bound" else []
        return dict.fromkeys(own, "publisher") | self.foreign

    # -- what is refused, and why

    def refusal(self, edition: Edition) -> set[str]:
        """Return the reasons for which an edition cannot be loaded now; any of them may be given."""
        if isinstance(edition, Publisher):
            found = self._refused_publisher(edition)
        elif isinstance(edition, Subscriber):
            found = self._refused_subscriber(edition)
        else:
            found = self._refused_guest(edition)
        return found | ({"definition"} if edition.breakage else set())

    def _refused_publisher(self, edition: Publisher) -> set[str]:
        before, subscriber, found = self.publisher, self.subscriber, set()
        if before is None:
            return found
        if subscriber is not None and subscriber.polls and edition.trigger != "ticker":
            found.add("trigger_in_use")
        if subscriber is not None and subscriber.calls and not _can_be_called(edition):
            found.add("graph_in_use")
        if before.reactor and self.foreign and not _goes_on(before, edition):
            found.add("reactor_in_use")
        if self.guest is not None and not edition.shared:
            found.add("reactor_in_use")
        return found

    def _refused_subscriber(self, edition: Subscriber) -> set[str]:
        publisher, found = self.publisher, set()
        if edition.binds and (publisher is None or not publisher.reactor):
            found.add("reactor_not_loaded")
        elif edition.binds and publisher is not None and publisher.book is not int:
            found.add("definition")
        if edition.polls and (publisher is None or publisher.trigger != "ticker"):
            found.add("definition")
        if edition.calls and (publisher is None or not _can_be_called(publisher)):
            found.add("definition")
        return found

    def _refused_guest(self, edition: Guest) -> set[str]:
        publisher = self.publisher
        if publisher is None or not publisher.reactor or not publisher.shared:
            return {"not_shared"}
        fits = publisher.book is int and set(edition.sources) <= set(publisher.sources)
        return set() if fits else {"definition"}

    def guard(self, name: str) -> set[str]:
        """Return the reasons for which a package cannot be unloaded now."""
        if name not in self.loaded:
            return {"unknown_package"}
        subscriber, found = self.subscriber, set()
        if name == "publisher" and self.foreign:
            found.add("reactor_in_use")
        if name == "publisher" and subscriber is not None and subscriber.polls:
            found.add("trigger_in_use")
        if name == "publisher" and subscriber is not None and subscriber.calls:
            found.add("graph_in_use")
        return found

    # -- what is to be seen

    def names(self, tenant: str) -> dict[str, list[str]]:
        """Return what the registry says of a tenant."""
        publisher, subscriber, guest = self.publisher, self.subscriber, self.guest
        found: dict[str, list[str]] = {what: [] for what in ("reactors", "graphs", "workflows", "triggers")}
        found["accumulators"] = []
        if tenant == "beta":
            found["graphs"] = [] if guest is None else [guest.graph]
        if tenant == "public" and publisher is not None:
            is_bound = publisher.scoring == "bound"
            found["reactors"] = ["market"] if publisher.reactor else []
            found["accumulators"] = [*publisher.sources] if publisher.reactor else []
            found["graphs"] += [publisher.graph] if publisher.graph and publisher.reactor else []
            found["graphs"] += ["scoring" if is_bound else publisher.scoring] if publisher.scoring else []
            found["triggers"] = [publisher.trigger] if publisher.trigger else []
            found["workflows"] += ["nightly"]
        if tenant == "public" and subscriber is not None:
            found["graphs"] += [subscriber.graph] if subscriber.binds else []
            found["workflows"] += ["report"]
        found["endpoints"] = [f"reactors/{one}" for one in found["reactors"]]
        found["endpoints"] += [f"accumulators/{one}" for one in found["accumulators"]]
        found["packages"] = [name for name in self.loaded if TENANTS[name] == tenant]
        return {what: sorted(names) for what, names in found.items()}

    def results(self, event: Any) -> dict[str, list[Any]]:
        """Return what the graphs return for an event of the book, each by the edition that it is of."""
        found = {}
        for graph, package in self.bound.items():
            edition, mark = self.loaded[package]
            more = [None] if isinstance(edition, Guest) and "limits" in edition.sources else []
            found[graph] = [mark, event, *more]
        return found


def _can_be_called(publisher: Publisher) -> bool:
    is_callable = publisher.scoring == "scoring" or (publisher.scoring == "bound" and not publisher.reactor)
    return is_callable and publisher.takes == "count"


def _goes_on(before: Publisher, after: Publisher) -> bool:
    """Whether graphs of others, which take an int from the book, can go on."""
    return after.reactor and before.sources == after.sources and after.book is int


class Packages(RuleBasedStateMachine):
    """One node, three packages."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = Model()
        self.marks = 0
        self.pushes = 0
        self.polled: list[int] = []
        self.keepsakes: list[Keepsake] = []
        self.cached: Any = None
        """What the reactor's cache holds of the book; ... if that cannot be told."""
        self.tasks: dict[tuple[Any, ...], Counter[str]] = {}

    @initialize(store=st.sampled_from([None, "memory://"]))
    def begin(self, store: str | None) -> None:
        self.store = store
        self.runner.run(self._begin(store))

    async def _begin(self, store: str | None) -> None:
        self.node = tm.testing.node(store)
        await self.node.__aenter__()

    # -- loading and unloading

    @rule(edition=editions)
    def load(self, edition: Edition) -> None:
        """P-4, P-5, G-14, G-28, G-30: it is loaded, or refused for a reason, and then nothing has changed."""
        self.runner.run(self._load(edition))

    async def _load(self, edition: Edition) -> None:
        expected = self.model.refusal(edition)
        refused = await self._try_to_load(edition)
        assert refused in expected if expected else refused is None, (refused, expected)
        if refused is None:
            self._note_load(edition)

    async def _try_to_load(self, edition: Edition) -> str | None:
        """Return why an edition was refused; None if it is loaded."""
        self.marks += 1
        name = type(edition).__name__.lower()
        keepsake = Keepsake(self.marks)
        self.keepsakes.append(keepsake)
        try:
            await self.node._packages.install(made(edition, self.marks, self.polled.append), TENANTS[name], keepsake)
        except tm.DefinitionError:
            return "definition"
        except tm.RequestError as error:
            return error.code
        return None

    def _note_load(self, edition: Edition) -> None:
        name, before = type(edition).__name__.lower(), self.model.publisher
        self.model.loaded[name] = edition, self.marks
        if isinstance(edition, Publisher):
            self._note_cache(before, edition)

    def _note_cache(self, before: Publisher | None, after: Publisher | None) -> None:
        """Take note of what becomes of the cache: same contract, same values; else what a store has of it."""
        was, is_ = before is not None and before.reactor, after is not None and after.reactor
        if was and is_ and before.sources == after.sources and before.book is after.book:
            return
        if was and is_ and before.book is not after.book:
            self.cached = ...
        elif self.store is not None:
            self.cached = ...
        else:
            self.cached = None

    @rule(name=names)
    def unload(self, name: str) -> None:
        """P-4, G-28: it is unloaded, or refused, and then nothing has changed."""
        self.runner.run(self._unload(name))

    async def _unload(self, name: str) -> None:
        expected = self.model.guard(name)
        try:
            await self.node.unload(name, tenant=TENANTS[name])
        except tm.RequestError as error:
            assert error.code in expected, (error, expected)
        else:
            assert not expected
            self._note_unload(name)

    def _note_unload(self, name: str) -> None:
        edition, _ = self.model.loaded.pop(name)
        if isinstance(edition, Publisher):
            self._note_cache(edition, None)

    # -- while the store fails

    @rule(edition=editions, failures=st.integers(1, 6), retried=st.booleans())
    def load_while_the_store_fails(self, edition: Edition, failures: int, retried: bool) -> None:
        """P-2: a load that fails is undone, at once or when the store is back."""
        self.runner.run(self._load_badly(edition, failures, retried))

    async def _load_badly(self, edition: Edition, failures: int, retried: bool) -> None:
        expected = self.model.refusal(edition)
        for _ in range(1 + retried):
            self.node.fail_store(failures)
            try:
                refused = await self._try_to_load(edition)
            except (StoreError, tm.OperationError):
                self.cached = ...
                continue
            assert refused in expected if expected else refused is None, (refused, expected)
            if refused is None:
                self._note_load(edition)
        await self._heal()

    @rule(name=names, failures=st.integers(1, 6), retried=st.booleans())
    def unload_while_the_store_fails(self, name: str, failures: int, retried: bool) -> None:
        """P-2: an unload that fails is gone on with when the store is back, or was never begun."""
        self.runner.run(self._unload_badly(name, failures, retried))

    async def _unload_badly(self, name: str, failures: int, retried: bool) -> None:
        is_begun = False
        for _ in range(1 + retried):
            self.node.fail_store(failures)
            expected = {"unknown_package"} if is_begun and name not in self.model.loaded else self.model.guard(name)
            try:
                await self.node.unload(name, tenant=TENANTS[name])
            except tm.RequestError as error:
                assert error.code in expected, (error, expected)
            except StoreError:
                pass
            except tm.OperationError:
                is_begun = True
            else:
                is_begun = True
                break
        await self._heal()
        if is_begun and name in self.model.loaded:
            self.cached = ... if name == "publisher" else self.cached
            self._note_unload(name)

    async def _heal(self) -> None:
        self.node.fail_store(0)
        await self.node.advance(LONG)

    # -- in between

    @rule()
    def push(self) -> None:
        """G-14: all graphs run on each firing, each of the edition that is loaded."""
        self.runner.run(self._push())

    async def _push(self) -> None:
        publisher = self.model.publisher
        if publisher is None or not publisher.reactor:
            return
        self.pushes += 1
        event = self.pushes if publisher.book is int else f"n{self.pushes}"
        reactor = self.node.reactor("market")
        receipt = await self.node.push("book", event)
        assert receipt.accepted
        await self.node.settle()
        [firing] = reactor.firings(limit=1)
        if self.model.bound:
            outputs = {name: result.outputs["out"] for name, result in firing.results.items()}
            limits = self.node.reactor("market").state().cache.get("limits")
            assert limits is None
            assert outputs == self.model.results(event)
        self.cached = event

    @rule()
    def run(self) -> None:
        """A run is of the editions that are loaded: of its own package, and of the graph that it calls."""
        self.runner.run(self._run())

    async def _run(self) -> None:
        expected: dict[str, dict[str, Any]] = {}
        if "publisher" in self.model.loaded:
            expected["nightly"] = {"marked": self.model.loaded["publisher"][1]}
        if (subscriber := self.model.subscriber) is not None:
            expected["report"] = {"marked": self.model.loaded["subscriber"][1]}
            if subscriber.calls:
                expected["report"] |= {"count": 7, "scored": {"score": [self.model.loaded["publisher"][1], 7]}}
        for workflow, outputs in expected.items():
            run = await self.node.start(workflow)
            await self.node.settle()
            assert (await run.state()).outputs == outputs

    @rule()
    def poll(self) -> None:
        """A trigger is asked if a loaded workflow names it, in the edition that is loaded."""
        self.runner.run(self._poll())

    async def _poll(self) -> None:
        await self.node.advance("0s")
        self.polled.clear()
        await self.node.advance("11s")
        subscriber = self.model.subscriber
        is_polled = subscriber is not None and subscriber.polls
        assert set(self.polled) == ({self.model.loaded["publisher"][1]} if is_polled else set())

    # -- what always holds

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        """G-27, P-3: registry, scheduler, endpoints, rows, tasks, modules."""
        if hasattr(self, "node"):
            self.runner.run(self._compare())

    async def _compare(self) -> None:
        await self.node.settle()
        registry, scheduler = self.node.registry, self.node._scheduler
        for tenant in ("public", "beta"):
            expected = self.model.names(tenant)
            assert {what: getattr(registry, what)(tenant) for what in expected} == expected
        reactors, accumulators = scheduler.names()
        assert sorted(name for _, name in reactors) == registry.reactors("public")
        assert sorted(name for _, name in accumulators) == registry.accumulators("public")
        assert scheduler.subscribers("public", "market") == sorted(self.model.bound)
        publisher = self.model.publisher
        assert registry.is_shared("public", "market") == bool(publisher and publisher.reactor and publisher.shared)
        if reactors:
            state = self.node.reactor("market").state()
            assert state.subscribers == sorted(self.model.bound)
            if self.cached is not ...:
                assert state.cache.get("book") == self.cached
        await self._compare_rows()
        self._compare_what_is_kept()
        self._compare_tasks()

    async def _compare_rows(self) -> None:
        store, publisher = self.node._run_store, self.model.publisher
        for key in SCHEDULES:
            cursor = await store.schedules.cursor("public", "nightly", key)
            is_there = publisher is not None and publisher.schedule == key
            assert (cursor is not None and cursor.armed) if is_there else cursor is None
        pages = {(one.name, one.phase, one.digest) for one in await store.package_states.all()}
        assert pages == {(name, "loaded", str(mark)) for name, (_, mark) in self.model.loaded.items()}

    def _compare_what_is_kept(self) -> None:
        """P-6: nothing runs, so only what is loaded is kept."""
        kept = {one.mark for one in self.keepsakes if one.is_kept}
        assert kept == {mark for _, mark in self.model.loaded.values()}

    def _compare_tasks(self) -> None:
        """Whatever happened before, what runs follows from what is loaded."""
        publisher, subscriber = self.model.publisher, self.model.subscriber
        shape = (
            None if publisher is None or not publisher.reactor else publisher.sources,
            publisher is not None,
            subscriber is not None and subscriber.polls,
        )
        names = [task.get_name() for task in self.node._environment.tasks._running]
        running = Counter(name for name in names if not name.startswith("checkpoints: "))  # these come and go
        assert self.tasks.setdefault(shape, running) == running
        assert len(self.node._metrics._collectors) == 2 + (1 + len(publisher.sources) if shape[0] else 0)

    # -- the end

    def teardown(self) -> None:
        try:
            if hasattr(self, "node"):
                self.runner.run(self._end())
        finally:
            self.runner.close()

    async def _end(self) -> None:
        try:
            for name in ("guest", "subscriber", "publisher"):
                if name in self.model.loaded:
                    await self._unload(name)
            await self._compare()
        finally:
            await self.node.__aexit__(None, None, None)
        assert not any(one.is_kept for one in self.keepsakes)


TestPackages = Packages.TestCase
TestPackages.settings = settings(stateful_step_count=25)
