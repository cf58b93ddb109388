"""Accounts, sessions and tickets: people sign in, stay signed in for a while, and open connections."""

import asyncio
from datetime import timedelta

import pytest

import tidemill as tm
from tests.service.access.principals import admin_of
from tidemill.access.principal import Principal, Role
from tidemill.access.tokens import IDLE_LIFETIME, LIFETIME, TICKET_LIFETIME
from tidemill.engine.access.accounts import FAILURE_LIMIT, LOCK_TIME
from tidemill.engine.access.services import LOCAL_PRINCIPAL, AccessServices
from tidemill.kernel.clock import VirtualClock
from tidemill.storage.sqlite.memory import MemoryStore

PASSWORD = "correct horse battery"


async def login_refusal(access: AccessServices, name: str, password: str, tenant: str = "public") -> str:
    """Return the text with which an attempt to sign in is refused."""
    with pytest.raises(tm.RequestError) as caught:
        await access.accounts.sign_in(name, password, tenant)
    assert (caught.value.code, caught.value.status) == ("invalid_login", 401)
    return str(caught.value)


async def test_an_account_signs_in_with_its_password(access: AccessServices, store: MemoryStore) -> None:
    """S-4: the store keeps a salted hash."""
    for name in ("ada", "zoe"):
        await access.accounts.create(LOCAL_PRINCIPAL, name, Role.WRITE, PASSWORD)
    principal = await access.accounts.sign_in("ada", PASSWORD)
    assert principal == Principal(tenant="public", role=Role.WRITE, actor="account:ada")
    hashes = [one for (one,) in store.database.connection.execute("SELECT password_hash FROM accounts")]
    assert len(set(hashes)) == 2
    assert all(one.startswith("scrypt$32768$8$1$") and PASSWORD not in one for one in hashes)


async def test_an_error_does_not_say_which_accounts_exist(access: AccessServices) -> None:
    """Fault 92: a wrong password, an unknown account, another tenant and a locked account get the same answer."""
    await access.accounts.create(LOCAL_PRINCIPAL, "ada", Role.READ, PASSWORD)
    texts = {await login_refusal(access, name, "wrong") for name in ("ada", "bob", "", "a\0b", "\udc80")}
    texts |= {await login_refusal(access, "ada", PASSWORD, tenant="acme")}
    for _ in range(FAILURE_LIMIT):
        texts |= {await login_refusal(access, "ada", "wrong")}
    texts |= {await login_refusal(access, "ada", PASSWORD)}
    assert len(texts) == 1


async def test_failures_lock_an_account_for_a_while(access: AccessServices, clock: VirtualClock) -> None:
    """Fault 92: also those that are made at the same time; one more guess a minute is left."""
    await access.accounts.create(LOCAL_PRINCIPAL, "ada", Role.READ, PASSWORD)
    await asyncio.gather(*(login_refusal(access, "ada", "wrong") for _ in range(FAILURE_LIMIT)))
    await login_refusal(access, "ada", PASSWORD)
    clock.advance_to(LOCK_TIME.total_seconds())
    await login_refusal(access, "ada", "wrong")
    await login_refusal(access, "ada", PASSWORD)
    clock.advance_to(2 * LOCK_TIME.total_seconds())
    await access.accounts.sign_in("ada", PASSWORD)
    [account] = await access.accounts.list_for(LOCAL_PRINCIPAL)
    assert (account.failures, account.locked_until) == (0, None)


@pytest.mark.parametrize("password", ["", "short", "x" * 11, "x" * 1025])
async def test_a_password_has_a_sensible_length(access: AccessServices, password: str) -> None:
    with pytest.raises(tm.RequestError, match="a password has 12 to 1024 characters") as caught:
        await access.accounts.create(LOCAL_PRINCIPAL, "ada", Role.READ, password)
    assert caught.value.code == "invalid_password"
    assert password not in str(caught.value) or not password


async def test_accounts_belong_to_a_tenant(access: AccessServices) -> None:
    """S-5: two tenants may use the same name."""
    acme = await admin_of(access, "acme")
    await access.accounts.create(acme, "ada", Role.READ, PASSWORD)
    await access.accounts.create(LOCAL_PRINCIPAL, "ada", Role.ADMIN, PASSWORD)
    with pytest.raises(tm.RequestError) as caught:
        await access.accounts.create(acme, "ada", Role.READ, PASSWORD)
    assert (caught.value.code, caught.value.status) == ("account_exists", 409)
    assert (await access.accounts.sign_in("ada", PASSWORD, "acme")).tenant == "acme"
    await access.accounts.delete(acme, "ada")
    with pytest.raises(tm.RequestError) as caught:
        await access.accounts.delete(acme, "ada")
    assert (caught.value.code, caught.value.status) == ("account_not_found", 404)
    assert (await access.accounts.sign_in("ada", PASSWORD)).role is Role.ADMIN


async def test_a_new_password_unlocks_an_account_and_ends_its_sessions(access: AccessServices) -> None:
    """And so does a new role; the old password is wrong from then on."""
    await access.accounts.create(LOCAL_PRINCIPAL, "ada", Role.READ, PASSWORD)
    _, token = await access.sessions.open(await access.accounts.sign_in("ada", PASSWORD))
    assert (await access.accounts.change(LOCAL_PRINCIPAL, "ada", role=Role.WRITE)).role is Role.WRITE
    assert await session_refusal(access, token) == "session_ended"
    for _ in range(5):
        with pytest.raises(tm.RequestError):
            await access.accounts.sign_in("ada", "not the password")
    other = f"{PASSWORD} of today"
    await access.accounts.change(LOCAL_PRINCIPAL, "ada", password=other)
    assert (await access.accounts.sign_in("ada", other)).role is Role.WRITE
    with pytest.raises(tm.RequestError) as caught:
        await access.accounts.sign_in("ada", PASSWORD)
    assert caught.value.code == "invalid_login"
    with pytest.raises(tm.RequestError) as caught:
        await access.accounts.change(LOCAL_PRINCIPAL, "adda", role=Role.READ)
    assert caught.value.code == "account_not_found"


async def session_refusal(access: AccessServices, token: str) -> str:
    """Return the code with which a session is refused."""
    with pytest.raises(tm.RequestError) as caught:
        await access.sessions.authenticate(token)
    return caught.value.code


async def test_a_session_ends_when_it_is_closed_or_its_account_is_deleted(access: AccessServices) -> None:
    """S-4."""
    await access.accounts.create(LOCAL_PRINCIPAL, "ada", Role.WRITE, PASSWORD)
    ada = await access.accounts.sign_in("ada", PASSWORD)
    (closed, token), (deleted, other) = await access.sessions.open(ada), await access.sessions.open(ada)
    principal = await access.sessions.authenticate(token)
    assert (principal.actor, principal.credential) == ("account:ada", f"session:{closed.id}")
    await access.sessions.close(principal)
    assert await session_refusal(access, token) == "session_ended"
    await access.sessions.authenticate(other)
    assert await access.is_valid(f"session:{deleted.id}")
    await access.accounts.delete(LOCAL_PRINCIPAL, "ada")
    assert await session_refusal(access, other) == "session_ended"
    assert not await access.is_valid(f"session:{deleted.id}")
    assert await session_refusal(access, "forged") == "session_ended"


async def test_a_session_ends_when_it_is_idle_or_old(access: AccessServices, clock: VirtualClock) -> None:
    """S-4: idle for 12 hours, or a week old."""
    hour = timedelta(hours=1)
    idle, busy = await access.sessions.open(LOCAL_PRINCIPAL), await access.sessions.open(LOCAL_PRINCIPAL)
    age = timedelta()
    while age + hour < LIFETIME:
        age += hour
        clock.advance_to(age.total_seconds())
        await access.sessions.authenticate(busy.token)
        if age == IDLE_LIFETIME:
            assert await session_refusal(access, idle.token) == "session_ended"
    clock.advance_to(LIFETIME.total_seconds())
    assert await session_refusal(access, busy.token) == "session_ended"
    assert await access.sessions.prune() == 1


async def ticket_refusal(access: AccessServices, token: str, endpoint: str) -> str:
    """Return the code with which a ticket is refused."""
    with pytest.raises(tm.RequestError) as caught:
        await access.tickets.redeem(token, endpoint)
    return caught.value.code


async def test_a_ticket_is_for_one_connection_to_one_endpoint(access: AccessServices, clock: VirtualClock) -> None:
    """S-3: single use, 60 seconds."""
    endpoint = "/ws/accumulators/orderbook"
    tokens = [(await access.tickets.issue(LOCAL_PRINCIPAL, endpoint)).token for _ in range(3)]
    assert await access.tickets.redeem(tokens[0], endpoint) == LOCAL_PRINCIPAL
    assert await ticket_refusal(access, tokens[0], endpoint) == "invalid_ticket"
    assert await ticket_refusal(access, tokens[1], "/ws/accumulators/other") == "invalid_ticket"
    assert await ticket_refusal(access, tokens[1], endpoint) == "invalid_ticket"
    clock.advance_to(TICKET_LIFETIME.total_seconds())
    assert await ticket_refusal(access, tokens[2], endpoint) == "invalid_ticket"
