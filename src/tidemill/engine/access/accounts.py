"""Accounts: creates, lists and deletes them, and signs people in."""

import asyncio
from datetime import datetime, timedelta

from tidemill.access.accounts import UNKNOWN_HASH, AccountRow, hash_password, is_password
from tidemill.access.principal import INSTANCE_TENANT, Principal, Role
from tidemill.engine.access.audit_log import AuditLog
from tidemill.engine.access.tenants import TenantService
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.kernel.limits import NAME_RULE, is_name, is_storable
from tidemill.storage.tables.sessions import Accounts, LoginAttempt, Sessions

FAILURE_LIMIT = 5  # failed attempts in a row that lock an account
LOCK_TIME = timedelta(minutes=1)  # for which it is locked, after each further failure too
HASH_LIMIT = 2  # passwords that are hashed at a time: each takes 32 MiB
DECOY_INTERVAL = 0.2  # seconds between two hashes for accounts that cannot be opened: each takes a core for half of it


class AccountService:
    """Local accounts of all tenants."""

    def __init__(
        self, accounts: Accounts, sessions: Sessions, tenants: TenantService, audit: AuditLog, clock: Clock
    ) -> None:
        self._accounts = accounts
        self._sessions = sessions
        self._tenants = tenants
        self._audit = audit
        self._clock = clock
        self._hashing = asyncio.Semaphore(HASH_LIMIT)
        self._next_decoy = 0.0
        self._check_duration = 0.1
        """Seconds that the last check of a password took; before the first one, what it takes on most machines."""

    async def create(
        self,
        principal: Principal,
        name: str,
        role: Role,
        password: str,
        *,
        tenant: str | None = None,
        at: datetime | None = None,
    ) -> AccountRow:
        """Create an account; only an admin of the instance creates those of another tenant.

        `at` is when a request was first made: a repetition of it returns the same account.
        """
        owner = await self._tenants.resolve(principal, tenant)
        if not is_name(name):
            raise RequestError(f"the name of an account is {NAME_RULE}, not {name!r}", code="invalid_account")
        async with self._hashing:
            password_hash: str = await call_in_thread(hash_password, password)
        now = self._clock.now() if at is None else at
        account = AccountRow(tenant=owner, name=name, role=role, created_at=now, created_by=principal.actor)
        entry = self._audit.make_entry(principal, "account.create", name, {"role": role}, tenant=owner)
        if not await self._accounts.add(account, password_hash, entry):
            stored = [
                one for one in await self._accounts.for_tenant(owner) if one.name == name and one.created_at == at
            ]
            if stored:
                return stored[0]
            raise RequestError(f"there is an account '{name}' already", code="account_exists", status=409)
        self._audit.publish(entry)
        return account

    async def list_for(self, principal: Principal) -> list[AccountRow]:
        """Return the accounts of the principal's tenant, by name."""
        return await self._accounts.for_tenant(principal.tenant)

    async def change(
        self, principal: Principal, name: str, *, role: Role | None = None, password: str | None = None
    ) -> AccountRow:
        """Change the role or the password of an account of the principal's tenant, and end its sessions."""
        password_hash = None
        if password is not None:
            async with self._hashing:
                password_hash = await call_in_thread(hash_password, password)
        account = (
            await self._accounts.change(principal.tenant, name, role, password_hash) if is_storable(name) else None
        )
        if account is None:
            raise await self._unknown_account(principal, name)
        await self._sessions.delete_of_actor(principal.tenant, f"account:{name}")
        details = {"password": True} if role is None else {"role": role}
        await self._audit.record(principal, "account.change", name, details)
        return account

    async def _unknown_account(self, principal: Principal, name: str) -> NotFoundError:
        known = [one.name for one in await self._accounts.for_tenant(principal.tenant)]
        return NotFoundError("account", name, f"there is no account '{name}'", known)

    async def delete(self, principal: Principal, name: str) -> None:
        """Delete an account of the principal's tenant, and its sessions."""
        if not is_storable(name) or not await self._accounts.delete(principal.tenant, name):
            raise await self._unknown_account(principal, name)
        await self._sessions.delete_of_actor(principal.tenant, f"account:{name}")
        await self._audit.record(principal, "account.delete", name)

    async def sign_in(self, name: str, password: str, tenant: str = INSTANCE_TENANT) -> Principal:
        """Return the principal of an account; RequestError if the password is wrong.

        The error does not tell a wrong password from an unknown or a locked account, and takes as long.
        """
        now = self._clock.now()
        attempt = LoginAttempt(tenant=tenant, name=name, at=now, limit=FAILURE_LIMIT, locked_until=now + LOCK_TIME)
        is_possible = is_storable(name) and is_storable(tenant)
        stored = await self._accounts.begin_login(attempt) if is_possible else None
        if stored is None:
            await self._check_nothing(password)
        if stored is None or not await self._check(password, stored.password_hash):
            message = (
                "the name or the password is wrong, or the account is locked for a minute after "
                f"{FAILURE_LIMIT} failed attempts"
            )
            raise RequestError(message, code="invalid_login", status=401)
        await self._accounts.record_login(tenant, name, now)
        return stored.account.principal

    async def _check(self, password: str, known_hash: str) -> bool:
        began = self._clock.monotonic()
        async with self._hashing:
            is_right: bool = await call_in_thread(is_password, password, known_hash)
        self._check_duration = self._clock.monotonic() - began
        return is_right

    async def _check_nothing(self, password: str) -> None:
        """Take as long as a check, now and then with one: no number of unknown accounts keeps a known one waiting."""
        if (now := self._clock.monotonic()) >= self._next_decoy:
            self._next_decoy = now + DECOY_INTERVAL
            await self._check(password, UNKNOWN_HASH)
        else:
            await self._clock.sleep(self._check_duration)
