"""Tenants, API keys and audit entries on every database."""

import asyncio

import pytest

from tests.contract.access_samples import api_key, audit_entry, tenant
from tests.contract.conftest import ContractDatabase, SqliteFile
from tests.contract.package_samples import package, trusted
from tests.contract.run_samples import after
from tests.contract.samples import NOON, NOON_ELSEWHERE, NOON_NOWHERE, ODD_NAMES
from tidemill.access.principal import Role
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.storage.tables.access import AuditFilter, StoredKey
from tidemill.testing.faults.stores import fail_next

DIGEST = bytes(range(32))


async def test_the_tenant_public_exists_from_the_beginning(store: Store) -> None:
    """S-5."""
    assert [one.name for one in await store.tenants.list_all()] == ["public"]


async def test_tenants_are_listed_by_name(store: Store) -> None:
    """S-5."""
    added = [tenant(name, created_at=NOON_ELSEWHERE) for name in ("zeta", "acme", "naïve 名前")]
    assert all([await store.tenants.add(one) for one in added])
    assert [one.name for one in await store.tenants.list_all()] == ["acme", "naïve 名前", "public", "zeta"]
    assert await store.tenants.get("acme") == tenant()
    assert await store.tenants.get("unknown") is None


async def test_one_of_several_creates_a_tenant(store: Store) -> None:
    """S-5."""
    added = await asyncio.gather(*(store.tenants.add(tenant(created_by=f"key:{number}")) for number in range(5)))
    assert sorted(added) == [False] * 4 + [True]


async def test_a_deleted_tenant_leaves_nothing_behind(store: Store) -> None:
    """S-5: a later tenant of the same name does not find the rows of the earlier one."""
    for name in ("acme", "beta"):
        await store.tenants.add(tenant(name))
        await store.api_keys.add(api_key(f"k-{name}", tenant=name), DIGEST)
        await store.trusted_keys.add(trusted(tenant=name))
        await store.packages.publish(package(tenant=name), b"archive", 0)
        await store.schedules.pause(name, "flow")
        await store.pauses.set_paused(name, "market", paused=True)
    assert await store.tenants.delete("acme")
    assert not await store.tenants.delete("acme")
    assert [one.name for one in await store.tenants.list_all()] == ["beta", "public"]
    assert await store.api_keys.find("k-acme") is None
    assert [one.tenant for one in await store.packages.list_published()] == ["beta"]
    assert await store.packages.recorded_version("acme", package().name) is None
    assert await store.trusted_keys.for_tenant("acme") == []
    assert await store.schedules.list_paused_workflows() == {("beta", "flow")}
    assert await store.pauses.list_paused() == [("beta", "market")]


async def test_keys_are_found_with_their_digests(store: Store) -> None:
    """S-4."""
    keys = [
        api_key("k0000001", created_at=after(5)),
        api_key("k0000002", only=None, role=Role.ADMIN, expires_at=after(60), label="naïve 名前 🌊"),
        api_key("k0000003", tenant="other", only=frozenset()),
    ]
    for one in keys:
        await store.api_keys.add(one, DIGEST)
    for one in keys:
        assert await store.api_keys.find(one.id) == StoredKey(one, DIGEST)
    assert await store.api_keys.for_tenant("acme") == [keys[1], keys[0]]
    assert await store.api_keys.find("unknown") is None


async def test_an_id_is_given_once(store: Store) -> None:
    """S-4: no key takes the place of another."""
    await store.api_keys.add(api_key(), DIGEST)
    with pytest.raises(StoreError):
        await store.api_keys.add(api_key(tenant="other"), bytes(32))
    assert await store.api_keys.find(api_key().id) == StoredKey(api_key(), DIGEST)


async def test_a_revoked_key_stays_revoked_since_the_first_time(store: Store) -> None:
    """S-4."""
    await store.api_keys.add(api_key(), DIGEST)
    assert not await store.api_keys.revoke("other", api_key().id, NOON)
    assert await store.api_keys.revoke("acme", api_key().id, after(1))
    assert await store.api_keys.revoke("acme", api_key().id, after(2))
    assert await store.api_keys.for_tenant("acme") == [api_key(revoked_at=after(1))]


async def test_the_last_use_of_a_key_never_goes_back(store: Store) -> None:
    """S-4."""
    await store.api_keys.add(api_key(), DIGEST)
    for seconds in (5, 3):
        await store.api_keys.record_uses({api_key().id: after(seconds), "unknown": NOON})
    assert await store.api_keys.for_tenant("acme") == [api_key(last_used_at=after(5))]


async def test_audit_entries_are_read_newest_first_and_page_by_page(store: Store) -> None:
    """S-7."""
    entries = [audit_entry(f"e{number}", at=after(number), details={"n": number}) for number in range(5)]
    for one in [*entries, audit_entry("other", tenant="other")]:
        await store.audit_entries.append(one)
    first = await store.audit_entries.find(AuditFilter(tenant="acme", limit=3))
    assert first == entries[:1:-1]
    assert await store.audit_entries.find(AuditFilter(tenant="acme", before=first[-1].id)) == entries[1::-1]
    assert await store.audit_entries.count(AuditFilter(tenant="acme", before="e3", limit=1)) == 5


async def test_audit_entries_are_selected(store: Store) -> None:
    """S-7."""
    for number, name in enumerate(ODD_NAMES):
        await store.audit_entries.append(audit_entry(f"e{number}", actor=name, action="a", target=name))
    for number, name in enumerate(ODD_NAMES):
        for field in ("actor", "target"):
            found = await store.audit_entries.find(AuditFilter(tenant="acme", action="a", **{field: name}))
            assert [one.id for one in found] == [f"e{number}"]
    assert await store.audit_entries.count(AuditFilter(tenant="acme", action="b")) == 0


async def test_the_oldest_audit_entries_are_pruned(store: Store) -> None:
    """S-7: the log is kept as long as runs are."""
    for number in range(5):
        await store.audit_entries.append(audit_entry(f"e{number}", at=after(number)))
    await store.audit_entries.append(audit_entry("other", tenant="other"))
    assert await store.audit_entries.prune("acme", after(4), 3) == 3
    assert await store.audit_entries.prune("acme", after(4), 3) == 1
    assert [one.id for one in await store.audit_entries.find(AuditFilter(tenant="acme"))] == ["e4"]
    assert await store.audit_entries.count(AuditFilter(tenant="other")) == 1
    assert await store.audit_entries.list_tenants() == ["acme", "other"]


async def test_a_failed_write_changes_nothing(store: Store) -> None:
    fail_next(store, 1)
    with pytest.raises(StoreError, match="on purpose"):
        await store.tenants.add(tenant())
    with pytest.raises(ValueError, match="without a zone"):
        await store.api_keys.add(api_key(created_at=NOON_NOWHERE), DIGEST)
    assert await store.tenants.get("acme") is None
    assert await store.api_keys.for_tenant("acme") == []


async def test_tenants_of_version_8_continue_to_exist(database: ContractDatabase) -> None:
    """S-5: those that own something."""
    table = "trusted_keys" if isinstance(database, SqliteFile) else "tidemill.trusted_keys"
    at = 0 if isinstance(database, SqliteFile) else "1970-01-01T00:00:00Z"
    await database.make_older(8, f"INSERT INTO {table} (tenant, id, text, at) VALUES ('acme', 'k', 'text', '{at}');")
    store = database.store()
    await store.open()
    assert [one.name for one in await store.tenants.list_all()] == ["acme", "public"]
    await store.close()
