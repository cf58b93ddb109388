"""Access control of a server, for commands."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tidemill.access.principal import Role
from tidemill.cli.access_admin import AccessAdmin, AuditQuery, Fields, KeyRequest
from tidemill.client import AsyncClient


class ServerAccess(AccessAdmin):
    """Works with a server, through the client."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create_key(self, request: KeyRequest) -> Fields:
        role, lifetime, only, label = request
        return _plain(await self._client.create_key(role, expires=lifetime, only=only, label=label))

    async def list_keys(self) -> list[Fields]:
        return _plain_items(await self._client.keys())

    async def revoke_key(self, id: str) -> None:
        await self._client.revoke_key(id)

    async def create_tenant(self, name: str) -> Fields:
        return _plain(await self._client.create_tenant(name))

    async def list_tenants(self) -> list[Fields]:
        return _plain_items(await self._client.tenants())

    async def delete_tenant(self, name: str) -> None:
        await self._client.delete_tenant(name)

    async def create_account(self, name: str, role: Role, password: str) -> Fields:
        return _plain(await self._client.create_account(name, role=role, password=password))

    async def list_accounts(self) -> list[Fields]:
        return _plain_items(await self._client.accounts())

    async def delete_account(self, name: str) -> None:
        await self._client.delete_account(name)

    async def list_variables(self) -> list[Fields]:
        return _plain_items(await self._client.variables())

    async def get_variable(self, name: str) -> Fields:
        return {"name": name, "value": await self._client.variable(name)}

    async def set_variable(self, name: str, value: Any) -> Fields:
        return _plain(await self._client.set_variable(name, value))

    async def delete_variable(self, name: str) -> None:
        await self._client.delete_variable(name)

    async def list_secrets(self) -> list[Fields]:
        return _plain_items(await self._client.secrets())

    async def set_secret(self, name: str, value: str) -> Fields:
        return _plain(await self._client.set_secret(name, value))

    async def delete_secret(self, name: str) -> None:
        await self._client.delete_secret(name)

    async def rotate_secrets(self) -> int:
        return await self._client.rotate_secrets()

    async def list_audit_entries(self, audit_filter: AuditQuery, limit: int) -> list[Fields]:
        return _plain_items(await self._client.audit(**audit_filter._asdict(), limit=limit))


def _plain(value: Any) -> Fields:
    fields: Fields = msgspec.to_builtins(value)
    return fields


def _plain_items(values: Sequence[Any]) -> list[Fields]:
    return [_plain(one) for one in values]
