"""Tables of remote attempts in memory: orders, code bundles."""

from collections.abc import Collection
from datetime import datetime

from msgspec.structs import replace

from tidemill.storage.memory.tables import MemoryTable, Tables, times_to_utc, to_utc
from tidemill.storage.order_ports import AttemptClaim, AttemptOrder, AttemptOrders, CodeBundles, TokenHolder
from tidemill.workflows.records import AttemptKey


class MemoryAttemptOrders(MemoryTable, AttemptOrders):
    """Orders by attempt."""

    async def instance(self, candidate: str) -> str:
        def write(tables: Tables) -> str:
            if not tables.instance:
                tables.put(tables.instance, "id", candidate)
            return tables.instance["id"]

        found: str = await self._committer.commit(write)
        return found

    async def put(self, order: AttemptOrder) -> None:
        row = times_to_utc(order)
        await self._committer.commit(lambda tables: tables.put(tables.orders, row.key, row))

    async def find_holder(self, digest: bytes) -> TokenHolder | None:
        found = (TokenHolder(row.key, row.tenant) for row in self._tables.orders.values() if row.digest == digest)
        return next(found, None)

    async def get(self, key: AttemptKey) -> AttemptOrder | None:
        return self._tables.orders.get(key)

    async def begin(self, key: AttemptKey, process: str) -> bool:
        def write(tables: Tables) -> bool:
            order = tables.orders.get(key)
            if order is None or order.process not in (None, process):
                return False
            tables.put(tables.orders, key, replace(order, process=process))
            return True

        is_begun: bool = await self._committer.commit(write)
        return is_begun

    async def claims(self, keys: Collection[AttemptKey]) -> dict[AttemptKey, AttemptClaim]:
        found = ((key, find_claim(self._tables, key)) for key in keys)
        return {key: claim for key, claim in found if claim is not None}

    async def prune(self, before: datetime) -> int:
        until = to_utc(before)

        def write(tables: Tables) -> int:
            over = [
                key for key, row in tables.orders.items() if row.created_at < until and find_claim(tables, key) is None
            ]
            for key in over:
                tables.delete(tables.orders, key)
            return len(over)

        number: int = await self._committer.commit(write)
        return number


def find_claim(tables: Tables, key: AttemptKey) -> AttemptClaim | None:
    """Return the claim of an attempt; None if it is over."""
    row = tables.tasks.get(key.run, {}).get(key.task_key)
    if row is None or row.attempt != key.attempt or not row.state.is_claimed:
        return None
    return AttemptClaim(row.claimed_by or "", row.state)


class MemoryCodeBundles(MemoryTable, CodeBundles):
    """Bundles by tenant and digest, with the time of their last order."""

    async def touch(self, tenant: str, digest: str, at: datetime) -> bool:
        key, ordered_at = (tenant, digest), to_utc(at)

        def write(tables: Tables) -> bool:
            found = tables.code_bundles.get(key)
            if found is not None:
                tables.put(tables.code_bundles, key, (found[0], max(found[1], ordered_at)))
            return found is not None

        is_known: bool = await self._committer.commit(write)
        return is_known

    async def add(self, tenant: str, digest: str, archive: bytes, at: datetime) -> None:
        key, row = (tenant, digest), (archive, to_utc(at))

        def write(tables: Tables) -> None:
            if key not in tables.code_bundles:
                tables.put(tables.code_bundles, key, row)

        await self._committer.commit(write)

    async def read(self, tenant: str, digest: str) -> bytes | None:
        found = self._tables.code_bundles.get((tenant, digest))
        return None if found is None else found[0]

    async def prune(self, before: datetime) -> int:
        until = to_utc(before)

        def write(tables: Tables) -> int:
            needed = {(row.tenant, row.bundle) for row in tables.orders.values()}
            unused = [key for key, (_, at) in tables.code_bundles.items() if at < until and key not in needed]
            for key in unused:
                tables.delete(tables.code_bundles, key)
            return len(unused)

        number: int = await self._committer.commit(write)
        return number
