"""Tenants: created, listed, acted for, and deleted."""

import pytest

import tidemill as tm
from tests.contract.package_samples import package
from tests.contract.run_samples import creation, run_row
from tests.service.access.principals import admin_of
from tidemill.access.principal import Role
from tidemill.engine.access.services import LOCAL_PRINCIPAL, AccessServices
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.settings import Settings
from tidemill.storage.store import Store
from tidemill.storage.tables.access import AuditFilter


async def test_an_admin_of_the_instance_sees_every_tenant_and_others_their_own(access: AccessServices) -> None:
    """S-5."""
    acme = await admin_of(access, "acme")
    await admin_of(access, "beta")
    assert [one.name for one in await access.tenants.list_for(LOCAL_PRINCIPAL)] == ["acme", "beta", "public"]
    assert [one.name for one in await access.tenants.list_for(acme)] == ["acme"]


async def test_an_admin_of_the_instance_acts_for_every_tenant(access: AccessServices) -> None:
    """S-5: by the header Tidemill-Tenant; what it does there is recorded under its own name."""
    acme = await admin_of(access, "acme")
    acting = await access.tenants.act_for(LOCAL_PRINCIPAL, "acme")
    assert (acting.tenant, acting.role, acting.actor) == ("acme", Role.ADMIN, "local")
    assert await access.tenants.act_for(acme, "acme") == acme
    with pytest.raises(tm.RequestError) as caught:
        await access.tenants.act_for(acme, "public")
    assert (caught.value.code, caught.value.status) == ("not_allowed", 403)
    with pytest.raises(tm.RequestError, match="did you mean 'acme'") as caught:
        await access.keys.create(LOCAL_PRINCIPAL, Role.READ, tenant="acne")
    assert (caught.value.code, caught.value.status) == ("tenant_not_found", 404)


async def test_a_tenant_learns_nothing_about_the_names_of_others(access: AccessServices) -> None:
    """S-5: the answer is the same for a tenant that exists and for one that does not."""
    acme = await admin_of(access, "acme")
    await admin_of(access, "beta")
    texts = []
    for name in ("beta", "zeta"):
        with pytest.raises(tm.RequestError) as caught:
            await access.tenants.act_for(acme, name)
        texts.append(str(caught.value).replace(name, "NAME"))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["", "a/b", " a", "a\n", "a" * 201])
async def test_a_tenant_has_a_name(access: AccessServices, name: str) -> None:
    with pytest.raises(tm.RequestError, match="a tenant's name is") as caught:
        await access.tenants.create(LOCAL_PRINCIPAL, name)
    assert caught.value.code == "invalid_tenant"


async def test_a_name_is_given_once(access: AccessServices) -> None:
    await access.tenants.create(LOCAL_PRINCIPAL, "acme")
    with pytest.raises(tm.RequestError) as caught:
        await access.tenants.create(LOCAL_PRINCIPAL, "acme")
    assert (caught.value.code, caught.value.status) == ("tenant_exists", 409)


async def test_a_tenant_in_use_is_not_deleted(access: AccessServices, store: Store) -> None:
    """S-5: while it has packages or active runs."""
    acme = await admin_of(access, "acme")
    await store.packages.publish(package(tenant="acme"), b"archive", 0)
    with pytest.raises(tm.RequestError, match="unload its packages first: market") as caught:
        await access.tenants.delete(LOCAL_PRINCIPAL, "acme")
    assert (caught.value.code, caught.value.status) == ("tenant_in_use", 409)
    await store.packages.withdraw("acme", "market")
    await store.runs.apply(creation(run_row("r1", tenant="acme")))
    with pytest.raises(tm.RequestError, match="wait for its active runs, or cancel them: r1"):
        await access.tenants.delete(LOCAL_PRINCIPAL, "acme")
    with pytest.raises(tm.RequestError, match="it cannot be deleted"):
        await access.tenants.delete(LOCAL_PRINCIPAL, "public")
    assert await access.keys.list_for(acme)


async def test_a_deleted_tenant_takes_its_keys_with_it(access: AccessServices) -> None:
    """S-5."""
    acme = await admin_of(access, "acme")
    await access.tenants.delete(LOCAL_PRINCIPAL, "acme")
    assert await access.keys.list_for(acme) == []
    entries, _ = await access.audit.find(AuditFilter(tenant="public"))
    assert [one.action for one in entries] == ["tenant.delete", "tenant.create"]


async def test_the_audit_log_is_kept_as_long_as_the_retention_says(access: AccessServices, clock: VirtualClock) -> None:
    """S-7: also the entries of tenants that are deleted."""
    await admin_of(access, "acme")
    await access.tenants.delete(LOCAL_PRINCIPAL, "acme")
    assert await access.audit.prune() == 0
    clock.advance_to(Settings().audit_retention + 1)
    await access.tenants.create(LOCAL_PRINCIPAL, "beta")
    assert await access.audit.prune() == 3
    entries, _ = await access.audit.find(AuditFilter(tenant="public"))
    assert [(one.action, one.target) for one in entries] == [("tenant.create", "beta")]
