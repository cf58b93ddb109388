"""Secrets: encrypted values that operators set and author code reads. The API never returns one."""

from collections.abc import Iterable

from msgspec.structs import replace

from tidemill.access.envelope import Envelope, MasterKeys, SecretPlace
from tidemill.access.principal import Principal
from tidemill.access.secret_source import SecretSource
from tidemill.engine.access.audit_log import AuditLog
from tidemill.engine.access.secret_sources import SecretSources
from tidemill.engine.access.variables import check_name
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.kernel.limits import is_name
from tidemill.kernel.masking import SecretMask
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.store import Store
from tidemill.storage.tables.variables import StoredSecret

VALUE_LIMIT = 64 * 1024  # bytes
ROTATION_BATCH = 100  # secrets that are read at a time


class SecretService:
    """Secrets of all tenants."""

    def __init__(self, store: Store, audit: AuditLog, clock: Clock, settings: Settings, sources: SecretSources) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock
        self._settings = settings
        self._sources = sources
        self._loaded_keys: MasterKeys | None = None
        self.mask = SecretMask()
        """Every value that was revealed here."""

    async def set(self, principal: Principal, name: str, value: str) -> StoredSecret:
        """Set a secret of the principal's tenant."""
        check_name("secret", name)
        data = value.encode("utf-8", "surrogatepass")
        if not 0 < len(data) <= VALUE_LIMIT:
            message = f"a secret has 1 to {VALUE_LIMIT} bytes, and this one has {len(data)}"
            raise RequestError(message, code="invalid_secret")
        keys = await self._keys()
        while True:
            stored = await self._store.secrets.get(principal.tenant, name)
            place = SecretPlace(principal.tenant, name, 1 if stored is None else stored.version + 1)
            sealed = keys.encrypt(data, place)
            secret = StoredSecret(
                tenant=place.tenant,
                name=place.name,
                version=place.version,
                key_id=sealed.key_id,
                wrapped_key=sealed.wrapped_key,
                ciphertext=sealed.ciphertext,
                updated_at=self._clock.now(),
                updated_by=principal.actor,
            )
            if await self._store.secrets.put(secret):  # not, if another process has set it meanwhile
                await self._audit.record(principal, "secret.set", name, {"version": secret.version})
                return secret

    async def reveal(self, tenant: str, name: str) -> str:
        """Return the value of a secret to author code of its tenant, from the first source that has it."""
        value = await self._read(tenant, name)
        self.mask.add(value)
        return value

    async def _read(self, tenant: str, name: str) -> str:
        is_nameable = is_name(name)
        if is_nameable and (value := await _ask(self._sources.before_store, tenant, name)) is not None:
            return value
        stored = await self._store.secrets.get(tenant, name) if is_nameable else None
        if stored is not None:
            keys = await self._keys()
            return keys.decrypt(_envelope_of(stored), _place_of(stored)).decode("utf-8", "surrogatepass")
        if is_nameable and (value := await _ask(self._sources.after_store, tenant, name)) is not None:
            return value
        raise await self._not_found(tenant, name)

    async def get(self, tenant: str, name: str) -> StoredSecret:
        """Return everything about a secret but its value."""
        return await self._find(tenant, name)

    async def list_for(self, principal: Principal) -> list[StoredSecret]:
        """Return the secrets of the principal's tenant, by name, without their values."""
        return list(await self._store.secrets.for_tenant(principal.tenant))

    async def delete(self, principal: Principal, name: str) -> None:
        """Delete a secret of the principal's tenant."""
        await self._find(principal.tenant, name)
        await self._store.secrets.delete(principal.tenant, name)
        await self._audit.record(principal, "secret.delete", name)

    async def rotate(self, principal: Principal) -> int:
        """Wrap the keys of all secrets with the current master key; return their number.

        A rotation that was interrupted continues with what is left: every key is rewrapped by itself, and secrets stay
        readable all the time.
        """
        keys, number = await self._keys(), 0
        while batch := await self._store.secrets.list_not_wrapped_by(keys.current, ROTATION_BATCH):
            for stored in batch:
                sealed = keys.rewrap(_envelope_of(stored), _place_of(stored))
                rewrapped = replace(stored, key_id=sealed.key_id, wrapped_key=sealed.wrapped_key)
                number += await self._store.secrets.rewrap(rewrapped, stored.key_id)
        await self._audit.record(principal, "secret.rotate", keys.current, {"secrets": number})
        return number

    async def _find(self, tenant: str, name: str) -> StoredSecret:
        stored = await self._store.secrets.get(tenant, name) if is_name(name) else None
        if stored is None:
            raise await self._not_found(tenant, name)
        return stored

    async def _not_found(self, tenant: str, name: str) -> NotFoundError:
        known = [one.name for one in await self._store.secrets.for_tenant(tenant)]
        return NotFoundError("secret", name, f"there is no secret '{name}'{did_you_mean(name, known)}", known)

    async def _keys(self) -> MasterKeys:
        """Return the master keys: those of the settings, or those that a local store keeps next to its file."""
        if self._loaded_keys is None:
            text = self._settings.secret_keys or await call_in_thread(self._store.read_local_keys)
            if text is None:
                message = (
                    "this store needs master keys for secrets: set secret_keys, or TIDEMILL_SECRET_KEYS, to ID:KEY on "
                    "every server; make a key with `openssl rand -base64 32`"
                )
                raise RequestError(message, code="no_secret_keys", status=409)
            self._loaded_keys = MasterKeys.parse(text)
        return self._loaded_keys


async def _ask(sources: Iterable[SecretSource], tenant: str, name: str) -> str | None:
    """Return the value of the first source that has the secret."""
    for source in sources:
        if (value := await source.read(tenant, name)) is not None:
            return value
    return None


def _place_of(stored: StoredSecret) -> SecretPlace:
    return SecretPlace(stored.tenant, stored.name, stored.version)


def _envelope_of(stored: StoredSecret) -> Envelope:
    return Envelope(key_id=stored.key_id, wrapped_key=stored.wrapped_key, ciphertext=stored.ciphertext)
