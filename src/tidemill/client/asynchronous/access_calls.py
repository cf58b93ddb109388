"""Methods of the client for tenants, keys, accounts, variables, secrets and the audit log."""

from collections.abc import Sequence
from typing import Any

from tidemill.access.accounts import Account
from tidemill.access.audit import AuditEntry
from tidemill.access.principal import Role
from tidemill.access.tenants import Tenant
from tidemill.client.asynchronous.transport import AsyncTransport
from tidemill.client.calls import ItemPage, command, delete, get, make, name_in_path, put, seconds
from tidemill.client.values import IssuedKey, KeyInfo, RotatedCount, SecretInfo, VariableInfo
from tidemill.kernel.durations import Duration


class AsyncAccessCalls:
    """Methods for access control, variables and secrets."""

    _transport: AsyncTransport

    # -- tenants, keys and accounts

    async def tenants(self) -> list[Tenant]:
        """Return the tenants: all of them for an admin of the instance, else the client's own."""
        return await self._transport.collect(get("/tenants", ItemPage[Tenant]))

    async def create_tenant(self, name: str) -> Tenant:
        """Create a tenant."""
        return await self._transport.send(make("/tenants", Tenant, {"name": name}))

    async def delete_tenant(self, name: str) -> None:
        """Delete a tenant with everything it owns; refused while it has packages or active runs."""
        await self._transport.send(delete(f"/tenants/{name_in_path(name)}"))

    async def keys(self) -> list[KeyInfo]:
        """Return the API keys of the tenant, without their secret part."""
        return await self._transport.collect(get("/keys", ItemPage[KeyInfo]))

    async def create_key(
        self,
        role: Role | str,
        *,
        tenant: str | None = None,
        expires: Duration | None = None,
        only: Sequence[str] | None = None,
        label: str = "",
    ) -> IssuedKey:
        """Create an API key; its `key` is answered this once.

        It is valid for `expires`, or until it is revoked. `only` restricts it to endpoints such as
        "accumulators:orderbook".
        """
        lifetime = None if expires is None else seconds("expires", expires)
        only = None if only is None else list(only)
        body = {"role": role, "tenant": tenant, "expires": lifetime, "only": only, "label": label}
        return await self._transport.send(make("/keys", IssuedKey, body))

    async def revoke_key(self, id: str) -> None:
        """Revoke an API key: it is refused from now on, and its open connections end."""
        await self._transport.send(delete(f"/keys/{name_in_path(id)}"))

    async def accounts(self) -> list[Account]:
        """Return the accounts of the tenant."""
        return await self._transport.collect(get("/accounts", ItemPage[Account]))

    async def create_account(self, name: str, *, role: Role | str, password: str, tenant: str | None = None) -> Account:
        """Create an account for a person who signs in with a password."""
        body = {"name": name, "role": role, "password": password, "tenant": tenant}
        return await self._transport.send(make("/accounts", Account, body))

    async def delete_account(self, name: str) -> None:
        """Delete an account, and end its sessions."""
        await self._transport.send(delete(f"/accounts/{name_in_path(name)}"))

    async def audit(
        self, *, actor: str | None = None, action: str | None = None, target: str | None = None, limit: int | None = 50
    ) -> list[AuditEntry]:
        """Return the newest changes of the tenant, newest first."""
        call = get("/audit", ItemPage[AuditEntry], actor=actor, action=action, target=target)
        return await self._transport.collect(call, limit)

    # -- variables and secrets

    async def variables(self) -> list[VariableInfo]:
        """Return the variables of the tenant."""
        return await self._transport.collect(get("/variables", ItemPage[VariableInfo]))

    async def variable(self, name: str) -> Any:
        """Return the value of a variable."""
        return (await self._transport.send(get(f"/variables/{name_in_path(name)}", VariableInfo))).value

    async def set_variable(self, name: str, value: Any) -> VariableInfo:
        """Set a variable to anything that JSON can express."""
        return await self._transport.send(put(f"/variables/{name_in_path(name)}", VariableInfo, {"value": value}))

    async def delete_variable(self, name: str) -> None:
        """Delete a variable."""
        await self._transport.send(delete(f"/variables/{name_in_path(name)}"))

    async def secrets(self) -> list[SecretInfo]:
        """Return the secrets of the tenant, without their values, which the server never answers with."""
        return await self._transport.collect(get("/secrets", ItemPage[SecretInfo]))

    async def set_secret(self, name: str, value: str) -> SecretInfo:
        """Set a secret."""
        return await self._transport.send(put(f"/secrets/{name_in_path(name)}", SecretInfo, {"value": value}))

    async def delete_secret(self, name: str) -> None:
        """Delete a secret."""
        await self._transport.send(delete(f"/secrets/{name_in_path(name)}"))

    async def rotate_secrets(self) -> int:
        """Protect all secrets of all tenants with the current master key; return how many had another one."""
        return (await self._transport.send(command("/secrets/rotate", RotatedCount, is_repeatable=True))).rotated
