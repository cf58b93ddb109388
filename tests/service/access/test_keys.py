"""API keys: created, used, restricted, expired and revoked."""

import asyncio

import pytest

import tidemill as tm
from tests.service.access.principals import admin_of
from tidemill.access.principal import Permission, Principal, Resource, Role
from tidemill.engine.access.keys import CACHE_SECONDS
from tidemill.engine.access.services import LOCAL_PRINCIPAL, AccessServices
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.settings import Settings
from tidemill.storage.store import Store
from tidemill.storage.tables.access import AuditFilter

DAY = 86400.0
PATIENCE = 20.0  # seconds until a test gives up


async def refusal(access: AccessServices, token: str) -> str:
    """Return the code with which a token is refused."""
    with pytest.raises(tm.RequestError) as caught:
        await access.keys.authenticate(token)
    assert caught.value.status == 401
    return caught.value.code


async def test_a_key_authenticates_its_principal(access: AccessServices) -> None:
    """S-4: a token has 256 bits, and its id is visible."""
    key, token = await access.keys.create(LOCAL_PRINCIPAL, Role.READ)
    assert token.startswith(f"tm_{key.id}_")
    assert len(token.removeprefix(f"tm_{key.id}_")) == 43
    principal = await access.keys.authenticate(token)
    assert principal == Principal(tenant="public", role=Role.READ, actor=f"key:{key.id}", credential=f"key:{key.id}")


async def test_a_store_keeps_no_token(access: AccessServices, store: Store) -> None:
    """S-4: only the digest is stored, and no list shows a secret."""
    key, token = await access.keys.create(LOCAL_PRINCIPAL, Role.READ)
    secret = token.rpartition("_")[2]
    stored = await store.api_keys.find(key.id)
    entries = await store.audit_entries.find(AuditFilter(tenant="public"))
    assert secret not in repr((stored, entries, await access.keys.list_for(LOCAL_PRINCIPAL)))
    assert secret.encode() not in (stored.digest if stored else b"")


@pytest.mark.parametrize("change", ["swapped", "shorter", "longer", "other id", "empty", "scheme", "blank", "unicode"])
async def test_a_token_that_was_not_given_is_refused(access: AccessServices, change: str) -> None:
    """S-4, fault 92."""
    key, token = await access.keys.create(LOCAL_PRINCIPAL, Role.READ)
    forged = {
        "swapped": token[:-1] + ("a" if token[-1] != "a" else "b"),
        "shorter": token[:-1],
        "longer": token + "a",
        "other id": token.replace(key.id, "00000000"),
        "empty": "",
        "scheme": token.replace("tm_", "tm-"),
        "blank": f" {token}",
        "unicode": token[:-1] + "\udc80",
    }
    assert await refusal(access, forged[change]) == "invalid_key"


async def test_a_key_expires(access: AccessServices, clock: VirtualClock) -> None:
    """S-4."""
    token = (await access.keys.create(LOCAL_PRINCIPAL, Role.READ, lifetime=DAY)).token
    clock.advance_to(DAY - 1)
    await access.keys.authenticate(token)
    clock.advance_to(DAY)
    assert await refusal(access, token) == "key_expired"


async def test_a_key_is_revoked_at_once(access: AccessServices) -> None:
    """S-4: the process that revokes it does not wait for its cache."""
    key, token = await access.keys.create(LOCAL_PRINCIPAL, Role.READ)
    await access.keys.authenticate(token)
    await access.keys.revoke(LOCAL_PRINCIPAL, key.id)
    assert await refusal(access, token) == "key_revoked"


async def test_a_revocation_reaches_other_servers_within_a_second(
    access: AccessServices, store: Store, clock: VirtualClock
) -> None:
    """S-4: also where no notification arrives."""
    other = AccessServices(store, clock, Settings())
    key, token = await access.keys.create(LOCAL_PRINCIPAL, Role.READ)
    await other.keys.authenticate(token)
    await access.keys.revoke(LOCAL_PRINCIPAL, key.id)
    clock.advance_to(CACHE_SECONDS)
    assert await refusal(other, token) == "key_revoked"


async def test_the_last_use_is_accurate_to_a_minute(access: AccessServices, clock: VirtualClock) -> None:
    """S-4: a key in constant use costs one write a minute."""
    token = (await access.keys.create(LOCAL_PRINCIPAL, Role.READ)).token
    uses = []
    for second in (0, 30, 59, 61, 100):
        clock.advance_to(second)
        await access.keys.authenticate(token)
        [key] = await access.keys.list_for(LOCAL_PRINCIPAL)
        assert key.last_used_at is not None
        uses.append((key.last_used_at - key.created_at).total_seconds())
    assert uses == [0, 0, 0, 61, 61]


async def test_a_restricted_key_reaches_its_endpoints_only(access: AccessServices) -> None:
    """S-4: a producer that pushes to one accumulator."""
    created = await access.keys.create(LOCAL_PRINCIPAL, Role.ADMIN, only=["accumulators:orderbook"])
    principal = await access.keys.authenticate(created.token)
    assert principal.has(Permission.WRITE, Resource("accumulators", "orderbook"))
    assert not principal.has(Permission.WRITE, Resource("accumulators", "other"))
    assert not principal.has(Permission.READ)
    assert not principal.is_instance_admin


@pytest.mark.parametrize("text", ["orderbook", "acumulators:orderbook", "accumulators:", "accumulators:a/b", ":x"])
async def test_a_restriction_that_names_nothing_is_refused(access: AccessServices, text: str) -> None:
    with pytest.raises(tm.RequestError, match="a key is restricted to 'accumulators:NAME'") as caught:
        await access.keys.create(LOCAL_PRINCIPAL, Role.READ, only=[text])
    assert caught.value.code == "invalid_resource"


async def test_tenants_do_not_see_the_keys_of_others(access: AccessServices) -> None:
    """S-5: a key of another tenant is unknown, not forbidden."""
    acme, beta = await admin_of(access, "acme"), await admin_of(access, "beta")
    [key] = await access.keys.list_for(acme)
    with pytest.raises(tm.RequestError) as caught:
        await access.keys.revoke(beta, key.id)
    assert (caught.value.code, caught.value.status) == ("key_not_found", 404)
    with pytest.raises(tm.RequestError) as caught:
        await access.keys.create(beta, Role.READ, tenant="acme")
    assert (caught.value.code, caught.value.status) == ("not_allowed", 403)
    await access.keys.revoke(LOCAL_PRINCIPAL, key.id)


async def test_every_change_of_a_key_is_in_the_audit_log_of_its_tenant(access: AccessServices) -> None:
    """S-7."""
    acme = await admin_of(access, "acme")
    key, _ = await access.keys.create(acme, Role.READ)
    await access.keys.revoke(acme, key.id)
    entries, total = await access.audit.find(AuditFilter(tenant="acme"))
    assert [(one.action, one.actor) for one in entries] == [
        ("key.revoke", acme.actor),
        ("key.create", acme.actor),
        ("key.create", "local"),
    ]
    assert total == 3


async def test_an_open_connection_ends_with_its_key(access: AccessServices, clock: VirtualClock) -> None:
    """S-4: revoked keys in open connections."""
    key, token = await access.keys.create(LOCAL_PRINCIPAL, Role.READ, lifetime=DAY)
    other, _ = await access.keys.create(LOCAL_PRINCIPAL, Role.READ)
    principal = await access.keys.authenticate(token)
    ended: list[str] = []
    revoked = asyncio.Event()
    assert principal.credential is not None
    unsubscribe = access.watch.subscribe(principal.credential, lambda: ended.append("gone"))
    access.watch.subscribe(principal.credential, revoked.set)
    access.watch.subscribe(f"key:{other.id}", lambda: ended.append("other"))
    unsubscribe()
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(PATIENCE):
        watching = tasks.create_task(access.watch.run(), name="watch")
        await access.keys.revoke(LOCAL_PRINCIPAL, key.id)
        access.watch.check_soon()
        await revoked.wait()
        watching.cancel()
    assert ended == []
