"""A model test: any sequence of desired versions, failures and interventions ends in the desired state."""

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.service.packages.fake_host import FakeVersion, Harness, key
from tidemill.kernel.errors import DefinitionError, OperationError, RequestError, StoreError

NAMES = ["a", "b", "c", "d", "e"]
ERRORS = [
    DefinitionError.single("package", "broken"),
    RequestError("refused", code="unmet_requirement", status=409),
    RequestError("refused", code="unknown_key", status=403),
    OperationError("no process"),
    StoreError("away"),
    OSError("disk full"),
    ZeroDivisionError("a bug"),
]
DAY = 86_400.0

names = st.sampled_from(NAMES)
errors = st.none() | st.sampled_from(ERRORS)


class Packages(RuleBasedStateMachine):
    """A reconciler in a world that changes under its hands.

    A package may bring a reactor with its own name, which others may need, and one that any may bring and only one can.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.saves = 0
        self.held: set[str] = set()

    @initialize(wanted=st.dictionaries(names, st.booleans(), max_size=3))
    def begin(self, wanted: dict[str, bool]) -> None:
        self.runner.run(self._begin(wanted))

    async def _begin(self, wanted: dict[str, bool]) -> None:
        self.harness = Harness()
        for name, provides in wanted.items():
            self.harness.source.want(name, self._version(provides=frozenset([name] if provides else [])))
        await self.harness.start()

    def _version(self, **what: object) -> FakeVersion:
        self.saves += 1
        return FakeVersion(version=f"{self.saves}.0.0", digest=str(self.saves), **what)

    # -- the source

    @rule(
        name=names,
        is_public=st.booleans(),
        is_greedy=st.booleans(),
        needs=st.frozensets(names, max_size=2),
        place=st.sampled_from(["read_error", "prepare_error", "install_error"]),
        error=errors,
    )
    def save(
        self, name: str, is_public: bool, is_greedy: bool, needs: frozenset[str], place: str, error: Exception | None
    ) -> None:
        provides = frozenset([name] * is_public + ["shared"] * is_greedy)
        version = self._version(provides=provides, needs=needs - {name}, **({place: error} if error else {}))
        self.harness.source.want(name, version)

    @rule(name=names)
    def save_what_hangs(self, name: str) -> None:
        self.harness.source.want(name, self._version(hangs=True))

    @rule(name=names)
    def withdraw(self, name: str) -> None:
        self.harness.source.want(name, None)

    @rule(error=errors)
    def lose_or_regain_the_source(self, error: Exception | None) -> None:
        self.harness.source.error = error
        self.harness.source.notify()

    # -- the host

    @rule(times=st.integers(0, 5))
    def fail_the_store(self, times: int) -> None:
        self.harness.host.store_failures = times

    @rule()
    def let_go_what_hangs(self) -> None:
        self.harness.host.released.set()

    @rule()
    def let_it_hang_again(self) -> None:
        self.harness.host.released.clear()

    @rule(name=names)
    def load_by_code(self, name: str) -> None:
        if not self._is_touched(name):
            self.harness.host.load_directly(name)
            self.held.add(name)
            self.harness.reconciler.on_packages_changed()

    @rule(name=names)
    def unload_by_code(self, name: str) -> None:
        """Unload what code has loaded, or what it has not."""
        if not self._is_touched(name) and not self._users(name):
            self.harness.host.unload_directly(name)
            self.held.discard(name)
            self.harness.reconciler.on_packages_changed()

    def _is_touched(self, name: str) -> bool:
        """Whether code would have to wait for its turn, or would break a guard."""
        return key(name) in self.harness.host.in_work or bool(self._users(name))

    def _users(self, name: str) -> list[str]:
        return [one.name for one, held in self.harness.host.loaded.items() if name in held.version.needs]

    # -- observers

    @rule()
    def ring(self) -> None:
        self.harness.source.notify()

    @rule(turns=st.integers(1, 12))
    def give_turns(self, turns: int) -> None:
        async def give() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.runner.run(give())

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 10.0, 300.0]))
    def wait(self, seconds: float) -> None:
        self.runner.run(self.harness.advance(seconds))

    # -- what always holds

    @invariant()
    def no_key_is_worked_on_twice_at_once(self) -> None:
        assert not self.harness.host.violations

    @invariant()
    def nothing_prepared_is_leaked(self) -> None:
        """At most one per key beside what is loaded: it waits, or is just being installed."""
        assert len(self.harness.host.prepared) <= len(self.harness.host.loaded) + len(NAMES)

    @invariant()
    def what_code_holds_is_left_alone(self) -> None:
        for name in self.held:
            assert self.harness.host.loaded[key(name)].version.digest == ""

    @invariant()
    def everything_loaded_has_what_it_needs(self) -> None:
        for held in self.harness.host.loaded.values():
            assert not self.harness.host.missing_dependencies(key(held.name), held.version)

    # -- what holds now and then

    @precondition(lambda self: self.harness.source.error is None)
    @rule(name=names)
    def a_good_save_is_loaded_whatever_hangs(self, name: str) -> None:
        """P-12: unless all places are taken by what hangs, or it is that package itself that hangs."""
        self.runner.run(self._save_well(name))

    async def _save_well(self, name: str) -> None:
        host = self.harness.host
        host.store_failures = 0
        await self.harness.settle()
        if host.preparing >= 3 or key(name) in host.in_work or name in self.held:
            return
        version = self._version(provides=frozenset([name]) | self._kept(name))
        await self.harness.want(name, version)
        assert host.versions()[name] == version.digest

    def _kept(self, name: str) -> frozenset[str]:
        held = self.harness.host.loaded.get(key(name))
        return frozenset() if held is None else held.version.provides

    # -- what holds in the end

    def teardown(self) -> None:
        if hasattr(self, "harness"):
            self.runner.run(self._make_good())
        self.runner.close()

    async def _make_good(self) -> None:
        """P-12: when everything is repaired and time passes, what is loaded is what is wanted, and nothing else is."""
        source, host = self.harness.source, self.harness.host
        source.error = None
        host.store_failures = 0
        host.released.set()
        for name in self.held:
            host.unload_directly(name)
        self.harness.reconciler.on_packages_changed()
        before: list[str] = []
        for name in [one.name for one in sorted(source.versions)]:
            source.want(name, self._version(provides=frozenset([name]), needs=frozenset(before)))
            before.append(name)
        source.notify()
        await self.harness.advance(DAY)
        assert host.versions() == {one.name: version.digest for one, version in sorted(source.versions.items())}
        assert host.prepared == set(host.loaded.values())
        assert {one.state for one in self.harness.reconciler.status()} <= {"loaded"}
        assert self.harness.reconciler.is_idle
        await self.harness.stop()
        assert host.prepared == set(host.loaded.values())


TestPackages = Packages.TestCase
TestPackages.settings = settings(stateful_step_count=40)
