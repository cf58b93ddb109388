"""Tables of variables and secrets, which operators set and author code reads."""

from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from tidemill.storage.tables.database import RowCodec, Statement, Table
from tidemill.storage.tables.declared import of_tenant


class NamedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is not secret, and who has set it."""

    name: str
    value: Any
    """Anything that JSON can express."""
    updated_at: datetime
    updated_by: str


class VariableRow(NamedValue, frozen=True, kw_only=True):
    """A variable of a tenant."""

    tenant: str


class ListedVariable(NamedTuple):
    """A variable as lists show it."""

    variable: VariableRow
    large_value: int | None
    """The bytes of a value that is too large for a list: the variable has None instead."""


_VARIABLE = RowCodec(VariableRow)
_PUT_VARIABLE = Statement(
    """
    INSERT INTO {schema}variables ({columns}) VALUES ({parameters})
    ON CONFLICT (tenant, name) DO UPDATE SET {updates}
    """,
    _VARIABLE,
)
_ADD_VARIABLE = Statement(
    """
    INSERT INTO {schema}variables ({columns}) VALUES ({parameters})
    ON CONFLICT (tenant, name) DO NOTHING RETURNING name
    """,
    _VARIABLE,
)
_REPLACE_VARIABLE = Statement(
    """
    UPDATE {schema}variables SET ({columns}) = ({parameters})
    WHERE tenant = :tenant AND name = :name AND updated_at = :before RETURNING name
    """,
    _VARIABLE,
)
_VARIABLE_OF = Statement("SELECT {columns} FROM {schema}variables WHERE tenant = :tenant AND name = :name", _VARIABLE)
_VARIABLES_OF = Statement(
    f"SELECT {_VARIABLE.listed('value')} FROM {{schema}}variables WHERE tenant = :tenant ORDER BY name"
)
_DELETE_VARIABLE = Statement("DELETE FROM {schema}variables WHERE tenant = :tenant AND name = :name RETURNING name")


class Variables(Table):
    """Variables by tenant and name."""

    tables = of_tenant("variables")

    async def upsert(self, variable: VariableRow) -> None:
        """Write a variable in place of the previous one."""
        await self._put(_PUT_VARIABLE, **_VARIABLE.values(variable))

    async def add(self, variable: VariableRow) -> bool:
        """Write a new variable; return False if it exists."""
        return bool(await self._change(_ADD_VARIABLE, **_VARIABLE.values(variable)))

    async def replace(self, variable: VariableRow, before: VariableRow) -> bool:
        """Write a variable in place of a version; return False if that is not the current one."""
        values = _VARIABLE.values(variable) | {"before": _VARIABLE.values(before)["updated_at"]}
        return bool(await self._change(_REPLACE_VARIABLE, **values))

    async def get(self, tenant: str, name: str) -> VariableRow | None:
        """Return a variable."""
        return await self._first(_VARIABLE, _VARIABLE_OF, tenant=tenant, name=name)

    async def for_tenant(self, tenant: str) -> list[ListedVariable]:
        """Return the variables of a tenant, by name, without large values."""
        rows = await self._database.fetch(_VARIABLES_OF, tenant=tenant)
        return [ListedVariable(self._decode(_VARIABLE, columns), size) for *columns, size in rows]

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete a variable; return whether it was there."""
        return bool(await self._change(_DELETE_VARIABLE, tenant=tenant, name=name))


class StoredSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, encrypted with a separate key, which is wrapped by a master key."""

    tenant: str
    name: str
    version: int
    """Grows with each new value."""
    key_id: str
    """The master key that wraps the secret's own key."""
    wrapped_key: bytes
    ciphertext: bytes
    updated_at: datetime
    updated_by: str


_SECRET = RowCodec(StoredSecret)
_ADD_SECRET = Statement(
    """
    INSERT INTO {schema}secrets ({columns}) VALUES ({parameters})
    ON CONFLICT (tenant, name) DO NOTHING RETURNING name
    """,
    _SECRET,
)
_REPLACE_SECRET = Statement(
    """
    UPDATE {schema}secrets SET ({columns}) = ({parameters})
    WHERE tenant = :tenant AND name = :name AND version = :version - 1 RETURNING name
    """,
    _SECRET,
)
_SECRET_OF = Statement("SELECT {columns} FROM {schema}secrets WHERE tenant = :tenant AND name = :name", _SECRET)
_SECRETS_OF = Statement("SELECT {columns} FROM {schema}secrets WHERE tenant = :tenant ORDER BY name", _SECRET)
_DELETE_SECRET = Statement("DELETE FROM {schema}secrets WHERE tenant = :tenant AND name = :name RETURNING name")
_NOT_WRAPPED_BY = Statement(
    "SELECT {columns} FROM {schema}secrets WHERE key_id <> :key_id ORDER BY tenant, name LIMIT :limit", _SECRET
)
_REWRAP = Statement("""
    UPDATE {schema}secrets SET key_id = :key_id, wrapped_key = :wrapped_key
    WHERE tenant = :tenant AND name = :name AND version = :version AND key_id = :before RETURNING name
""")


class Secrets(Table):
    """Secrets by tenant and name."""

    tables = of_tenant("secrets")

    async def put(self, secret: StoredSecret) -> bool:
        """Write a secret in place of the previous version; False if that is not the one before (0: none)."""
        statement = _ADD_SECRET if secret.version == 1 else _REPLACE_SECRET
        return bool(await self._change(statement, **_SECRET.values(secret)))

    async def get(self, tenant: str, name: str) -> StoredSecret | None:
        """Return a secret."""
        return await self._first(_SECRET, _SECRET_OF, tenant=tenant, name=name)

    async def for_tenant(self, tenant: str) -> list[StoredSecret]:
        """Return the secrets of a tenant, by name."""
        return await self._list(_SECRET, _SECRETS_OF, tenant=tenant)

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete a secret; return whether it was there."""
        return bool(await self._change(_DELETE_SECRET, tenant=tenant, name=name))

    async def list_not_wrapped_by(self, key_id: str, limit: int) -> list[StoredSecret]:
        """Return secrets of all tenants whose keys another master key wraps, by tenant and name."""
        return await self._list(_SECRET, _NOT_WRAPPED_BY, key_id=key_id, limit=limit)

    async def rewrap(self, secret: StoredSecret, before: str) -> bool:
        """Replace the wrapped key of a secret if its version and its master key `before` are still the same."""
        return bool(await self._change(_REWRAP, **_SECRET.values(secret), before=before))
