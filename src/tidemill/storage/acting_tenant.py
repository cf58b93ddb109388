"""The tenant that a request acts for: stores that can, read nothing else on its behalf.

Routes name the tenant in every query. This is the second wall, for a query that forgets it: PostgreSQL applies
row-level security to the reads of the request. It holds in the task that handles the request, and not in tasks that it
starts, because these may belong to the engine, which works for every tenant.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

EVERY_TENANT = "*"
"""What the engine acts for."""

_acting: ContextVar[tuple[str, Any] | None] = ContextVar("acting_tenant", default=None)


@contextmanager
def acting_for(tenant: str) -> Iterator[None]:
    """Restrict the reads of this task to a tenant."""
    token = _acting.set((tenant, asyncio.current_task()))
    try:
        yield
    finally:
        _acting.reset(token)


def acting_tenant() -> str | None:
    """Return the tenant that this task acts for; None if it belongs to the engine."""
    acting = _acting.get()
    return acting[0] if acting is not None and acting[1] is asyncio.current_task() else None
