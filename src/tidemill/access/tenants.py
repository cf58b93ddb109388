"""Tenants: the owners of names, of everything that is stored under them, and of the keys that open it."""

from datetime import datetime

import msgspec


class TenantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant."""

    name: str
    created_at: datetime
    created_by: str
