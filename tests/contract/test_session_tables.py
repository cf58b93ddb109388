"""Accounts, sessions and tickets on every database."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.access_samples import account, audit_entry, session, ticket
from tests.contract.run_samples import after
from tests.contract.samples import NOON, NOON_ELSEWHERE, ODD_NAMES
from tidemill.access.principal import Role
from tidemill.storage.store import Store
from tidemill.storage.tables.access import AuditFilter
from tidemill.storage.tables.sessions import LoginAttempt, StoredAccount

DIGEST = bytes(range(32))


def attempt(**given: Any) -> LoginAttempt:
    """Return an attempt to sign in; the third failure locks the account for a minute."""
    fields = {"tenant": "acme", "name": "ada", "at": NOON, "limit": 3, "locked_until": after(60)}
    return LoginAttempt(**fields | given)


async def test_accounts_are_listed_by_name_and_deleted(store: Store) -> None:
    """S-4."""
    for name in ("zoe", "ada"):
        assert await store.accounts.add(account(name, created_at=NOON_ELSEWHERE), "hash")
    assert not await store.accounts.add(account("ada"), "another")
    assert await store.accounts.add(account(tenant="other"), "hash")
    assert await store.accounts.for_tenant("acme") == [account("ada"), account("zoe")]
    changed = account("ada", role=Role.WRITE)
    assert await store.accounts.change("acme", "ada", Role.WRITE, None) == changed
    assert await store.accounts.change("acme", "adda", Role.WRITE, None) is None
    assert await store.accounts.for_tenant("acme") == [changed, account("zoe")]
    assert await store.accounts.delete("acme", "ada")
    assert not await store.accounts.delete("acme", "ada")
    assert await store.accounts.for_tenant("other") == [account(tenant="other")]


async def test_an_account_and_its_audit_entry_are_written_together(store: Store) -> None:
    """A name that is taken leaves neither."""
    entry = audit_entry("1")
    assert await store.accounts.add(account(), "hash", entry)
    assert not await store.accounts.add(account(), "another", audit_entry("2"))
    assert await store.audit_entries.find(AuditFilter(tenant=entry.tenant)) == [entry]


async def test_every_attempt_counts_until_it_succeeds(store: Store) -> None:
    """Fault 92: also those that are made at the same time."""
    await store.accounts.add(account(), "hash")
    begun = await asyncio.gather(*(store.accounts.begin_login(attempt()) for _ in range(5)))
    assert sorted(one.account.failures for one in begun if one is not None) == [1, 2, 3]
    assert await store.accounts.for_tenant("acme") == [account(failures=3, locked_until=after(60))]
    assert await store.accounts.begin_login(attempt(at=after(59))) is None
    assert await store.accounts.change("acme", "ada", None, None) == account(failures=3, locked_until=after(60))
    again = await store.accounts.begin_login(attempt(at=after(60), locked_until=after(120)))
    assert again == StoredAccount(account(failures=4, locked_until=after(120)), "hash")
    await store.accounts.record_login("acme", "ada", after(61))
    assert await store.accounts.for_tenant("acme") == [account(last_login_at=after(61))]


async def test_an_unknown_account_has_no_attempts(store: Store) -> None:
    await store.accounts.add(account(), "hash")
    for name in [*ODD_NAMES, "ADA"]:
        assert await store.accounts.begin_login(attempt(name=name)) is None
    assert await store.accounts.begin_login(attempt(tenant="other")) is None


async def test_sessions_are_found_by_their_token(store: Store) -> None:
    """S-4: with the principal, whatever it is restricted to."""
    await store.sessions.add(session(), DIGEST)
    assert await store.sessions.find(DIGEST) == session()
    assert await store.sessions.find(bytes(32)) is None
    assert await store.sessions.get("s1") == session()
    await store.sessions.record_use("s1", after(9))
    await store.sessions.record_use("s1", after(5))
    assert await store.sessions.get("s1") == session(seen_at=after(9))
    assert await store.sessions.delete("s1")
    assert not await store.sessions.delete("s1")
    assert await store.sessions.get("s1") is None


async def test_all_sessions_of_an_actor_are_deleted(store: Store) -> None:
    """S-4: with the account."""
    for number, given in enumerate([{}, {}, {"actor": "account:zoe"}, {"tenant": "other"}]):
        await store.sessions.add(session(f"s{number}", **given), bytes([number]))
    assert await store.sessions.delete_of_actor("acme", "account:ada") == 2
    assert [await store.sessions.get(f"s{number}") is None for number in range(4)] == [True, True, False, False]


async def test_old_sessions_are_pruned(store: Store) -> None:
    for number, given in enumerate([{}, {"expires_at": after(1)}, {"seen_at": after(-9)}]):
        await store.sessions.add(session(f"s{number}", **given), bytes([number]))
    assert await store.sessions.prune(after(2), after(-5)) == 2
    assert await store.sessions.get("s0") == session("s0")


async def test_a_ticket_is_taken_once(store: Store) -> None:
    """S-3: by one of several."""
    await store.tickets.add(ticket(), DIGEST)
    taken = await asyncio.gather(*(store.tickets.take(DIGEST) for _ in range(5)))
    assert [one for one in taken if one is not None] == [ticket()]


async def test_old_tickets_are_pruned(store: Store) -> None:
    await store.tickets.add(ticket(), b"1")
    await store.tickets.add(ticket(expires_at=after(9)), b"2")
    assert await store.tickets.prune(after(5)) == 1
    assert await store.tickets.take(b"1") is None
    assert await store.tickets.take(b"2") == ticket(expires_at=after(9))


async def test_naive_times_are_refused(store: Store) -> None:
    naive = NOON.replace(tzinfo=None)
    with pytest.raises(ValueError, match="without a zone"):
        await store.sessions.add(replace(session(), seen_at=naive), DIGEST)
    with pytest.raises(ValueError, match="without a zone"):
        await store.accounts.record_login("acme", "ada", naive)
