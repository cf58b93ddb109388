"""The ledger: what each node has loaded of a package, in the store, so that a load that was cut off can be unwound.

What runs in a process ends with it. What outlives it are the rows of schedules, so these are what unwinding is about: a
load that was cut off leaves rows that were never armed, an unload that was cut off leaves rows that nobody has loaded.
Definitions that a program loads itself, and that leave no row, are not written down: they need no store to come and go.
"""

from collections.abc import Iterable

import msgspec

from tidemill.engine.registry import PackageState
from tidemill.engine.workflows.owners import Liveness
from tidemill.kernel.clock import Clock
from tidemill.packages.exchange import Exchange
from tidemill.storage.package_ports import LoadedPackage, Phase
from tidemill.storage.ports import Store
from tidemill.storage.run_ports import Owner, ScheduleKey


class Ledger:
    """The pages of this node, and what is done about those of nodes that are no more."""

    def __init__(self, store: Store, owner: Owner, liveness: Liveness, clock: Clock) -> None:
        self._store = store
        self._owner = owner
        self._liveness = liveness
        self._clock = clock

    async def loading(self, exchange: Exchange) -> None:
        """Write down what comes with a package, before any of it is there."""
        if _concerns(exchange):
            await self._put(exchange, "loading", exchange.after.state())

    async def loaded(self, exchange: Exchange) -> None:
        """Write down that a package is loaded, in which version; pages that dead nodes left about it are over."""
        if not _concerns(exchange):
            return
        state = exchange.after.state()
        packages = self._store.packages
        if state.version and await packages.recorded(exchange.tenant, exchange.name) != state.version:
            await packages.record(exchange.tenant, exchange.name, state.version)
        await self._put(exchange, "loaded", state)
        dead = await self._pages_of_the_dead()
        over = [one for one in dead if (one.tenant, one.name) == (exchange.tenant, exchange.name)]
        if over:
            await self._forget(over)

    async def kept(self, exchange: Exchange) -> None:
        """Write down that everything is as it was before: a package is loaded as it was, or not at all."""
        if exchange.before.state() == PackageState():
            await self.gone(exchange)
        elif _concerns(exchange):
            await self._put(exchange, "loaded", exchange.before.state())

    async def unloading(self, exchange: Exchange) -> None:
        """Write down what goes with a package, before any of it has gone."""
        if _concerns(exchange):
            await self._put(exchange, "unloading", exchange.before.state())

    async def gone(self, exchange: Exchange) -> None:
        """Write down that nothing of a package is left here."""
        if _concerns(exchange):
            await self._store.package_states.remove([(exchange.tenant, exchange.name, self._owner.id)])

    async def _put(self, exchange: Exchange, phase: Phase, state: PackageState) -> None:
        page = LoadedPackage(
            tenant=exchange.tenant,
            name=exchange.name,
            owner=self._owner.id,
            phase=phase,
            version=state.version,
            digest=state.digest,
            state=msgspec.json.encode(state),
            at=self._clock.now(),
        )
        await self._store.package_states.put([page])

    # -- after a crash

    async def unwind(self) -> None:
        """Take away what loads and unloads have left that were cut off by the death of their node."""
        broken = [page for page in await self._pages_of_the_dead() if page.phase != "loaded"]
        if not broken:
            return
        pages = await self._store.package_states.all()
        loaded = {key for page in pages if page.phase == "loaded" for key in _schedules(page)}
        unloaded = {key for page in broken if page.phase == "unloading" for key in _schedules(page)} - loaded
        cut_off = {key for page in broken for key in _schedules(page) if await self._is_disarmed(key)}
        if residue := [*unloaded, *cut_off]:
            await self._store.schedules.delete(residue)
        await self._forget(broken)

    async def left_by_the_dead(self) -> list[LoadedPackage]:
        """Return what dead nodes had loaded when they ended."""
        return [page for page in await self._pages_of_the_dead() if page.phase == "loaded"]

    async def take_away(self, page: LoadedPackage) -> None:
        """Take away what a dead node left of a package that nobody wants any more."""
        await self._store.schedules.delete(list(_schedules(page)))
        await self._forget([page])

    async def _is_disarmed(self, key: ScheduleKey) -> bool:
        cursor = await self._store.schedules.cursor(*key)
        return cursor is not None and not cursor.armed

    async def _pages_of_the_dead(self) -> list[LoadedPackage]:
        """Return the pages of nodes of which it is certain that they write no more: those that said goodbye, too."""
        alive = {one.id for one in await self._store.owners.all() if not self._liveness.is_dead(one)}
        alive.add(self._owner.id)
        return [page for page in await self._store.package_states.all() if page.owner not in alive]

    async def _forget(self, pages: Iterable[LoadedPackage]) -> None:
        await self._store.package_states.remove([(one.tenant, one.name, one.owner) for one in pages])


def _concerns(exchange: Exchange) -> bool:
    """Return whether there is anything to write down: a package with a manifest, or rows of schedules."""
    return any(one.digest or any(one.schedules()) for one in (exchange.before, exchange.after))


def origin_of(page: LoadedPackage) -> str:
    """Return who wanted a package that was loaded."""
    return msgspec.json.decode(page.state, type=PackageState).origin


def _schedules(page: LoadedPackage) -> Iterable[ScheduleKey]:
    state = msgspec.json.decode(page.state, type=PackageState)
    return [ScheduleKey(page.tenant, workflow, key) for workflow, key in state.schedules]
