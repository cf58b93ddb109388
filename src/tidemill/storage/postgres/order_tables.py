"""Tables of remote attempts in PostgreSQL: orders, code bundles."""

from collections.abc import Collection
from datetime import datetime

from tidemill.storage.order_ports import AttemptClaim, AttemptOrder, AttemptOrders, CodeBundles, TokenHolder
from tidemill.storage.postgres.database import PostgresTable
from tidemill.storage.postgres.row_codecs import make_codec, parameter
from tidemill.storage.postgres.writes import StatementRows, to_columns
from tidemill.storage.queries import check_timezone
from tidemill.storage.row_codec import make_fragments
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.states import TaskState

_ORDER = make_codec(AttemptOrder)

ORDER_FRAGMENTS = make_fragments({"order": _ORDER}, parameter)
"""What statements may name in braces."""


class PostgresAttemptOrders(PostgresTable, AttemptOrders):
    """The tables `attempt_orders` and `instance`."""

    async def instance(self, candidate: str) -> str:
        await self._write(StatementRows(self._queries.add_instance, [(candidate,)]))
        ((found,),) = await self._read(self._queries.instance)
        return str(found)

    async def put(self, order: AttemptOrder) -> None:
        await self._write(StatementRows(self._queries.put_order, [_ORDER.encode(order)]))

    async def find_holder(self, digest: bytes) -> TokenHolder | None:
        rows = await self._read(self._queries.holder_of_token, digest)
        return TokenHolder(AttemptKey(*tuple(rows[0])[:4]), rows[0]["tenant"]) if rows else None

    async def get(self, key: AttemptKey) -> AttemptOrder | None:
        rows = await self._read(self._queries.order_of_attempt, *key)
        return _ORDER.decode(tuple(rows[0])) if rows else None

    async def begin(self, key: AttemptKey, process: str) -> bool:
        return bool(await self._write_returning(self._queries.begin_order, process, *key))

    async def claims(self, keys: Collection[AttemptKey]) -> dict[AttemptKey, AttemptClaim]:
        if not keys:
            return {}
        columns = to_columns([tuple(key) for key in sorted(keys)])
        rows = await self._read(self._queries.claims_of_attempts, *columns)
        return {AttemptKey(*row[:4]): AttemptClaim(row[4], TaskState(row[5])) for row in map(tuple, rows)}

    async def prune(self, before: datetime) -> int:
        check_timezone(before)
        return len(await self._write_returning(self._queries.prune_orders, before))


class PostgresCodeBundles(PostgresTable, CodeBundles):
    """The table `code_bundles`."""

    async def touch(self, tenant: str, digest: str, at: datetime) -> bool:
        check_timezone(at)
        return bool(await self._write_returning(self._queries.touch_bundle, at, tenant, digest))

    async def add(self, tenant: str, digest: str, archive: bytes, at: datetime) -> None:
        check_timezone(at)
        await self._write(StatementRows(self._queries.add_bundle, [(tenant, digest, archive, at)]))

    async def read(self, tenant: str, digest: str) -> bytes | None:
        rows = await self._read(self._queries.bundle, tenant, digest)
        return rows[0][0] if rows else None

    async def prune(self, before: datetime) -> int:
        check_timezone(before)
        return len(await self._write_returning(self._queries.prune_bundles, before))
