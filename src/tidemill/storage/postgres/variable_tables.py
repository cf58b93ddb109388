"""Tables of variables and secrets in PostgreSQL."""

from tidemill.storage.postgres.database import PostgresTable
from tidemill.storage.postgres.row_codecs import make_codec, parameter
from tidemill.storage.postgres.writes import StatementRows
from tidemill.storage.row_codec import list_columns, make_fragments
from tidemill.storage.variable_ports import ListedVariable, Secrets, StoredSecret, VariableRow, Variables

_VARIABLE, _SECRET = make_codec(VariableRow), make_codec(StoredSecret)

VARIABLE_FRAGMENTS = make_fragments({"variable": _VARIABLE, "secret": _SECRET}, parameter) | {
    "listed_variable_columns": list_columns(_VARIABLE, "value", "octet_length(value)")
}
"""What statements may name in braces."""


class PostgresVariables(PostgresTable, Variables):
    """The table `variables`."""

    async def upsert(self, variable: VariableRow) -> None:
        await self._write(StatementRows(self._queries.upsert_variable, [_VARIABLE.encode(variable)]))

    async def get(self, tenant: str, name: str) -> VariableRow | None:
        rows = await self._read(self._queries.variable, tenant, name)
        return _VARIABLE.decode(tuple(rows[0])) if rows else None

    async def for_tenant(self, tenant: str) -> list[ListedVariable]:
        rows = await self._read(self._queries.variables, tenant)
        return [ListedVariable(_VARIABLE.decode(tuple(row)[:-1]), row[-1]) for row in rows]

    async def delete(self, tenant: str, name: str) -> bool:
        return bool(await self._write_returning(self._queries.delete_variable, tenant, name))


class PostgresSecrets(PostgresTable, Secrets):
    """The table `secrets`."""

    async def put(self, secret: StoredSecret) -> bool:
        statement = self._queries.add_secret if secret.version == 1 else self._queries.replace_secret
        return bool(await self._write_returning(statement, *_SECRET.encode(secret)))

    async def get(self, tenant: str, name: str) -> StoredSecret | None:
        rows = await self._read(self._queries.secret, tenant, name)
        return _SECRET.decode(tuple(rows[0])) if rows else None

    async def for_tenant(self, tenant: str) -> list[StoredSecret]:
        return [_SECRET.decode(tuple(row)) for row in await self._read(self._queries.secrets, tenant)]

    async def delete(self, tenant: str, name: str) -> bool:
        return bool(await self._write_returning(self._queries.delete_secret, tenant, name))

    async def list_not_wrapped_by(self, key_id: str, limit: int) -> list[StoredSecret]:
        rows = await self._read(self._queries.secrets_not_wrapped_by, key_id, limit)
        return [_SECRET.decode(tuple(row)) for row in rows]

    async def rewrap(self, secret: StoredSecret, before: str) -> bool:
        one = secret
        values = (one.key_id, one.wrapped_key, one.tenant, one.name, one.version, before)
        return bool(await self._write_returning(self._queries.rewrap_secret, *values))
