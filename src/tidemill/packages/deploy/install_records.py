"""Install records: what each node has loaded of a package, in the store, so that an interrupted load can be undone.

Everything that runs in a process ends with it. Only schedule rows outlive it, so recovery is about them: an
interrupted load leaves rows that were never armed, an interrupted unload leaves rows of a package that is not loaded.
The last node that has a schedule deletes its row. What a node had loaded when it ended stays, with its cursors, until
a node that plans loads the package again, in any version, or until the source that it came from no longer wants it.
The death of a node retires nothing, and a worker or a host deletes no schedule row.
Definitions that a program loads itself and that have no schedules are not recorded: they need no store.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from tidemill.engine.registry import PackageState
from tidemill.engine.workflows.process_identity import ProcessLiveness
from tidemill.kernel.clock import Clock
from tidemill.packages.deploy.change import PackageChange
from tidemill.packages.format.versions import check_not_downgrade
from tidemill.packages.loading.reader import PROGRAM
from tidemill.packages.status import PackageKey
from tidemill.storage.store import Store
from tidemill.storage.tables.packages import LoadedPackage, LoadPhase
from tidemill.storage.tables.schedules import ScheduleKey
from tidemill.storage.workflow_ports import NodeRow

_DOWNGRADE_HINT = "allow_downgrade=True, as an argument or as a setting,"


class InstallRecords:
    """Writes the records of this node, and cleans up those of dead nodes."""

    def __init__(self, store: Store, owner: NodeRow, liveness: ProcessLiveness, clock: Clock) -> None:
        self._store = store
        self._owner = owner
        self._liveness = liveness
        self._clock = clock

    async def check_version(self, tenant: str, name: str, version: str) -> None:
        """Reject a version below the recorded one."""
        check_not_downgrade(await self._store.packages.recorded_version(tenant, name), name, version, _DOWNGRADE_HINT)

    async def record_loading(self, change: PackageChange) -> None:
        """Record what a package brings, and the schedules it has so far, before anything is in place.

        A version below the recorded one is rejected here too: a newer one may have been loaded during preparation.
        """
        if not _needs_record(change):
            return
        if change.after.version:
            recorded = await self._store.packages.recorded_version(change.tenant, change.name)
            change.progress.recorded_version = recorded
            if not change.allow_downgrade:
                check_not_downgrade(recorded, change.name, change.after.version, _DOWNGRADE_HINT)
        await self._write_record(change, "loading", _state_with_all_schedules(change))

    async def record_loaded(self, change: PackageChange) -> None:
        """Record that a package is loaded, and its version; rows it no longer has are still to be deleted."""
        if not _needs_record(change):
            return
        state = _state_with_all_schedules(change)
        await self._write_record(change, "loaded", state)
        if state.version and state.version != change.progress.recorded_version:
            await self._record_version(change, state.version)

    async def _record_version(self, change: PackageChange, version: str) -> None:
        """Record a version, unless another process has recorded one meanwhile."""
        packages = self._store.packages
        if await packages.recorded_version(change.tenant, change.name) == change.progress.recorded_version:
            await packages.record_version(change.tenant, change.name, version)

    async def record_settled(self, change: PackageChange) -> None:
        """Record that nothing of older versions is left, neither of this node nor of dead nodes."""
        if not _needs_record(change):
            return
        if change.removed_schedules:
            await self._write_record(change, "loaded", change.after.state)
        if dead := await self._records_of_dead_nodes(change.key):
            await self._remove_records(dead)

    async def record_rolled_back(self, change: PackageChange) -> None:
        """Record that a package is loaded as it was before the change, or not at all."""
        if not change.was_loaded:
            await self.record_unloaded(change)
        elif _needs_record(change):
            await self._write_record(change, "loaded", change.before.state)

    async def record_unloading(self, change: PackageChange) -> None:
        """Record what a package has, before any of it is removed."""
        if _needs_record(change):
            await self._write_record(change, "unloading", change.before.state)

    async def record_unloaded(self, change: PackageChange) -> None:
        """Record that nothing of a package is left on this node.

        If a source no longer wants it, that also holds for the dead nodes that had it from the same source.
        """
        if not _needs_record(change):
            return
        await self._store.package_states.delete([(change.tenant, change.name, self._owner.id)])
        origin = change.before.state.origin
        if origin != PROGRAM.name:
            dead = await self._records_of_dead_nodes(change.key)
            await self._remove_records([one for one in dead if _decode_state(one).origin == origin])

    async def _write_record(self, change: PackageChange, phase: LoadPhase, state: PackageState) -> None:
        record = LoadedPackage(
            tenant=change.tenant,
            name=change.name,
            owner=self._owner.id,
            phase=phase,
            version=state.version,
            digest=state.digest,
            state=msgspec.json.encode(state),
            at=self._clock.now(),
        )
        await self._store.package_states.upsert([record])

    # -- after a crash

    async def recover_interrupted(self) -> None:
        """Undo the loads and unloads that the death of their node interrupted.

        Rows of an interrupted load that are armed were armed before, or the load had finished but for its last record:
        they are what that node had loaded. The next load of the package continues with them.
        """
        dead = await self._records_of_dead_nodes()
        if not any(record.phase != "loaded" for record in dead):
            return
        needed = await self._schedules_except(excluded=dead)
        for record in dead:
            if record.phase == "loading":
                await self._recover_load(record, needed)
        await self._remove_records([record for record in dead if record.phase == "unloading"])

    async def _recover_load(self, record: LoadedPackage, needed: set[ScheduleKey]) -> None:
        disarmed = {key for key in _schedule_keys(record) if await self.is_disarmed(key)}
        if unneeded := sorted(disarmed - needed):
            await self._store.schedules.delete(unneeded)
        state = _decode_state(record)
        armed = tuple(key for key in state.schedules if ScheduleKey(record.tenant, *key) not in disarmed)
        if not armed:
            await self._delete_records([record])
            return
        kept = msgspec.json.encode(replace(state, schedules=armed))
        await self._store.package_states.upsert([replace(record, phase="loaded", state=kept)])

    async def loaded_by_dead_nodes(self, origin: str) -> list[LoadedPackage]:
        """Return what dead nodes had loaded from an origin when they ended."""
        return [
            record
            for record in await self._records_of_dead_nodes()
            if record.phase == "loaded" and _decode_state(record).origin == origin
        ]

    async def remove_record(self, record: LoadedPackage) -> None:
        """Remove what a dead node left of a package that its source no longer wants."""
        await self._remove_records([record])

    async def schedules_of_other_nodes(self) -> set[ScheduleKey]:
        """Return the schedules that other nodes have loaded, or are loading."""
        return await self._schedules_except(excluded=[*await self._own(), *await self._records_of_dead_nodes()])

    async def schedules_kept_for_others(self) -> set[ScheduleKey]:
        """Return the schedules that other nodes have loaded, or had loaded when they ended."""
        return await self._schedules_except(excluded=await self._own())

    async def _own(self) -> list[LoadedPackage]:
        return [record for record in await self._store.package_states.list_all() if record.owner == self._owner.id]

    async def is_disarmed(self, key: ScheduleKey) -> bool:
        """Return whether a schedule has a row that was never armed, so that no slot of it has had a run."""
        cursor = await self._store.schedules.get_cursor(*key)
        return cursor is not None and not cursor.armed

    async def _remove_records(self, records: Sequence[LoadedPackage]) -> None:
        """Delete the schedule rows that only these records name, and then the records."""
        needed = await self._schedules_except(excluded=records)
        if unneeded := sorted({key for record in records for key in _schedule_keys(record)} - needed):
            await self._store.schedules.delete(unneeded)
        if records:
            await self._delete_records(records)

    async def _schedules_except(self, excluded: Iterable[LoadedPackage]) -> set[ScheduleKey]:
        """Return the schedules of all records but the excluded ones and those of packages that are being unloaded."""
        excluded_keys = {(one.tenant, one.name, one.owner) for one in excluded}
        records = [one for one in await self._store.package_states.list_all() if one.phase != "unloading"]
        return {
            key
            for one in records
            if (one.tenant, one.name, one.owner) not in excluded_keys
            for key in _schedule_keys(one)
        }

    async def _records_of_dead_nodes(self, key: PackageKey | None = None) -> list[LoadedPackage]:
        """Return the records, of one package or all, of nodes that certainly write no more: stopped or dead ones.

        Records are read before nodes: a node that registers between the two reads has none of these records. A node
        that does not plan loads no schedules, so it cannot judge those of others: it gets the records without any.
        """
        records = [
            one
            for one in await self._store.package_states.list_all()
            if one.owner != self._owner.id
            and key in (None, (one.tenant, one.name))
            and (self._owner.plans or not _schedule_keys(one))
        ]
        if not records:
            return []
        alive = {one.id for one in await self._store.owners.list_all() if not self._liveness.is_dead(one)}
        return [record for record in records if record.owner not in alive]

    async def _delete_records(self, records: Iterable[LoadedPackage]) -> None:
        await self._store.package_states.delete([(one.tenant, one.name, one.owner) for one in records])


def _needs_record(change: PackageChange) -> bool:
    """Return whether there is anything to record: a package with a manifest, or schedules."""
    return any(one.digest or one.schedules for one in (change.before, change.after))


def _state_with_all_schedules(change: PackageChange) -> PackageState:
    """Return what a package is to have, with the schedules of the older version while their rows may exist."""
    before, after = change.before.state, change.after.state
    return replace(after, schedules=tuple(dict.fromkeys((*after.schedules, *before.schedules))))


def _decode_state(record: LoadedPackage) -> PackageState:
    return msgspec.json.decode(record.state, type=PackageState)


def _schedule_keys(record: LoadedPackage) -> list[ScheduleKey]:
    return [ScheduleKey(record.tenant, workflow, key) for workflow, key in _decode_state(record).schedules]
