"""API keys: creates, lists and revokes them, and authenticates the requests that bring one."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from tidemill.access.keys import ApiKey, key_id_of, new_key_token, parse_resources
from tidemill.access.principal import Principal, Role
from tidemill.access.tokens import digest_token, is_token
from tidemill.engine.access.audit_log import AuditLog
from tidemill.engine.access.tenants import TenantService
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import NotFoundError, RequestError, after_change
from tidemill.kernel.ids import new_instance_id
from tidemill.kernel.limits import WORD_RULE, is_storable, is_word
from tidemill.storage.tables.access import ApiKeys, StoredKey
from tidemill.storage.tables.sessions import Sessions

CACHE_SECONDS = 1.0  # for which a key is not read again: the longest delay of a revocation without notifications
CACHE_LIMIT = 10_000  # keys
USE_ACCURACY = timedelta(minutes=1)  # of `last_used_at`: a key in constant use costs one write a minute


class NewKey(NamedTuple):
    """A new key, and its token, which is shown once and not stored."""

    key: ApiKey
    token: str


class _CachedKey(NamedTuple):
    stored: StoredKey
    read_at: float


class KeyService:
    """API keys of all tenants."""

    def __init__(
        self, keys: ApiKeys, sessions: Sessions, tenants: TenantService, audit: AuditLog, clock: Clock
    ) -> None:
        self._keys = keys
        self._sessions = sessions
        self._tenants = tenants
        self._audit = audit
        self._clock = clock
        self._cache: dict[str, _CachedKey] = {}

    async def create(
        self,
        principal: Principal,
        role: Role,
        *,
        tenant: str | None = None,
        lifetime: float | None = None,
        only: Iterable[str] | None = None,
        label: str = "",
    ) -> NewKey:
        """Create a key that is valid for `lifetime` seconds (None: until it is revoked); its token is shown once.

        Only an admin of the instance creates keys of another tenant.
        """
        owner = await self._tenants.resolve(principal, tenant)
        if label and not is_word(label):
            raise RequestError(f"the label of a key is {WORD_RULE}, not {label!r}", code="invalid_label")
        now = self._clock.now()
        key = ApiKey(
            id=new_instance_id(),
            tenant=owner,
            role=role,
            label=label,
            only=None if only is None else parse_resources(only),
            created_at=now,
            created_by=principal.actor,
            expires_at=None if lifetime is None else now + timedelta(seconds=lifetime),
        )
        token = new_key_token(key.id)
        await self._keys.add(key, digest_token(token))
        details = {"role": role, "only": None if key.only is None else sorted(map(str, key.only))}
        with after_change(f"key {key.id} was created"):
            await self._audit.record(principal, "key.create", key.id, details, tenant=owner)
        return NewKey(key, token)

    async def list_for(self, principal: Principal) -> list[ApiKey]:
        """Return the keys of the principal's tenant, oldest first."""
        return await self._keys.for_tenant(principal.tenant)

    async def revoke(self, principal: Principal, id: str) -> None:
        """Revoke a key of the principal's tenant, and end the sessions that were opened with it.

        An admin of the instance revokes the keys of every tenant.
        """
        stored = await self._keys.find(id) if is_storable(id) else None
        may_see = stored is not None and (principal.is_instance_admin or stored.key.tenant == principal.tenant)
        if stored is None or not may_see:
            raise NotFoundError("key", id, f"there is no key '{id}'")
        await self._keys.revoke(stored.key.tenant, id, self._clock.now())
        await self._sessions.delete_of_actor(stored.key.tenant, stored.key.principal.actor)
        self._cache.pop(id, None)
        await self._audit.record(principal, "key.revoke", id, tenant=stored.key.tenant)

    async def authenticate(self, token: str) -> Principal:
        """Return the principal of a token; RequestError if its key is unknown, revoked or expired."""
        return (await self.find_valid(token)).principal

    async def find_valid(self, token: str, *, cached: bool = True) -> ApiKey:
        """Return the key of a token; RequestError if it is unknown, revoked or expired."""
        id_ = key_id_of(token)
        if id_ is not None and not cached:
            self._cache.pop(id_, None)
        stored = None if id_ is None else await self._find(id_)
        if stored is None or not is_token(token, stored.digest):
            message = "the key is not known here; create one with `tidemill key create`"
            raise RequestError(message, code="invalid_key", status=401)
        now = self._clock.now()
        if stored.key.revoked_at is not None:
            raise RequestError(f"the key {stored.key.id} has been revoked", code="key_revoked", status=401)
        if stored.key.is_expired(now):
            message = f"the key {stored.key.id} expired at {stored.key.expires_at:%Y-%m-%d %H:%M} UTC"
            raise RequestError(message, code="key_expired", status=401)
        await self._record_use(stored, now)
        return stored.key

    async def is_valid(self, id: str) -> bool:
        """Return whether a key is neither revoked nor expired nor deleted."""
        stored = await self._find(id)
        return stored is not None and stored.key.is_usable(self._clock.now())

    def forget_cached(self) -> None:
        """Read every key again: another process has changed some."""
        self._cache.clear()

    async def _find(self, id: str) -> StoredKey | None:
        """Return a key; for a second, the one that was read last."""
        now, cached = self._clock.monotonic(), self._cache.get(id)
        if cached is not None and now - cached.read_at < CACHE_SECONDS:
            return cached.stored
        stored = await self._keys.find(id)
        if stored is None:
            self._cache.pop(id, None)
            return None
        if len(self._cache) >= CACHE_LIMIT:
            self._cache.clear()
        self._cache[id] = _CachedKey(stored, now)
        return stored

    async def _record_use(self, stored: StoredKey, now: datetime) -> None:
        key = stored.key
        if key.last_used_at is not None and now - key.last_used_at < USE_ACCURACY:
            return
        if (cached := self._cache.get(key.id)) is not None:
            used = StoredKey(replace(cached.stored.key, last_used_at=now), cached.stored.digest)
            self._cache[key.id] = _CachedKey(used, cached.read_at)
        await self._keys.record_uses({key.id: now})
