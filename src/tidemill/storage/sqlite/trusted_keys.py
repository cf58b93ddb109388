"""Keys that may sign packages, in SQLite."""

from tidemill.storage.package_ports import TrustedKey, TrustedKeys
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.database import Database
from tidemill.storage.sqlite.times import from_micros, to_micros


class SqliteTrustedKeys(TrustedKeys):
    """The table `trusted_keys`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def put(self, key: TrustedKey) -> None:
        row = (key.tenant, key.id, key.text, to_micros(key.at))
        await self._database.write_many(self._queries.trust_key, [row])

    async def remove(self, tenant: str, id: str) -> bool:
        return await self._database.write(
            lambda connection: connection.execute(self._queries.distrust_key, (tenant, id)).rowcount == 1
        )

    async def of(self, tenant: str) -> list[TrustedKey]:
        rows = await self._database.rows(self._queries.keys_of, (tenant,))
        return [TrustedKey(tenant=of, id=id_, text=text, at=from_micros(at)) for of, id_, text, at in rows]
