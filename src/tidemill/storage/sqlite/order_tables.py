"""Tables of remote attempts in SQLite: orders, code bundles."""

import sqlite3
from collections.abc import Collection
from datetime import datetime

from tidemill.storage.order_ports import AttemptClaim, AttemptOrder, AttemptOrders, CodeBundles, TokenHolder
from tidemill.storage.row_codec import RowCodec, make_fragments
from tidemill.storage.sqlite.database import SqliteTable
from tidemill.storage.sqlite.run_rows import from_micros, to_micros
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.states import TaskState

_ORDER = RowCodec(AttemptOrder, to_micros, from_micros)

ORDER_FRAGMENTS = make_fragments({"order": _ORDER}, lambda _: "?")
"""What statements may name in braces."""


class SqliteAttemptOrders(SqliteTable, AttemptOrders):
    """The tables `attempt_orders` and `instance`."""

    async def instance(self, candidate: str) -> str:
        def write(connection: sqlite3.Connection) -> str:
            connection.execute(self._queries.add_instance, (candidate,))
            (found,) = connection.execute(self._queries.instance).fetchone()
            return str(found)

        return await self._write(write)

    async def put(self, order: AttemptOrder) -> None:
        await self._execute_many(self._queries.put_order, [_ORDER.encode(order)])

    async def find_holder(self, digest: bytes) -> TokenHolder | None:
        rows = await self._fetch_all(self._queries.holder_of_token, (digest,))
        return TokenHolder(AttemptKey(*rows[0][:4]), rows[0][4]) if rows else None

    async def get(self, key: AttemptKey) -> AttemptOrder | None:
        rows = await self._fetch_all(self._queries.order_of_attempt, key)
        return _ORDER.decode(rows[0]) if rows else None

    async def begin(self, key: AttemptKey, process: str) -> bool:
        statement, values = self._queries.begin_order, {"process": process, **key._asdict()}
        return await self._write(lambda connection: connection.execute(statement, values).rowcount == 1)

    async def claims(self, keys: Collection[AttemptKey]) -> dict[AttemptKey, AttemptClaim]:
        def query(connection: sqlite3.Connection) -> dict[AttemptKey, AttemptClaim]:
            found = {key: connection.execute(self._queries.claim_of_attempt, key).fetchone() for key in keys}
            return {key: AttemptClaim(row[0], TaskState(row[1])) for key, row in found.items() if row is not None}

        return await self._database.read(query)

    async def prune(self, before: datetime) -> int:
        values = (to_micros(before),)
        return await self._write(lambda connection: connection.execute(self._queries.prune_orders, values).rowcount)


class SqliteCodeBundles(SqliteTable, CodeBundles):
    """The table `code_bundles`."""

    async def touch(self, tenant: str, digest: str, at: datetime) -> bool:
        statement, values = self._queries.touch_bundle, (to_micros(at), tenant, digest)
        return await self._write(lambda connection: connection.execute(statement, values).rowcount == 1)

    async def add(self, tenant: str, digest: str, archive: bytes, at: datetime) -> None:
        await self._execute_many(self._queries.add_bundle, [(tenant, digest, archive, to_micros(at))])

    async def read(self, tenant: str, digest: str) -> bytes | None:
        rows = await self._fetch_all(self._queries.bundle, (tenant, digest))
        return rows[0][0] if rows else None

    async def prune(self, before: datetime) -> int:
        values = (to_micros(before),)
        return await self._write(lambda connection: connection.execute(self._queries.prune_bundles, values).rowcount)
