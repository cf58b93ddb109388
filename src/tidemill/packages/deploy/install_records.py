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
from tidemill.engine.workflows.process_identity import ProcessLiveness
from tidemill.kernel.clock import Clock
from tidemill.packages.deploy.change import PackageChange
from tidemill.packages.format.versions import check_not_downgrade
from tidemill.storage.package_ports import LoadedPackage, LoadPhase
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import Owner, ScheduleKey

_DOWNGRADE_HINT = "allow_downgrade=True, as an argument or as a setting,"


class InstallRecords:
    """The pages of this node, and what is done about those of nodes that are no more."""

    def __init__(self, store: Store, owner: Owner, liveness: ProcessLiveness, clock: Clock) -> None:
        self._store = store
        self._owner = owner
        self._liveness = liveness
        self._clock = clock

    async def check_version(self, tenant: str, name: str, version: str) -> None:
        """Refuse a version below the one that is recorded."""
        check_not_downgrade(await self._store.packages.recorded_version(tenant, name), name, version, _DOWNGRADE_HINT)

    async def record_loading(self, change: PackageChange) -> None:
        """Write down what comes with a package, and which rows it has so far, before anything is there.

        A version below the one that is recorded is refused here too: while it was prepared, a newer one was loaded.
        """
        if not _needs_record(change):
            return
        if change.after.version:
            change.recorded_version = await self._store.packages.recorded_version(change.tenant, change.name)
            if not change.allow_downgrade:
                check_not_downgrade(change.recorded_version, change.name, change.after.version, _DOWNGRADE_HINT)
        await self._write_record(change, "loading", _state_with_all_schedules(change))

    async def record_loaded(self, change: PackageChange) -> None:
        """Write down that a package is loaded, in which version; rows that it has no more are yet to go."""
        if not _needs_record(change):
            return
        state = _state_with_all_schedules(change)
        await self._write_record(change, "loaded", state)
        if state.version and state.version != change.recorded_version:
            await self._record_version(change, state.version)

    async def _record_version(self, change: PackageChange, version: str) -> None:
        """Record a version, unless somebody else has had the last word meanwhile: what they want follows."""
        packages = self._store.packages
        if await packages.recorded_version(change.tenant, change.name) == change.recorded_version:
            await packages.record_version(change.tenant, change.name, version)

    async def record_settled(self, change: PackageChange) -> None:
        """Write down that nothing is left of older versions, neither here nor of nodes that are no more."""
        if not _needs_record(change):
            return
        if change.removed_schedules:
            await self._write_record(change, "loaded", change.after.state())
        dead = await self._records_of_dead_nodes()
        over = [one for one in dead if (one.tenant, one.name) == (change.tenant, change.name)]
        if over:
            await self._remove_records(over)

    async def record_rolled_back(self, change: PackageChange) -> None:
        """Write down that everything is as it was before: a package is loaded as it was, or not at all."""
        if change.before.state() == PackageState():
            await self.record_unloaded(change)
        elif _needs_record(change):
            await self._write_record(change, "loaded", change.before.state())

    async def record_unloading(self, change: PackageChange) -> None:
        """Write down what goes with a package, before any of it has gone."""
        if _needs_record(change):
            await self._write_record(change, "unloading", change.before.state())

    async def record_unloaded(self, change: PackageChange) -> None:
        """Write down that nothing of a package is left here."""
        if _needs_record(change):
            await self._store.package_states.delete([(change.tenant, change.name, self._owner.id)])

    async def _write_record(self, change: PackageChange, phase: LoadPhase, state: PackageState) -> None:
        page = LoadedPackage(
            tenant=change.tenant,
            name=change.name,
            owner=self._owner.id,
            phase=phase,
            version=state.version,
            digest=state.digest,
            state=msgspec.json.encode(state),
            at=self._clock.now(),
        )
        await self._store.package_states.upsert([page])

    # -- after a crash

    async def recover_interrupted(self) -> None:
        """Take away what loads and unloads have left that were cut off by the death of their node.

        Rows that are armed after a load was cut off were so before, or nothing was missing but a last word: they are
        what that node had loaded. Whoever loads the package again goes on with them.
        """
        dead = await self._records_of_dead_nodes()
        if not any(page.phase != "loaded" for page in dead):
            return
        needed = await self._schedules_except(excluded=dead)
        for page in dead:
            if page.phase == "loading":
                await self._recover_load(page, needed)
        await self._remove_records([page for page in dead if page.phase == "unloading"])

    async def _recover_load(self, record: LoadedPackage, needed: set[ScheduleKey]) -> None:
        disarmed = {key for key in _schedule_keys(record) if await self.is_disarmed(key)}
        if residue := sorted(disarmed - needed):
            await self._store.schedules.delete(residue)
        state = msgspec.json.decode(record.state, type=PackageState)
        armed = tuple(key for key in state.schedules if ScheduleKey(record.tenant, *key) not in disarmed)
        if not armed:
            await self._delete_records([record])
            return
        kept = msgspec.json.encode(replace(state, schedules=armed))
        await self._store.package_states.upsert([replace(record, phase="loaded", state=kept)])

    async def loaded_by_dead_nodes(self) -> list[LoadedPackage]:
        """Return what dead nodes had loaded when they ended."""
        return [page for page in await self._records_of_dead_nodes() if page.phase == "loaded"]

    async def remove_record(self, record: LoadedPackage) -> None:
        """Take away what a dead node left of a package that nobody wants any more."""
        await self._remove_records([record])

    async def schedules_of_other_nodes(self) -> set[ScheduleKey]:
        """Return the schedules that other nodes have loaded, or are about to."""
        mine = [page for page in await self._store.package_states.list_all() if page.owner == self._owner.id]
        return await self._schedules_except(excluded=[*mine, *await self._records_of_dead_nodes()])

    async def is_disarmed(self, key: ScheduleKey) -> bool:
        """Tell whether a schedule has a row that was never armed: no slot of it has had a run."""
        cursor = await self._store.schedules.get_cursor(*key)
        return cursor is not None and not cursor.armed

    async def _remove_records(self, records: Sequence[LoadedPackage]) -> None:
        """Take away rows that are on these pages and on no others, and then the pages."""
        needed = await self._schedules_except(excluded=records)
        if residue := sorted({key for page in records for key in _schedule_keys(page)} - needed):
            await self._store.schedules.delete(residue)
        if records:
            await self._delete_records(records)

    async def _schedules_except(self, excluded: Iterable[LoadedPackage]) -> set[ScheduleKey]:
        """Return the schedules of all pages but these, and but for those that are being unloaded."""
        left_out = {(one.tenant, one.name, one.owner) for one in excluded}
        pages = [one for one in await self._store.package_states.list_all() if one.phase != "unloading"]
        return {
            key for one in pages if (one.tenant, one.name, one.owner) not in left_out for key in _schedule_keys(one)
        }

    async def _records_of_dead_nodes(self) -> list[LoadedPackage]:
        """Return the pages of nodes of which it is certain that they write no more: those that said goodbye, too."""
        pages = await self._store.package_states.list_all()  # first: a node that comes after that has none of these
        alive = {one.id for one in await self._store.owners.list_all() if not self._liveness.is_dead(one)}
        alive.add(self._owner.id)
        return [page for page in pages if page.owner not in alive]

    async def _delete_records(self, records: Iterable[LoadedPackage]) -> None:
        await self._store.package_states.delete([(one.tenant, one.name, one.owner) for one in records])


def _needs_record(change: PackageChange) -> bool:
    """Return whether there is anything to write down: a package with a manifest, or rows of schedules."""
    return any(one.digest or any(one.iter_schedules()) for one in (change.before, change.after))


def _state_with_all_schedules(change: PackageChange) -> PackageState:
    """Return what a package is to have, and as long as the older version may have them, the schedules of that too."""
    before, after = change.before.state(), change.after.state()
    return replace(after, schedules=tuple(dict.fromkeys((*after.schedules, *before.schedules))))


def record_origin(record: LoadedPackage) -> str:
    """Return who wanted a package that was loaded."""
    return msgspec.json.decode(record.state, type=PackageState).origin


def _schedule_keys(record: LoadedPackage) -> Iterable[ScheduleKey]:
    state = msgspec.json.decode(record.state, type=PackageState)
    return [ScheduleKey(record.tenant, workflow, key) for workflow, key in state.schedules]
