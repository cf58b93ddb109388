"""Tables of remote attempts: their orders, which any server on the store hands out, and the code that they run."""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

import msgspec

from tidemill.storage.tables.database import RowCodec, Statement, Table
from tidemill.storage.tables.declared import of_instance, of_tenant
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.states import TaskState


class AttemptOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a unit is to run, stored before the unit is started. The digest of a token finds it."""

    run: str
    task: str
    element: int
    attempt: int
    tenant: str
    digest: bytes
    """Of the token that only this attempt has."""
    payload: bytes
    """The request and the location of its code, as the engine encodes them."""
    bundle: str | None
    """The digest of the code bundle that it needs, if it needs one."""
    created_at: datetime
    process: str | None = None
    """Names the process that started it; None before that."""

    @property
    def key(self) -> AttemptKey:
        """The attempt."""
        return AttemptKey(self.run, self.task, self.element, self.attempt)


class TokenHolder(NamedTuple):
    """The attempt that a token belongs to, and its tenant."""

    key: AttemptKey
    tenant: str


class AttemptClaim(NamedTuple):
    """The claim of an attempt that is queued or running."""

    owner: str
    state: TaskState


_ORDER = RowCodec(AttemptOrder)
_IS_ATTEMPT = "run = :run AND task = :task AND element = :element AND attempt = :attempt"

_ADD_INSTANCE = Statement("INSERT INTO {schema}instance (number, id) VALUES (1, :id) ON CONFLICT DO NOTHING")
_INSTANCE = Statement("SELECT id FROM {schema}instance")
_PUT_ORDER = Statement(
    """
    INSERT INTO {schema}attempt_orders ({columns}) VALUES ({parameters})
    ON CONFLICT (run, task, element, attempt) DO UPDATE SET {updates}
    """,
    _ORDER,
)
_HOLDER = Statement("SELECT run, task, element, attempt, tenant FROM {schema}attempt_orders WHERE digest = :digest")
_ORDER_OF = Statement(f"SELECT {{columns}} FROM {{schema}}attempt_orders WHERE {_IS_ATTEMPT}", _ORDER)
_BEGIN_ORDER = Statement(f"""
    UPDATE {{schema}}attempt_orders SET process = :process
    WHERE {_IS_ATTEMPT} AND coalesce(process, :process) = :process RETURNING run
""")
_CLAIMS = Statement("""
    SELECT run, task, element, attempt, claimed_by, state FROM {schema}task_runs
    WHERE run {in:runs} AND state IN {claimed_tasks}
""")
_PRUNE_ORDERS = Statement("""
    DELETE FROM {schema}attempt_orders AS o
    WHERE created_at < :before AND NOT EXISTS (
        SELECT 1 FROM {schema}task_runs AS t
        WHERE t.run = o.run AND t.task = o.task AND t.element = o.element AND t.attempt = o.attempt
            AND t.state IN {claimed_tasks}
    )
    RETURNING run
""")


class AttemptOrders(Table):
    """Orders of remote attempts."""

    tables = (*of_tenant("attempt_orders"), *of_instance("instance"))

    async def instance(self, candidate: str) -> str:
        """Return the identity of this store, the same for all nodes on it: the candidate of the first caller."""
        await self._put(_ADD_INSTANCE, id=candidate)
        [(found,)] = await self._database.fetch(_INSTANCE)
        return str(found)

    async def put(self, order: AttemptOrder) -> None:
        """Write an order, in place of the one of its attempt."""
        await self._put(_PUT_ORDER, **_ORDER.values(order))

    async def find_holder(self, digest: bytes) -> TokenHolder | None:
        """Return the attempt whose token has a digest. Every call of an attempt asks: it does not read the order."""
        for *key, tenant in await self._database.fetch(_HOLDER, digest=digest):
            return TokenHolder(AttemptKey(*key), tenant)
        return None

    async def get(self, key: AttemptKey) -> AttemptOrder | None:
        """Return the order of an attempt."""
        return await self._first(_ORDER, _ORDER_OF, **key._asdict())

    async def begin(self, key: AttemptKey, process: str) -> bool:
        """Record which process begins an attempt; False if another one has started it, or there is no order."""
        return bool(await self._change(_BEGIN_ORDER, **key._asdict(), process=process))

    async def claims(self, keys: Collection[AttemptKey]) -> dict[AttemptKey, AttemptClaim]:
        """Return the claims of those of some attempts that are queued or running; the others are over."""
        rows = await self._database.fetch(_CLAIMS, runs=sorted({key.run for key in keys}))
        claims = {AttemptKey(*key): AttemptClaim(owner, TaskState(state)) for *key, owner, state in rows}
        return {key: claims[key] for key in keys if key in claims}

    async def prune(self, before: datetime) -> int:
        """Delete orders from before a time whose attempts are over; return their number."""
        return len(await self._change(_PRUNE_ORDERS, before=before))


_TOUCH_BUNDLE = Statement("""
    UPDATE {schema}code_bundles SET ordered_at = {greatest}(ordered_at, :at)
    WHERE tenant = :tenant AND digest = :digest RETURNING digest
""")
_ADD_BUNDLE = Statement("""
    INSERT INTO {schema}code_bundles (tenant, digest, archive, ordered_at) VALUES (:tenant, :digest, :archive, :at)
    ON CONFLICT DO NOTHING
""")
_BUNDLE = Statement("SELECT archive FROM {schema}code_bundles WHERE tenant = :tenant AND digest = :digest")
_PRUNE_BUNDLES = Statement("""
    DELETE FROM {schema}code_bundles AS b
    WHERE ordered_at < :before AND NOT EXISTS (
        SELECT 1 FROM {schema}attempt_orders AS o WHERE o.tenant = b.tenant AND o.bundle = b.digest
    )
    RETURNING digest
""")


class CodeBundles(Table):
    """The code of remote attempts: archives by tenant and digest."""

    tables = of_tenant("code_bundles")

    async def touch(self, tenant: str, digest: str, at: datetime) -> bool:
        """Record that a bundle is about to be ordered, so that it stays; False if there is no such bundle."""
        return bool(await self._change(_TOUCH_BUNDLE, tenant=tenant, digest=digest, at=at))

    async def add(self, tenant: str, digest: str, archive: bytes, at: datetime) -> None:
        """Write a bundle; one with its digest stays as it is."""
        await self._put(_ADD_BUNDLE, tenant=tenant, digest=digest, archive=archive, at=at)

    async def read(self, tenant: str, digest: str) -> bytes | None:
        """Return the archive of a bundle."""
        rows = await self._database.fetch(_BUNDLE, tenant=tenant, digest=digest)
        return rows[0][0] if rows else None

    async def prune(self, before: datetime) -> int:
        """Delete bundles that were last ordered before a time, and that no order needs; return their number."""
        return len(await self._change(_PRUNE_BUNDLES, before=before))
