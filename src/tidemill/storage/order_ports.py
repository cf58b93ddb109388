"""Ports of remote attempts: their orders, which any server on the store hands out, and the code that they run."""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

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
    """Names the process that has begun it; None before that."""

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


class AttemptOrders(Protocol):
    """Orders of remote attempts."""

    async def instance(self, candidate: str) -> str:
        """Return the identity of this store, the same for all nodes on it: the candidate of the first caller."""

    async def put(self, order: AttemptOrder) -> None:
        """Write an order, in place of the one of its attempt."""

    async def find_holder(self, digest: bytes) -> TokenHolder | None:
        """Return the attempt whose token has a digest. Every call of an attempt asks: it does not read the order."""

    async def get(self, key: AttemptKey) -> AttemptOrder | None:
        """Return the order of an attempt."""

    async def begin(self, key: AttemptKey, process: str) -> bool:
        """Record which process begins an attempt; False if another one has begun it, or there is no order."""

    async def claims(self, keys: Collection[AttemptKey]) -> dict[AttemptKey, AttemptClaim]:
        """Return the claims of those of some attempts that are queued or running; the others are over."""

    async def prune(self, before: datetime) -> int:
        """Delete orders from before a time whose attempts are over; return their number."""


class CodeBundles(Protocol):
    """The code of remote attempts: archives by tenant and digest."""

    async def touch(self, tenant: str, digest: str, at: datetime) -> bool:
        """Record that a bundle is about to be ordered, so that it stays; False if there is no such bundle."""

    async def add(self, tenant: str, digest: str, archive: bytes, at: datetime) -> None:
        """Write a bundle; one with its digest stays as it is."""

    async def read(self, tenant: str, digest: str) -> bytes | None:
        """Return the archive of a bundle."""

    async def prune(self, before: datetime) -> int:
        """Delete bundles that were last ordered before a time, and that no order needs; return their number."""
