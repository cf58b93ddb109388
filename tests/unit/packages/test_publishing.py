"""Publishing: which packages a registry accepts."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.packages.package_samples import FILES, folder_of, zipped
from tidemill.kernel.clock import DEFAULT_START, VirtualClock
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.packages.format.archive import PackageContents, archive_digest, parse_archive, read_folder
from tidemill.packages.format.private_key import generate_key
from tidemill.packages.format.signature import TrustPolicy, sign
from tidemill.packages.format.zip_format import build_zip
from tidemill.packages.publishing import PUBLISH_ATTEMPT_LIMIT, Publisher
from tidemill.storage.sqlite.memory import MemoryStore
from tidemill.storage.tables.packages import PublishedPackage, TrustedKey

ALICE = generate_key("alice")


def package(version: str = "1.2.0", files: Mapping[str, bytes] = FILES, more: bytes = b"") -> PackageContents:
    """Return an archive of that version."""
    manifest = files["package.toml"].replace(b"1.2.0", version.encode()) + more
    return parse_archive(build_zip({**files, "package.toml": manifest}), "market.tidemill")


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """A store that is open."""
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


def publisher(store: MemoryStore, **policy: bool) -> Publisher:
    """Return one that publishes in a store."""
    return Publisher(store.packages, TrustPolicy(store.trusted_keys, **policy), VirtualClock())


async def code_of(publishing: Publisher, contents: PackageContents, **options: bool) -> str:
    """Return the code with which a package is refused."""
    with pytest.raises(RequestError) as caught:
        await publishing.publish(contents, "acme", **options)
    return caught.value.code


@pytest.mark.parametrize("tenant", ["", "a/b", "a\nb", "a" * 300])
async def test_a_tenant_that_no_node_could_have_is_refused(store: MemoryStore, tenant: str) -> None:
    """As by the node itself; nor is anything signed for it."""
    with pytest.raises(RequestError, match="a tenant's name is"):
        await publisher(store).publish(package(), tenant)
    with pytest.raises(RequestError, match="a tenant's name is"):
        sign(package(), ALICE, tenant=tenant)
    assert await store.packages.list_published() == []


async def test_what_is_published_is_in_the_registry(store: MemoryStore) -> None:
    """With its archive as it was given."""
    contents = package()
    published = await publisher(store).publish(contents, "acme")
    assert published == PublishedPackage(
        tenant="acme",
        name="market",
        version="1.2.0",
        digest=archive_digest(contents.raw or b""),
        size=len(contents.raw or b""),
        at=DEFAULT_START,
        revision=1,
    )
    assert await store.packages.list_published() == [published]
    assert await store.packages.read_archive("acme", "market", published.digest) == contents.raw


async def test_a_folder_is_packed(store: MemoryStore, tmp_path: Path) -> None:
    """It is the same package as its archive."""
    published = await publisher(store).publish(read_folder(folder_of(tmp_path)), "acme")
    assert await store.packages.read_archive("acme", "market", published.digest) == build_zip(FILES)


async def test_the_same_again_changes_nothing(store: MemoryStore) -> None:
    """A publisher that is not sure whether it worked does it again."""
    first = await publisher(store).publish(package(), "acme")
    assert await publisher(store).publish(package(), "acme") == first
    assert (await publisher(store).publish(package(), "other")).tenant == "other"
    assert [one.revision for one in await store.packages.list_published()] == [1, 1]


async def test_other_files_need_another_version(store: MemoryStore) -> None:
    """What a version is does not change; also with --allow-downgrade."""
    await publisher(store).publish(package(), "acme")
    other = package(files=FILES | {"market/graphs.py": b"x = 1\n"})
    assert await code_of(publisher(store), other) == "version_taken"
    assert await code_of(publisher(store), other, allow_downgrade=True) == "version_taken"
    await publisher(store).publish(other, "other")
    assert len(await store.packages.list_published()) == 2


async def test_the_same_files_may_be_signed_anew(store: MemoryStore) -> None:
    """P-9: as a signature that is over tells its owner to do; also if they come in another wrapping."""
    await publisher(store).publish(parse_archive(zipped(dict(sorted(FILES.items()))), "other.tidemill"), "acme")
    signed = sign(package(), ALICE, not_after=DEFAULT_START + timedelta(days=1))
    published = await publisher(store).publish(signed, "acme")
    assert published.revision == 2
    assert await store.packages.read_archive("acme", "market", published.digest) == signed.to_archive()


async def test_an_older_version_is_refused_unless_it_is_wanted(store: MemoryStore) -> None:
    """P-9: no rollback below a recorded version without --allow-downgrade, also if nothing is published any more."""
    publishing = publisher(store)
    await publishing.publish(package("1.10.0"), "acme")
    with pytest.raises(RequestError, match=r"1\.9\.0 is older than 1\.10\.0, .*--allow-downgrade") as caught:
        await publishing.publish(package("1.9.0"), "acme")
    assert (caught.value.code, caught.value.status) == ("downgrade", 409)
    assert await code_of(publishing, package("1.10.0rc1")) == "downgrade"
    await publishing.withdraw("acme", "market")
    assert await code_of(publishing, package("1.9.0")) == "downgrade"
    await publishing.publish(package("1.9.0"), "other")
    await publishing.publish(package("1.9.0"), "acme", allow_downgrade=True)
    await publishing.publish(package("1.9.1"), "acme")  # what was gone back to is the new beginning
    assert await store.packages.recorded_version("acme", "market") == "1.9.1"


async def test_what_cannot_run_here_is_refused(store: MemoryStore) -> None:
    """With what it requires."""
    assert await code_of(publisher(store), package(more=b'requires-tidemill = ">=99"\n')) == "unmet_requirement"
    assert await store.packages.list_published() == []


async def test_signatures_are_checked_before_anything_is_written(store: MemoryStore) -> None:
    """P-9: keys are those of the tenant."""
    strict = publisher(store, required=True)
    signed = sign(package(), ALICE)
    assert await code_of(strict, package()) == "unsigned_package"
    assert await code_of(strict, signed) == "unknown_key"
    key = ALICE.public
    await store.trusted_keys.add(TrustedKey(tenant="acme", id=key.id, text=str(key), at=DEFAULT_START))
    assert await code_of(strict, sign(package(), ALICE, tenant="other")) == "wrong_tenant"
    assert await store.packages.list_published() == []
    assert (await strict.publish(signed, "acme")).version == "1.2.0"
    with pytest.raises(RequestError, match="not trusted"):
        await strict.publish(signed, "other")


async def test_a_withdrawn_package_is_gone(store: MemoryStore) -> None:
    """And one that is not there is reported, with what may be meant."""
    publishing = publisher(store)
    await publishing.publish(package(), "acme")
    with pytest.raises(RequestError, match=r"no package 'markt' .* 'acme' \(did you mean 'market'\?\)") as caught:
        await publishing.withdraw("acme", "markt")
    assert (caught.value.code, caught.value.status) == ("package_not_found", 404)
    with pytest.raises(RequestError):
        await publishing.withdraw("other", "market")
    await publishing.withdraw("acme", "market")
    assert await store.packages.list_published() == []


async def test_of_several_at_once_the_newest_wins(store: MemoryStore) -> None:
    """No publisher overwrites what it has not seen: one that comes too late is judged anew."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(tried(publisher(store), package(f"1.{minor}.0"))) for minor in (3, 9, 1, 7, 5)]
    assert [one.version for one in await store.packages.list_published()] == ["1.9.0"]
    assert {task.result() for task in tasks} <= {"", "downgrade"}


async def tried(publishing: Publisher, contents: PackageContents, **options: bool) -> str:
    """Publish a package, and return the code if it is refused."""
    try:
        await publishing.publish(contents, "acme", **options)
    except RequestError as error:
        return error.code
    return ""


async def test_a_race_that_never_ends_is_reported(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not tried without end."""
    tries = 0

    async def refuse(*_: object, **__: object) -> bool:
        nonlocal tries
        tries += 1
        return False

    monkeypatch.setattr(store.packages, "publish", refuse)
    with pytest.raises(OperationError, match="by other processes all the time: retry"):
        await publisher(store).publish(package(), "acme")
    assert tries == PUBLISH_ATTEMPT_LIMIT


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()) | st.none(), max_size=12))
def test_the_registry_never_goes_back_by_itself(steps: list[tuple[int, int, bool] | None]) -> None:
    """P-9: whatever is published and withdrawn, a lower version needs the flag, and what is wanted has one content."""

    async def play() -> None:
        store = MemoryStore()
        await store.open()
        recorded: int | None = None
        held: tuple[int, int] | None = None
        for step in steps:
            if step is None:
                assert await store.packages.withdraw("acme", "market") == (held is not None)
                held = None
                continue
            minor, content, flag = step
            contents = package(f"1.{minor}.0", files=FILES | {"market/graphs.py": b"x" * content})
            refusal = ""
            if held is not None and held[0] == minor and held[1] != content:
                refusal = "version_taken"
            elif recorded is not None and minor < recorded and not flag:
                refusal = "downgrade"
            assert await tried(publisher(store), contents, allow_downgrade=flag) == refusal
            if not refusal:
                recorded, held = minor, (minor, content)
            wanted = [] if held is None else [f"1.{held[0]}.0"]
            assert [one.version for one in await store.packages.list_published()] == wanted
        await store.close()

    asyncio.run(play())
