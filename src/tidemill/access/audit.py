"""Audit entries: who has changed what, when, and by which request."""

from collections.abc import Callable, Mapping
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


class PendingEntry:
    """An entry that is written in the same transaction as its change."""

    def __init__(self, make: Callable[[Mapping[str, Any]], AuditRow], publish: Callable[[AuditRow], None]) -> None:
        self._make = make
        self._publish = publish
        self._entry: AuditRow | None = None

    def of_run(self, run: str) -> AuditRow:
        """Return the entry on the start of a run."""
        return self.with_details({"run": run})

    def with_details(self, details: Mapping[str, Any]) -> AuditRow:
        """Return the entry with further facts."""
        self._entry = self._make(details)
        return self._entry

    def publish(self) -> None:
        """Tell the followers of the audit log, after the change; nothing was written if there was no change."""
        if self._entry is not None:
            self._publish(self._entry)
