"""Access control of a store, for commands that open the store themselves: so is the first key made."""

from typing import Any

import msgspec

from tidemill.access.keys import ApiKey
from tidemill.access.principal import Principal, Role
from tidemill.cli.access_admin import AccessAdmin, AuditQuery, Fields, KeyRequest
from tidemill.engine.access.services import LOCAL_PRINCIPAL, AccessServices
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.settings import Settings
from tidemill.storage.access_ports import AuditFilter
from tidemill.storage.store import Store


async def make_store_access(store: Store, tenant: str | None) -> "StoreAccess":
    """Return the access control of a tenant of an open store."""
    services = AccessServices(store, SystemClock(), Settings.read())
    owner = await services.tenants.resolve(LOCAL_PRINCIPAL, tenant)
    return StoreAccess(services, services.tenants.act_for(LOCAL_PRINCIPAL, owner))


class StoreAccess(AccessAdmin):
    """Works on a store as the local operator."""

    def __init__(self, services: AccessServices, principal: Principal) -> None:
        self._services = services
        self._principal = principal

    async def create_key(self, request: KeyRequest) -> Fields:
        made = await self._services.keys.create(
            self._principal, request.role, lifetime=request.lifetime, only=request.only, label=request.label
        )
        return {**_plain_key(made.key), "key": made.token}

    async def list_keys(self) -> list[Fields]:
        return [_plain_key(one) for one in await self._services.keys.list_for(self._principal)]

    async def revoke_key(self, id: str) -> None:
        await self._services.keys.revoke(self._principal, id)

    async def create_tenant(self, name: str) -> Fields:
        return _plain(await self._services.tenants.create(self._principal, name))

    async def list_tenants(self) -> list[Fields]:
        return [_plain(one) for one in await self._services.tenants.list_for(self._principal)]

    async def delete_tenant(self, name: str) -> None:
        await self._services.tenants.delete(self._principal, name)

    async def create_account(self, name: str, role: Role, password: str) -> Fields:
        return _plain(await self._services.accounts.create(self._principal, name, role, password))

    async def list_accounts(self) -> list[Fields]:
        return [_plain(one) for one in await self._services.accounts.list_for(self._principal)]

    async def delete_account(self, name: str) -> None:
        await self._services.accounts.delete(self._principal, name)

    async def list_variables(self) -> list[Fields]:
        return [_plain(one) for one in await self._services.variables.list_for(self._principal)]

    async def get_variable(self, name: str) -> Fields:
        return _plain(await self._services.variables.get(self._principal.tenant, name))

    async def set_variable(self, name: str, value: Any) -> Fields:
        return _plain(await self._services.variables.set(self._principal, name, value))

    async def delete_variable(self, name: str) -> None:
        await self._services.variables.delete(self._principal, name)

    async def list_secrets(self) -> list[Fields]:
        return [_plain(one) for one in await self._services.secrets.list_for(self._principal)]

    async def set_secret(self, name: str, value: str) -> Fields:
        return _plain(await self._services.secrets.set(self._principal, name, value))

    async def delete_secret(self, name: str) -> None:
        await self._services.secrets.delete(self._principal, name)

    async def rotate_secrets(self) -> int:
        return await self._services.secrets.rotate(self._principal)

    async def list_audit_entries(self, audit_filter: AuditQuery, limit: int) -> list[Fields]:
        wanted = AuditFilter(tenant=self._principal.tenant, limit=limit, **audit_filter._asdict())
        entries, _ = await self._services.audit.find(wanted)
        return [_plain(one) for one in entries]


def _plain(value: Any) -> Fields:
    fields: Fields = msgspec.to_builtins(value)
    return fields


def _plain_key(key: ApiKey) -> Fields:
    return _plain(key) | {"only": None if key.only is None else sorted(map(str, key.only))}
