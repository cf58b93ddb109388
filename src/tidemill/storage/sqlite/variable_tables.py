"""Tables of variables and secrets in SQLite."""

import sqlite3

from tidemill.storage.row_codec import RowCodec, list_columns, make_fragments
from tidemill.storage.sqlite.database import SqliteTable
from tidemill.storage.sqlite.run_rows import from_micros, to_micros
from tidemill.storage.variable_ports import ListedVariable, Secrets, StoredSecret, VariableRow, Variables

_VARIABLE = RowCodec(VariableRow, to_micros, from_micros)
_SECRET = RowCodec(StoredSecret, to_micros, from_micros)

VARIABLE_FRAGMENTS = make_fragments({"variable": _VARIABLE, "secret": _SECRET}, lambda _: "?") | {
    "listed_variable_columns": list_columns(_VARIABLE, "value", "length(CAST(value AS BLOB))")
}
"""What statements may name in braces."""


class SqliteVariables(SqliteTable, Variables):
    """The table `variables`."""

    async def upsert(self, variable: VariableRow) -> None:
        await self._execute_many(self._queries.upsert_variable, [_VARIABLE.encode(variable)])

    async def get(self, tenant: str, name: str) -> VariableRow | None:
        rows = await self._fetch_all(self._queries.variable_of, (tenant, name))
        return _VARIABLE.decode(rows[0]) if rows else None

    async def for_tenant(self, tenant: str) -> list[ListedVariable]:
        rows = await self._fetch_all(self._queries.variables_of, (tenant,))
        return [ListedVariable(_VARIABLE.decode(columns), size) for *columns, size in rows]

    async def delete(self, tenant: str, name: str) -> bool:
        statement = self._queries.delete_variable
        return await self._write(lambda connection: connection.execute(statement, (tenant, name)).rowcount == 1)


class SqliteSecrets(SqliteTable, Secrets):
    """The table `secrets`."""

    async def put(self, secret: StoredSecret) -> bool:
        row, key = _SECRET.encode(secret), (secret.tenant, secret.name)

        def write(connection: sqlite3.Connection) -> bool:
            stored = connection.execute(self._queries.secret_version, key).fetchone()
            is_next = secret.version == (0 if stored is None else stored[0]) + 1
            if is_next:
                connection.execute(self._queries.put_secret, row)
            return is_next

        return await self._write(write)

    async def get(self, tenant: str, name: str) -> StoredSecret | None:
        rows = await self._fetch_all(self._queries.secret_of, (tenant, name))
        return _SECRET.decode(rows[0]) if rows else None

    async def for_tenant(self, tenant: str) -> list[StoredSecret]:
        return [_SECRET.decode(row) for row in await self._fetch_all(self._queries.secrets_of, (tenant,))]

    async def delete(self, tenant: str, name: str) -> bool:
        statement = self._queries.delete_secret
        return await self._write(lambda connection: connection.execute(statement, (tenant, name)).rowcount == 1)

    async def list_not_wrapped_by(self, key_id: str, limit: int) -> list[StoredSecret]:
        rows = await self._fetch_all(self._queries.secrets_not_wrapped_by, (key_id, limit))
        return [_SECRET.decode(row) for row in rows]

    async def rewrap(self, secret: StoredSecret, before: str) -> bool:
        one = secret
        values = (one.key_id, one.wrapped_key, one.tenant, one.name, one.version, before)
        statement = self._queries.rewrap_secret
        return await self._write(lambda connection: connection.execute(statement, values).rowcount == 1)
