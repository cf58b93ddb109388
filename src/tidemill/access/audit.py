"""Audit entries: who has changed what, when, and by which request."""

from datetime import datetime
from typing import Any

import msgspec


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """One change that a principal has made."""

    id: str
    """Sorts by the time of the entry."""
    at: datetime
    tenant: str
    """The tenant whose data was changed."""
    actor: str
    action: str
    """A noun and a verb, such as "key.create"."""
    target: str
    """The name or the id of what was changed."""
    details: dict[str, Any] = {}
    """Further facts, never a secret."""
    request_id: str | None = None
