"""The ledger: what each node has loaded of a package, in the store, so that a load that was cut off can be unwound.

What runs in a process ends with it. What outlives it are the rows of schedules, so these are what unwinding is about: a
load that was cut off leaves rows that were never armed, an unload that was cut off leaves rows that nobody has loaded.
A row is taken away by the last node that has its schedule. What a node had loaded when it ended stays, cursors and all,
until the package is loaded again, in whatever version, or until its source is found to want it no more.
Definitions that a program loads itself, and that leave no row, are not written down: they need no store to come and go.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from tidemill.engine.registry import PackageState
from tidemill.engine.workflows.owners import Liveness
from tidemill.kernel.clock import Clock
from tidemill.packages.exchange import Exchange
from tidemill.packages.versions import check_not_below
from tidemill.storage.package_ports import LoadedPackage, Phase
from tidemill.storage.ports import Store
from tidemill.storage.run_ports import Owner, ScheduleKey

_GOING_BACK = "allow_downgrade=True, as an argument or as a setting,"


class Ledger:
    """The pages of this node, and what is done about those of nodes that are no more."""

    def __init__(self, store: Store, owner: Owner, liveness: Liveness, clock: Clock) -> None:
        self._store = store
        self._owner = owner
        self._liveness = liveness
        self._clock = clock

    async def check_version(self, tenant: str, name: str, version: str) -> None:
        """Refuse a version below the one that is recorded."""
        check_not_below(await self._store.packages.recorded(tenant, name), name, version, _GOING_BACK)

    async def loading(self, exchange: Exchange) -> None:
        """Write down what comes with a package, and which rows it has so far, before anything is there.

        A version below the one that is recorded is refused here too: while it was prepared, a newer one was loaded.
        """
        if not _concerns(exchange):
            return
        if exchange.after.version:
            exchange.recorded = await self._store.packages.recorded(exchange.tenant, exchange.name)
            if not exchange.may_downgrade:
                check_not_below(exchange.recorded, exchange.name, exchange.after.version, _GOING_BACK)
        await self._put(exchange, "loading", _with_rows_of_both(exchange))

    async def loaded(self, exchange: Exchange) -> None:
        """Write down that a package is loaded, in which version; rows that it has no more are yet to go."""
        if not _concerns(exchange):
            return
        state = _with_rows_of_both(exchange)
        await self._put(exchange, "loaded", state)
        if state.version and state.version != exchange.recorded:
            await self._record(exchange, state.version)

    async def _record(self, exchange: Exchange, version: str) -> None:
        """Record a version, unless somebody else has had the last word meanwhile: what they want follows."""
        packages = self._store.packages
        if await packages.recorded(exchange.tenant, exchange.name) == exchange.recorded:
            await packages.record(exchange.tenant, exchange.name, version)

    async def settled(self, exchange: Exchange) -> None:
        """Write down that nothing is left of older versions, neither here nor of nodes that are no more."""
        if not _concerns(exchange):
            return
        if exchange.gone_schedules:
            await self._put(exchange, "loaded", exchange.after.state())
        dead = await self._pages_of_the_dead()
        over = [one for one in dead if (one.tenant, one.name) == (exchange.tenant, exchange.name)]
        if over:
            await self._take_away(over)

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
        """Take away what loads and unloads have left that were cut off by the death of their node.

        Rows that are armed after a load was cut off were so before, or nothing was missing but a last word: they are
        what that node had loaded. Whoever loads the package again goes on with them.
        """
        dead = await self._pages_of_the_dead()
        if not any(page.phase != "loaded" for page in dead):
            return
        needed = await self._needed(but=dead)
        for page in dead:
            if page.phase == "loading":
                await self._unwind_load(page, needed)
        await self._take_away([page for page in dead if page.phase == "unloading"])

    async def _unwind_load(self, page: LoadedPackage, needed: set[ScheduleKey]) -> None:
        disarmed = {key for key in _schedules(page) if await self.is_disarmed(key)}
        if residue := sorted(disarmed - needed):
            await self._store.schedules.delete(residue)
        state = msgspec.json.decode(page.state, type=PackageState)
        armed = tuple(key for key in state.schedules if ScheduleKey(page.tenant, *key) not in disarmed)
        if not armed:
            await self._forget([page])
            return
        kept = msgspec.json.encode(replace(state, schedules=armed))
        await self._store.package_states.put([replace(page, phase="loaded", state=kept)])

    async def left_by_the_dead(self) -> list[LoadedPackage]:
        """Return what dead nodes had loaded when they ended."""
        return [page for page in await self._pages_of_the_dead() if page.phase == "loaded"]

    async def take_away(self, page: LoadedPackage) -> None:
        """Take away what a dead node left of a package that nobody wants any more."""
        await self._take_away([page])

    async def needed_elsewhere(self) -> set[ScheduleKey]:
        """Return the schedules that other nodes have loaded, or are about to."""
        mine = [page for page in await self._store.package_states.all() if page.owner == self._owner.id]
        return await self._needed(but=[*mine, *await self._pages_of_the_dead()])

    async def is_disarmed(self, key: ScheduleKey) -> bool:
        """Tell whether a schedule has a row that was never armed: no slot of it has had a run."""
        cursor = await self._store.schedules.cursor(*key)
        return cursor is not None and not cursor.armed

    async def _take_away(self, pages: Sequence[LoadedPackage]) -> None:
        """Take away rows that are on these pages and on no others, and then the pages."""
        needed = await self._needed(but=pages)
        if residue := sorted({key for page in pages for key in _schedules(page)} - needed):
            await self._store.schedules.delete(residue)
        if pages:
            await self._forget(pages)

    async def _needed(self, but: Iterable[LoadedPackage]) -> set[ScheduleKey]:
        """Return the schedules of all pages but these, and but for those that are being unloaded."""
        left_out = {(one.tenant, one.name, one.owner) for one in but}
        pages = [one for one in await self._store.package_states.all() if one.phase != "unloading"]
        return {key for one in pages if (one.tenant, one.name, one.owner) not in left_out for key in _schedules(one)}

    async def _pages_of_the_dead(self) -> list[LoadedPackage]:
        """Return the pages of nodes of which it is certain that they write no more: those that said goodbye, too."""
        pages = await self._store.package_states.all()  # first: a node that comes after that has none of these
        alive = {one.id for one in await self._store.owners.all() if not self._liveness.is_dead(one)}
        alive.add(self._owner.id)
        return [page for page in pages if page.owner not in alive]

    async def _forget(self, pages: Iterable[LoadedPackage]) -> None:
        await self._store.package_states.remove([(one.tenant, one.name, one.owner) for one in pages])


def _concerns(exchange: Exchange) -> bool:
    """Return whether there is anything to write down: a package with a manifest, or rows of schedules."""
    return any(one.digest or any(one.schedules()) for one in (exchange.before, exchange.after))


def _with_rows_of_both(exchange: Exchange) -> PackageState:
    """Return what a package is to have, and as long as the older version may have them, the schedules of that too."""
    before, after = exchange.before.state(), exchange.after.state()
    return replace(after, schedules=tuple(dict.fromkeys((*after.schedules, *before.schedules))))


def origin_of(page: LoadedPackage) -> str:
    """Return who wanted a package that was loaded."""
    return msgspec.json.decode(page.state, type=PackageState).origin


def _schedules(page: LoadedPackage) -> Iterable[ScheduleKey]:
    state = msgspec.json.decode(page.state, type=PackageState)
    return [ScheduleKey(page.tenant, workflow, key) for workflow, key in state.schedules]
