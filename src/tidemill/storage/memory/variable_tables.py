"""Tables of variables and secrets in memory."""

import msgspec
from msgspec.structs import replace

from tidemill.kernel.limits import LISTED_VALUE_LIMIT
from tidemill.storage.memory.tables import MemoryTable, Tables, times_to_utc
from tidemill.storage.variable_ports import ListedVariable, Secrets, StoredSecret, VariableRow, Variables


class MemoryVariables(MemoryTable, Variables):
    """Variables by tenant and name."""

    async def upsert(self, variable: VariableRow) -> None:
        row = times_to_utc(variable)
        await self._committer.commit(lambda tables: tables.put(tables.variables, (row.tenant, row.name), row))

    async def get(self, tenant: str, name: str) -> VariableRow | None:
        return self._tables.variables.get((tenant, name))

    async def for_tenant(self, tenant: str) -> list[ListedVariable]:
        rows = [row for row in self._tables.variables.values() if row.tenant == tenant]
        return [_to_listed(row) for row in sorted(rows, key=lambda row: row.name)]

    async def delete(self, tenant: str, name: str) -> bool:
        def write(tables: Tables) -> bool:
            was_there = (tenant, name) in tables.variables
            tables.delete(tables.variables, (tenant, name))
            return was_there

        was_there: bool = await self._committer.commit(write)
        return was_there


def _to_listed(row: VariableRow) -> ListedVariable:
    size = len(msgspec.json.encode(row.value))
    return ListedVariable(row, None) if size <= LISTED_VALUE_LIMIT else ListedVariable(replace(row, value=None), size)


class MemorySecrets(MemoryTable, Secrets):
    """Secrets by tenant and name."""

    async def put(self, secret: StoredSecret) -> bool:
        row, key = times_to_utc(secret), (secret.tenant, secret.name)

        def write(tables: Tables) -> bool:
            stored = tables.secrets.get(key)
            is_next = row.version == (0 if stored is None else stored.version) + 1
            if is_next:
                tables.put(tables.secrets, key, row)
            return is_next

        is_written: bool = await self._committer.commit(write)
        return is_written

    async def get(self, tenant: str, name: str) -> StoredSecret | None:
        return self._tables.secrets.get((tenant, name))

    async def for_tenant(self, tenant: str) -> list[StoredSecret]:
        return sorted((row for row in self._tables.secrets.values() if row.tenant == tenant), key=lambda row: row.name)

    async def delete(self, tenant: str, name: str) -> bool:
        def write(tables: Tables) -> bool:
            was_there = (tenant, name) in tables.secrets
            tables.delete(tables.secrets, (tenant, name))
            return was_there

        was_there: bool = await self._committer.commit(write)
        return was_there

    async def list_not_wrapped_by(self, key_id: str, limit: int) -> list[StoredSecret]:
        rows = (self._tables.secrets[key] for key in sorted(self._tables.secrets))
        return [row for row in rows if row.key_id != key_id][:limit]

    async def rewrap(self, secret: StoredSecret, before: str) -> bool:
        def write(tables: Tables) -> bool:
            stored = tables.secrets.get((secret.tenant, secret.name))
            if stored is None or (stored.version, stored.key_id) != (secret.version, before):
                return False
            row = replace(stored, key_id=secret.key_id, wrapped_key=secret.wrapped_key)
            tables.put(tables.secrets, (secret.tenant, secret.name), row)
            return True

        is_rewrapped: bool = await self._committer.commit(write)
        return is_rewrapped
