"""The registry in the store as a package source: desired packages, reading them, and notifications."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tests.unit.packages.package_samples import FILES, zipped
from tidemill.kernel.clock import DEFAULT_START, VirtualClock
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.packages.format.archive import archive_digest
from tidemill.packages.format.zip_format import build_zip
from tidemill.packages.reconcile.registry import RegistrySource
from tidemill.packages.status import PackageKey
from tidemill.storage.sqlite.memory import MemoryStore
from tidemill.storage.tables.packages import PublishedPackage

ARCHIVE = build_zip(FILES)
KEY = PackageKey("acme", "market")


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """A store that is open."""
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def clock() -> VirtualClock:
    """Time that moves when a test moves it."""
    return VirtualClock()


async def publish(
    store: MemoryStore, archive: bytes = ARCHIVE, *, version: str = "1.2.0", tenant: str = "acme", digest: str = ""
) -> None:
    """Put an archive into the registry, whatever is there."""
    found = {(one.tenant, one.name): one.revision for one in await store.packages.list_published()}
    package = PublishedPackage(
        tenant=tenant,
        name="market",
        version=version,
        digest=digest or archive_digest(archive),
        size=len(archive),
        at=DEFAULT_START,
    )
    assert await store.packages.publish(package, archive, found.get((tenant, "market"), 0))


async def test_what_is_published_is_wanted_for_every_tenant(store: MemoryStore, clock: VirtualClock) -> None:
    """With the digest and the version that the store knows; nothing is read for that."""
    source = RegistrySource(store, clock, 5.0)
    assert await source.desired_packages() == {}
    await publish(store)
    await publish(store, b"no archive", tenant="other", version="2.0.0")
    found = await source.desired_packages()
    assert {key: (one.version, one.digest) for key, one in found.items()} == {
        KEY: ("1.2.0", archive_digest(ARCHIVE)),
        PackageKey("other", "market"): ("2.0.0", archive_digest(b"no archive")),
    }
    contents = await found[KEY].read()
    assert contents.raw == ARCHIVE
    assert dict(contents.files) == dict(sorted(FILES.items()))
    assert contents.title == found[KEY].title == "market 1.2.0 in the registry of 'acme'"
    assert await store.packages.withdraw("acme", "market")
    assert list(await source.desired_packages()) == [PackageKey("other", "market")]


async def test_a_damaged_archive_is_the_error_of_that_package(store: MemoryStore, clock: VirtualClock) -> None:
    """One that is no archive, that is another than was published, or that holds another version."""
    damaged = {
        "none": (b"no archive", ""),
        "changed": (zipped(FILES | {"market/graphs.py": b"x"}), archive_digest(ARCHIVE)),
        "other": (build_zip(FILES | {"package.toml": FILES["package.toml"].replace(b"1.2.0", b"1.3.0")}), ""),
    }
    for tenant, (archive, digest) in damaged.items():
        await publish(store, archive, tenant=tenant, digest=digest)
    await publish(store)
    found = await RegistrySource(store, clock, 5.0).desired_packages()
    words = {"none": "it is not a zip file", "changed": "differs from the published one", "other": "market 1.3.0"}
    for tenant, said in words.items():
        with pytest.raises(RequestError, match=said) as caught:
            await found[PackageKey(tenant, "market")].read()
        assert caught.value.code == "invalid_package"
    assert (await found[KEY].read()).manifest.name == "market"


async def test_a_replaced_archive_can_be_read(store: MemoryStore, clock: VirtualClock) -> None:
    """The registry keeps it under its digest, for runs that need it; the new one has another digest."""
    await publish(store)
    found = (await RegistrySource(store, clock, 5.0).desired_packages())[KEY]
    newer = build_zip(FILES | {"package.toml": FILES["package.toml"].replace(b"1.2.0", b"1.3.0")})
    await publish(store, newer, version="1.3.0")
    assert (await found.read()).title.startswith("market 1.2.0")


class Notifications:
    """A store's `listen`, which fails a number of times."""

    def __init__(self, store: MemoryStore, failures: int = 0) -> None:
        self.failures = failures
        self.listeners: list[Callable[[], None]] = []
        store.listen = self.listen

    async def listen(self, on_change: Callable[[], None], topic: str | None = None) -> None:
        assert topic == "packages"
        if self.failures:
            self.failures -= 1
            raise StoreError("cannot listen")
        self.listeners.append(on_change)


async def turns(number: int = 10) -> None:
    """Let everybody have their turn."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_changes_are_notified_and_polled_for(store: MemoryStore, clock: VirtualClock) -> None:
    """A wake-up is only a hint: without one it is looked after the interval."""
    notifications = Notifications(store)
    source = RegistrySource(store, clock, 5.0)
    async with asyncio.TaskGroup() as group:
        for wake in (lambda: notifications.listeners[0](), lambda: clock.advance_to(clock.monotonic() + 5.0)):
            task = group.create_task(source.wait_for_change())
            await turns()
            clock.advance_to(clock.monotonic() + 4.9)
            await turns()
            assert not task.done()
            wake()
            await turns()
            assert task.done()
    assert len(notifications.listeners) == 1
    notifications.listeners[0]()
    async with asyncio.timeout(10):
        await source.wait_for_change()  # told before anybody waited: not lost


async def test_a_failed_subscription_is_retried(store: MemoryStore, clock: VirtualClock) -> None:
    """A waiting caller gets the error, and tries again."""
    notifications = Notifications(store, failures=1)
    source = RegistrySource(store, clock, 5.0)
    with pytest.raises(StoreError):
        await source.wait_for_change()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(source.wait_for_change())
        await turns()
        notifications.listeners[0]()
        await task
    assert len(notifications.listeners) == 1
