"""Keys that may sign packages, in PostgreSQL."""

from typing import Any

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.package_ports import TrustedKey, TrustedKeys
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.times import check_times
from tidemill.storage.postgres.writes import Rows, Unit, Write
from tidemill.storage.queries import Queries


class PostgresTrustedKeys(TrustedKeys):
    """Who may sign packages, in a table."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def put(self, key: TrustedKey) -> None:
        check_times(key)
        row = (key.tenant, key.id, key.text, key.at)
        await self._committer.commit(Write((Rows(self._queries.trust_key, [row]),)))

    async def remove(self, tenant: str, id: str) -> bool:
        async def delete(connection: Any) -> bool:
            return bool(await connection.fetch(self._queries.distrust_key, tenant, id))

        was_trusted: bool = await self._committer.commit(delete)
        return was_trusted

    async def of(self, tenant: str) -> list[TrustedKey]:
        return [TrustedKey(**row) for row in await self._database.read(self._queries.trusted_keys, tenant)]
