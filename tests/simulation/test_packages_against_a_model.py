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
from tests.simulation.package_model import TENANTS, Model, goes_on
from tidemill.kernel.errors import StoreError
from tidemill.testing.faults.deploy_steps import DeployFaults, Moment

SCHEDULES = ("early", "late")
LONG = "65s"
"""Enough for everything that is owed to be paid once the store is back."""

CHANGES: dict[type, dict[str, list[Any]]] = {
    Publisher: {
        "sources": [("book", "limits")],
        "reactor": [False],
        "book": [str],
        "shared": [False],
        "graph": ["taker", ""],
        "scoring": ["rating", "bound", ""],
        "takes": ["amount"],
        "trigger": ["clock", ""],
        "schedule": ["late"],
        "breakage": ["graph", "workflow", "trigger"],
    },
    Subscriber: {
        "binds": [False],
        "calls": [False],
        "polls": [False],
        "graph": ["viewer", "maker"],
        "breakage": ["graph", "workflow", "trigger"],
    },
    Guest: {"graph": ["reader", "maker"], "sources": [("book", "limits")], "breakage": ["graph"]},
}


def edition(kind: type) -> st.SearchStrategy[Any]:
    """Return editions of a package that differ from the first in little."""
    field = st.sampled_from(sorted(CHANGES[kind]))
    change = field.flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(CHANGES[kind][name])))
    few = st.lists(change, max_size=1) | st.lists(change, max_size=3)
    return few.map(lambda changes: kind(**dict(changes)))


publishers, subscribers, guests = edition(Publisher), edition(Subscriber), edition(Guest)
editions = st.one_of(publishers, subscribers, guests)
names = st.sampled_from(sorted(TENANTS))


class FakeReference:
    """What was imported for an edition."""

    def __init__(self, mark: int) -> None:
        self.mark = mark
        self.is_kept = True

    def release(self) -> None:
        self.is_kept = False


class Packages(RuleBasedStateMachine):
    """One node, three packages."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = Model()
        self.marks = 0
        self.pushes = 0
        self.polled: list[int] = []
        self.keepsakes: list[FakeReference] = []
        self.cached: Any = None
        """What the reactor's cache holds of the book; ... if that cannot be told."""
        self.tasks: dict[tuple[Any, ...], Counter[str]] = {}

    @initialize(store=st.sampled_from([None, "memory://"]), loaded=st.sampled_from([3, 2, 1, 0]))
    def begin(self, store: str | None, loaded: int) -> None:
        self.store = store
        self.runner.run(self._begin(store, loaded))

    async def _begin(self, store: str | None, loaded: int) -> None:
        self.node = tm.testing.node(store)
        await self.node.__aenter__()
        self.faults = DeployFaults(self.node)
        for kind in (Publisher, Subscriber, Guest)[:loaded]:
            await self._load(kind())

    # -- loading and unloading

    @rule(edition=publishers)
    def load_publisher(self, edition: Publisher) -> None:
        """P-4, P-6, G-28, G-30: it is loaded or swapped, or refused for a reason, and then nothing has changed."""
        self.runner.run(self._load(edition))

    @rule(edition=subscribers)
    def load_subscriber(self, edition: Subscriber) -> None:
        """P-5, G-14: a package that needs what another brings, in the same tenant."""
        self.runner.run(self._load(edition))

    @rule(edition=guests)
    def load_guest(self, edition: Guest) -> None:
        """G-30: a package that needs what another tenant shares."""
        self.runner.run(self._load(edition))

    @rule(together=st.lists(editions, min_size=2, max_size=3))
    def load_together(self, together: list[Edition]) -> None:
        """P-5: several at once are loaded one after the other."""
        self.runner.run(self._load_together(together))

    async def _load_together(self, together: list[Edition]) -> None:
        first = self.marks + 1
        self.marks += len(together)
        loads = [self._try_to_load(edition, first + place) for place, edition in enumerate(together)]
        for place, refused in enumerate(await asyncio.gather(*loads)):
            self._judge(together[place], first + place, refused)

    async def _load(self, edition: Edition) -> None:
        self.marks += 1
        mark = self.marks
        self._judge(edition, mark, await self._try_to_load(edition, mark))

    def _judge(self, edition: Edition, mark: int, refused: str | None) -> None:
        expected = self.model.refusal(edition)
        assert refused in expected if expected else refused is None, (refused, expected)
        if refused is None:
            self._note_load(edition, mark)

    async def _try_to_load(self, edition: Edition, mark: int) -> str | None:
        """Return why an edition was refused; None if it is loaded."""
        name = type(edition).__name__.lower()
        keepsake = FakeReference(mark)
        self.keepsakes.append(keepsake)
        try:
            await self.node.probe.packages.install(made(edition, mark, self.polled.append), TENANTS[name], keepsake)
        except tm.DefinitionError:
            return "definition"
        except tm.RequestError as error:
            return error.code
        return None

    def _note_load(self, edition: Edition, mark: int) -> None:
        name, before = type(edition).__name__.lower(), self.model.publisher
        self.model.loaded[name] = edition, mark
        if isinstance(edition, Publisher):
            self._note_cache(before, edition)

    def _note_cache(self, before: Publisher | None, after: Publisher | None) -> None:
        """Record what becomes of the cache: same contract, same values; else what a store has of it."""
        was, is_ = before is not None and before.reactor, after is not None and after.reactor
        if was and is_ and before.sources == after.sources and before.book is after.book:
            return
        if (was and is_ and before.book is not after.book) or self.store is not None:
            self.cached = ...
        else:
            self.cached = None

    @rule(name=names)
    def unload(self, name: str) -> None:
        """P-4, G-28: it is unloaded, or refused, and then nothing has changed."""
        self.runner.run(self._unload(name))

    async def _unload(self, name: str) -> None:
        expected = self.model.guard(name)
        refused = await self._try_to_unload(name)
        assert refused in expected if expected else refused is None, (refused, expected)
        if refused is None:
            self._note_unload(name)

    async def _try_to_unload(self, name: str) -> str | None:
        """Return why a package could not be unloaded; None if it is."""
        try:
            await self.node.unload(name, tenant=TENANTS[name])
        except tm.RequestError as error:
            return error.code
        return None

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
        for _ in range(1 + retried):
            self.marks += 1
            self.node.fail_store(failures)
            try:
                refused = await self._try_to_load(edition, self.marks)
            except (StoreError, tm.OperationError):
                self.cached = ...
            else:
                self._judge(edition, self.marks, refused)
        await self._heal()

    @rule(name=names, failures=st.integers(1, 6), retried=st.booleans())
    def unload_while_the_store_fails(self, name: str, failures: int, retried: bool) -> None:
        """P-2: an unload that fails is gone on with when the store is back, or was never begun."""
        self.runner.run(self._unload_badly(name, failures, retried))

    async def _unload_badly(self, name: str, failures: int, retried: bool) -> None:
        is_begun = False
        for _ in range(1 + retried):
            self.node.fail_store(failures)
            expected = self.model.guard(name)
            try:
                refused = await self._try_to_unload(name)
            except StoreError:
                continue
            except tm.OperationError:
                is_begun = True
                continue
            if is_begun or refused is None:
                is_begun = True
                break
            assert refused in expected, (refused, expected)
        await self._heal()
        if is_begun and name in self.model.loaded:
            self.cached = ... if name == "publisher" else self.cached
            self._note_unload(name)

    # -- while a step fails

    @rule(
        edition=publishers | editions, step=st.integers(0, 5), is_done=st.booleans(), undo=st.none() | st.integers(0, 5)
    )
    def load_while_a_step_fails(self, edition: Edition, step: int, is_done: bool, undo: int | None) -> None:
        """P-2: whichever step fails, before or after its work, and perhaps one on the way back, too."""
        self.runner.run(self._load_with_a_failing_step(edition, step, is_done, undo))

    async def _load_with_a_failing_step(self, edition: Edition, step: int, is_done: bool, undo: int | None) -> None:
        moment: Moment = "after" if is_done else "before"
        self.faults.fail("apply", step + 1, moment)
        if undo is not None:
            self.faults.fail("roll_back", undo + 1, moment)
        self.marks += 1
        try:
            refused = await self._try_to_load(edition, self.marks)
        except StoreError:
            assert not self.model.refusal(edition)
            if isinstance(edition, Publisher) and self.model.publisher is not None:
                is_same = goes_on(self.model.publisher, edition) and self.model.publisher.book is int
                self.cached = self.cached if is_same else ...
        else:
            assert refused is not None
            self._judge(edition, self.marks, refused)
        self.faults.clear()
        await self._heal()

    @rule(name=names, step=st.integers(0, 5), is_done=st.booleans())
    def unload_while_a_step_fails(self, name: str, step: int, is_done: bool) -> None:
        """P-2: what is left to do is done later."""
        self.runner.run(self._unload_with_a_failing_step(name, step, is_done))

    async def _unload_with_a_failing_step(self, name: str, step: int, is_done: bool) -> None:
        self.faults.fail("remove", step + 1, "after" if is_done else "before")
        expected = self.model.guard(name)
        try:
            refused = await self._try_to_unload(name)
        except tm.OperationError:
            assert not expected
            self._note_unload(name)
        else:
            assert refused in expected, (refused, expected)
        self.faults.clear()
        await self._heal()

    async def _heal(self) -> None:
        self.node.fail_store(0)
        await self.node.advance(LONG)

    # -- in between

    async def _push(self) -> None:
        """G-14: all graphs run on each firing, each of the edition that is loaded."""
        publisher = self.model.publisher
        assert publisher is not None
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

    async def _run(self) -> None:
        """A run is of the editions that are loaded: of its own package, and of the graph that it calls."""
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
        registry, packages = self.node.registry, self.node.probe.packages
        for tenant in ("public", "beta"):
            expected = self.model.names(tenant)
            assert {what: getattr(registry, what)(tenant) for what in expected} == expected
        reactors, accumulators = packages.running_keys()
        assert sorted(name for _, name in reactors) == registry.reactors("public")
        assert sorted(name for _, name in accumulators) == registry.accumulators("public")
        assert packages.subscribers("market") == sorted(self.model.bound)
        publisher = self.model.publisher
        assert registry.is_shared("public", "market") == bool(publisher and publisher.reactor and publisher.shared)
        if reactors:
            state = self.node.reactor("market").state()
            assert state.subscribers == sorted(self.model.bound)
            if self.cached is not ...:
                assert state.cache.get("book") == self.cached
            await self._push()
        await self._run()
        await self._compare_rows()
        self._compare_what_is_kept()
        self._compare_tasks()

    async def _compare_rows(self) -> None:
        store, publisher = self.node.probe.packages.store, self.model.publisher
        for key in SCHEDULES:
            cursor = await store.schedules.get_cursor("public", "nightly", key)
            is_there = publisher is not None and publisher.schedule == key
            assert (cursor is not None and cursor.armed) if is_there else cursor is None
        pages = {(one.name, one.phase, one.digest) for one in await store.package_states.list_all()}
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
        running = Counter(
            name for name in self.node.probe.graphs.task_names() if not name.startswith("checkpoints: ")
        )  # these come and go
        assert self.tasks.setdefault(shape, running) == running
        own = 2 if self.store is None else 3  # with a store, the forwarding has one
        assert self.node.probe.graphs.collector_count() == own + (1 + len(publisher.sources) if shape[0] else 0)

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
TestPackages.settings = settings(max_examples=max(1, settings().max_examples // 4), stateful_step_count=20)
