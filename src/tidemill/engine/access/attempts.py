"""Authenticates remote attempts by their tokens."""

from datetime import timedelta

from tidemill.access.principal import Principal, Role
from tidemill.access.tokens import digest_token
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError
from tidemill.storage.tables.orders import AttemptOrders, CodeBundles

KEPT = timedelta(hours=1)
"""How long an order stays at least, even if its attempt is over sooner: a late unit learns that it is not wanted."""


class AttemptAuthentication:
    """Finds the attempt that a token belongs to."""

    def __init__(self, orders: AttemptOrders, bundles: CodeBundles, clock: Clock) -> None:
        self._orders = orders
        self._bundles = bundles
        self._clock = clock

    async def authenticate(self, token: str) -> Principal:
        """Return the principal of an attempt, which may do nothing but the calls of that attempt.

        Whether the attempt is still wanted, each call checks: the answer to one that is not says so.
        """
        holder = await self._orders.find_holder(digest_token(token))
        if holder is None:
            message = "the token of the attempt is not valid: it never was, or the attempt is over"
            raise RequestError(message, code="invalid_attempt_token", status=401)
        return Principal(
            tenant=holder.tenant,
            role=Role.READ,
            actor=f"attempt:{holder.key}",
            credential=f"attempt:{holder.key}",
            attempt=holder.key,
        )

    async def prune(self) -> None:
        """Delete the orders of attempts that are over, with their tokens, and the code that no order needs."""
        before = self._clock.now() - KEPT
        await self._orders.prune(before)
        await self._bundles.prune(before)
