"""The registry of packages: one version of each is wanted, and what was recorded of them stays."""

import asyncio
import random

import pytest
from msgspec.structs import replace

from tests.contract.conftest import ContractDatabase
from tests.contract.package_samples import names, package
from tests.contract.run_samples import after, creation, make, run_row
from tests.contract.samples import NOON, NOON_ELSEWHERE, ODD_NAMES
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.storage.tables.versions import CodeArchive, WorkflowVersion
from tidemill.storage.workflow_ports import NodeRow
from tidemill.testing.faults.stores import fail_next
from tidemill.workflows.records import VersionKey
from tidemill.workflows.states import RunState

MEGABYTE = 2**20


# -- publishing


async def test_a_published_package_is_listed(store: Store) -> None:
    assert await store.packages.list_published() == []
    assert await store.packages.publish(package(), b"archive", 0)
    assert await store.packages.list_published() == [package(revision=1)]
    assert await store.packages.read_archive("public", "market", "digest of 1.0.0") == b"archive"


async def test_a_package_replaces_the_one_of_its_name(store: Store) -> None:
    await store.packages.publish(package(), b"archive", 0)
    newer = package(version="1.1.0", size=9, at=after(60))
    assert await store.packages.publish(newer, b"newer", 1)
    assert await store.packages.list_published() == [replace(newer, revision=2)]
    assert await store.packages.read_archive("public", "market", newer.digest) == b"newer"


async def test_a_publisher_that_expects_another_revision_changes_nothing(store: Store) -> None:
    """The archive and what is recorded stay as well; also where there is nothing."""
    assert not await store.packages.publish(package(), b"late", 1)
    assert await store.packages.recorded_version("public", "market") is None
    await store.packages.publish(package(), b"archive", 0)
    for found in (0, 2, -1):
        assert not await store.packages.publish(package(version="2.0.0", digest="digest of 1.0.0"), b"late", found)
    assert await store.packages.list_published() == [package(revision=1)]
    assert await store.packages.read_archive("public", "market", "digest of 1.0.0") == b"archive"
    assert await store.packages.recorded_version("public", "market") == "1.0.0"


async def test_the_revision_is_the_stores_own(store: Store) -> None:
    assert await store.packages.publish(package(revision=77), b"", 0)
    assert await store.packages.list_published() == [package(revision=1)]


async def test_of_several_publishers_in_one_process_one_wins(store: Store) -> None:
    rivals = [package(version=f"1.{number}.0") for number in range(20)]
    won = await asyncio.gather(*(store.packages.publish(one, one.version.encode(), 0) for one in rivals))
    assert sum(won) == 1
    winner = rivals[won.index(True)]
    assert await store.packages.list_published() == [replace(winner, revision=1)]
    assert await store.packages.read_archive("public", "market", winner.digest) == winner.version.encode()
    assert await store.packages.recorded_version("public", "market") == winner.version


@pytest.mark.parametrize("found", [0, 1])
async def test_of_several_publishers_in_several_processes_one_wins(database: ContractDatabase, found: int) -> None:
    """Whether or not there was one before: each has a connection of its own."""
    stores = [database.store() for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    if found:
        await stores[0].packages.publish(package(version="0.1.0"), b"", 0)
    rivals = [package(version=f"1.{number}.0") for number in range(len(stores))]
    archives = [one.version.encode() * 100_000 for one in rivals]  # so that they are on their way at the same time
    publishing = (
        store.packages.publish(one, raw, found) for store, one, raw in zip(stores, rivals, archives, strict=True)
    )
    won = await asyncio.gather(*publishing)
    assert sum(won) == 1
    winner = rivals[won.index(True)]
    for store in stores:
        assert await store.packages.list_published() == [replace(winner, revision=found + 1)]
        assert await store.packages.read_archive("public", "market", winner.digest) == archives[won.index(True)]
        assert await store.packages.recorded_version("public", "market") == winner.version
        await store.close()


async def test_publishers_that_retry_all_succeed(database: ContractDatabase) -> None:
    """P-9: each reads the registry before it decides, and no publication is lost; revisions count them."""
    stores = [database.store() for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))

    async def insist(store: Store, version: str) -> None:
        while True:
            found = max([one.revision for one in await store.packages.list_published()], default=0)
            if await store.packages.publish(package(version=version), b"", found):
                return

    versions = [f"1.{number}.0" for number in range(12)]
    await asyncio.gather(*(insist(stores[number % 3], version) for number, version in enumerate(versions)))
    (last,) = await stores[0].packages.list_published()
    assert last.revision == len(versions)
    assert await stores[1].packages.recorded_version("public", "market") == last.version
    for store in stores:
        await store.close()


async def test_packages_that_are_published_together_are_all_there(database: ContractDatabase) -> None:
    """In any order that two processes name them in: no deadlock."""
    stores = [database.store() for _ in range(2)]
    await asyncio.gather(*(store.open() for store in stores))
    order = [f"p{number}" for number in range(5)]
    calls = [stores[0].packages.publish(package(name), b"", 0) for name in order]
    calls += [stores[1].packages.publish(package(name, tenant="other"), b"", 0) for name in reversed(order)]
    calls += [stores[1].packages.publish(package(name), b"", 0) for name in reversed(order)]
    won = await asyncio.gather(*calls)
    assert sum(won) == 2 * len(order)
    assert await names(stores[0]) == order * 2
    for store in stores:
        await store.close()


@pytest.mark.parametrize("size", [0, 1, 5 * MEGABYTE, 20 * MEGABYTE])
async def test_an_archive_comes_back_byte_by_byte(store: Store, size: int) -> None:
    """P-8: however large; it would not be smaller if it were compressed."""
    archive = random.Random(size).randbytes(size)
    assert await store.packages.publish(package(size=size), archive, 0)
    assert await store.packages.read_archive("public", "market", "digest of 1.0.0") == archive
    assert [one.size for one in await store.packages.list_published()] == [size]


async def test_archives_of_several_packages_do_not_keep_others_from_writing(store: Store) -> None:
    archives = {f"p{number}": random.Random(number).randbytes(3 * MEGABYTE) for number in range(4)}
    publishing = (store.packages.publish(package(name), raw, 0) for name, raw in archives.items())
    *won, _ = await asyncio.gather(*publishing, store.pauses.set_paused("public", "r", paused=True))
    assert won == [True] * 4
    for name, raw in archives.items():
        assert await store.packages.read_archive("public", name, "digest of 1.0.0") == raw
    assert await store.pauses.is_paused("public", "r")


# -- reading


async def test_packages_are_listed_by_tenant_and_name(store: Store) -> None:
    """P-5: packages are independent; names sort by their characters."""
    packages = [
        package(name, tenant=tenant, digest=f"{tenant} {name}") for tenant in ("b", "Z", "ä") for name in ODD_NAMES
    ]
    for one in packages:
        assert await store.packages.publish(one, one.digest.encode(), 0)
    expected = sorted(packages, key=lambda one: (one.tenant, one.name))
    assert await store.packages.list_published() == [replace(one, revision=1) for one in expected]
    for one in packages:
        assert await store.packages.read_archive(one.tenant, one.name, one.digest) == one.digest.encode()


async def test_the_archives_of_replaced_and_withdrawn_packages_are_kept(store: Store) -> None:
    await store.packages.publish(package(), b"archive", 0)
    await store.packages.publish(package(version="2.0.0"), b"newer", 1)
    assert await store.packages.read_archive("public", "market", "digest of 1.0.0") == b"archive"
    assert await store.packages.read_archive("public", "never", "digest of 2.0.0") is None
    assert await store.packages.read_archive("other", "market", "digest of 2.0.0") is None
    await store.packages.withdraw("public", "market")
    assert await store.packages.read_archive("public", "market", "digest of 2.0.0") == b"newer"
    assert [one.version for one in await store.packages.list_history("public", "market")] == ["2.0.0", "1.0.0"]
    assert await store.packages.list_history("public", "never") == []


async def test_a_version_that_is_published_again_is_kept_once(store: Store) -> None:
    await store.packages.publish(package(), b"archive", 0)
    await store.packages.publish(package(version="2.0.0"), b"newer", 1)
    await store.packages.publish(package(at=after(60)), b"archive", 2)
    newest = package(at=after(60), revision=3)
    assert await store.packages.list_history("public", "market") == [newest, package(version="2.0.0", revision=2)]


async def test_only_so_many_versions_are_kept(store: Store) -> None:
    await store.packages.publish(package("other"), b"archive", 0)
    for number in range(5):
        one = package(version=f"{number}.0.0")
        await store.packages.publish(one, b"archive", number, history=3)
    kept = await store.packages.list_history("public", "market")
    assert [one.version for one in kept] == ["4.0.0", "3.0.0", "2.0.0"]
    assert await store.packages.read_archive("public", "market", "digest of 1.0.0") is None
    assert len(await store.packages.list_history("public", "other")) == 1


async def test_what_unfinished_runs_need_and_what_is_loaded_is_kept_longer(store: Store) -> None:
    """W-19: of versions beyond the limit, those whose code something may still need."""
    for number, version in enumerate(["needed", "ended", "loaded", "unused"], 1):
        one = package(version=f"{number}.0.0")
        await store.packages.publish(one, b"archive", number - 1)
        key = VersionKey("public", "w", version)
        archive = CodeArchive("market", one.version, one.digest)
        await store.versions.upsert(WorkflowVersion(key=key, spec=b"{}", seen_at=NOON, archive=archive))
    await make(store, creation(run_row("r1", workflow="w", version="needed")))
    await make(store, creation(run_row("r2", workflow="w", version="ended", state=RunState.SUCCESS)))
    await store.owners.upsert(NodeRow(id="n", host="h", boot="b", pid=1, started="s", at=NOON))
    await store.versions.add_older("n", VersionKey("public", "w", "loaded"))
    await store.packages.publish(package(version="5.0.0"), b"archive", 4, history=1)
    kept = await store.packages.list_history("public", "market")
    assert [one.version for one in kept] == ["5.0.0", "3.0.0", "1.0.0"]
    needed = CodeArchive("market", "1.0.0", "digest of 1.0.0")
    assert await store.versions.list_needed() == {VersionKey("public", "w", "needed"): needed}
    assert await store.versions.count_unfinished("public", "market") == {needed.digest: 1}
    assert await store.versions.count_unfinished("public", "other") == {}


async def test_a_package_of_another_zone_is_of_the_same_instant(store: Store) -> None:
    await store.packages.publish(package(at=NOON_ELSEWHERE), b"", 0)
    (found,) = await store.packages.list_published()
    assert (found.at, found.at.utcoffset()) == (NOON, NOON.utcoffset())


async def test_what_is_not_ascii_comes_back(store: Store) -> None:
    odd = package("größe 🌊", "1.0.0", digest="名前", tenant="naïve")
    await store.packages.publish(odd, "größe".encode(), 0)
    assert await store.packages.list_published() == [replace(odd, revision=1)]
    assert await store.packages.read_archive("naïve", "größe 🌊", "名前") == "größe".encode()


async def test_packages_are_there_after_a_restart_and_in_a_read_only_store(database: ContractDatabase) -> None:
    store, onlooker, later = database.store(), database.store(), database.store()
    await store.open()
    await store.packages.publish(package(), b"archive", 0)
    await store.close()
    await onlooker.open_read_only()
    assert await onlooker.packages.list_published() == [package(revision=1)]
    with pytest.raises(StoreError, match="not open"):
        await onlooker.packages.withdraw("public", "market")
    await onlooker.close()
    await later.open()
    assert await later.packages.read_archive("public", "market", "digest of 1.0.0") == b"archive"
    await later.close()


# -- withdrawing


async def test_a_package_is_withdrawn_once(store: Store) -> None:
    """P-4: nothing else is touched, neither another name nor the same one of another tenant."""
    for one in (package(), package("other"), package(tenant="else")):
        await store.packages.publish(one, b"", 0)
    assert not await store.packages.withdraw("public", "never")
    assert await store.packages.withdraw("public", "market")
    assert not await store.packages.withdraw("public", "market")
    assert await store.packages.list_published() == [package(tenant="else", revision=1), package("other", revision=1)]


async def test_a_recorded_version_outlives_its_package(store: Store) -> None:
    """P-9: a withdrawal does not allow a downgrade."""
    await store.packages.publish(package(version="2.0.0"), b"", 0)
    await store.packages.withdraw("public", "market")
    assert await store.packages.recorded_version("public", "market") == "2.0.0"


async def test_a_revision_is_never_used_twice(store: Store) -> None:
    """A node that saw the package before its withdrawal does not confuse it with the one after."""
    await store.packages.publish(package(), b"", 0)
    await store.packages.withdraw("public", "market")
    assert not await store.packages.publish(package(version="3.0.0"), b"late", 1)
    assert await store.packages.publish(package(version="2.0.0"), b"", 0)
    assert await store.packages.list_published() == [package(version="2.0.0", revision=2)]
    assert not await store.packages.publish(package(version="3.0.0"), b"late", 1)
    assert await store.packages.publish(package(version="3.0.0"), b"", 2)


async def test_of_a_withdrawal_and_a_publication_at_once_none_is_half_done(database: ContractDatabase) -> None:
    """Either the publication came first and was withdrawn, or it found that there is nothing."""
    stores = [database.store() for _ in range(2)]
    await asyncio.gather(*(store.open() for store in stores))
    for number in range(10):
        found, name = 1, f"p{number}"
        await stores[0].packages.publish(package(name), b"", 0)
        published, withdrawn = await asyncio.gather(
            stores[0].packages.publish(package(name, "2.0.0"), b"", found), stores[1].packages.withdraw("public", name)
        )
        assert withdrawn
        assert await names(stores[0]) == []
        assert await stores[1].packages.recorded_version("public", name) == ("2.0.0" if published else "1.0.0")
    for store in stores:
        await store.close()


# -- versions


async def test_a_version_is_recorded_as_given(store: Store) -> None:
    """P-9: the caller has compared versions, so an older one is an allowed downgrade."""
    assert await store.packages.recorded_version("public", "market") is None
    for version in ("1.0.0", "10.0.0", "9.0.0", "9.0.0"):
        await store.packages.record_version("public", "market", version)
        assert await store.packages.recorded_version("public", "market") == version
    assert await store.packages.recorded_version("other", "market") is None
    assert await store.packages.list_published() == []


async def test_publishing_records_also_an_older_version(store: Store) -> None:
    await store.packages.publish(package(version="2.0.0"), b"", 0)
    await store.packages.publish(package(version="1.9.0"), b"", 1)
    assert await store.packages.recorded_version("public", "market") == "1.9.0"


async def test_recording_a_version_does_not_change_published_packages(store: Store) -> None:
    await store.packages.publish(package(), b"archive", 0)
    await store.packages.record_version("public", "market", "5.0.0")
    assert await store.packages.list_published() == [package(revision=1)]
    assert await store.packages.publish(package(version="5.1.0"), b"", 1)
    assert await store.packages.list_published() == [package(version="5.1.0", revision=2)]


# -- failures


async def test_a_failed_write_changes_nothing(store: Store) -> None:
    await store.packages.publish(package(), b"archive", 0)
    writes = [
        lambda: store.packages.publish(package(version="2.0.0"), b"newer", 1),
        lambda: store.packages.publish(package("second"), b"", 0),
        lambda: store.packages.withdraw("public", "market"),
        lambda: store.packages.record_version("public", "market", "2.0.0"),
    ]
    for write in writes:
        fail_next(store, 1)
        with pytest.raises(StoreError, match="on purpose"):
            await write()
    assert await store.packages.list_published() == [package(revision=1)]
    assert await store.packages.read_archive("public", "market", "digest of 1.0.0") == b"archive"
    assert await store.packages.recorded_version("public", "market") == "1.0.0"


async def test_a_time_without_a_zone_is_the_callers_mistake(store: Store) -> None:
    with pytest.raises(ValueError, match="without a zone"):
        await store.packages.publish(package(at=NOON.replace(tzinfo=None)), b"", 0)
    assert await store.packages.list_published() == []
    assert await store.packages.recorded_version("public", "market") is None
