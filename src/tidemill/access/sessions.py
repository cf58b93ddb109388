"""Sessions of browsers, and tickets, which stand for a principal once."""

from datetime import datetime, timedelta

import msgspec

from tidemill.access.principal import Principal

IDLE_LIFETIME = timedelta(hours=12)  # of a session without a request
LIFETIME = timedelta(days=7)  # of any session
TICKET_LIFETIME = timedelta(seconds=60)


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that has signed in, as it is stored: everything but its token."""

    id: str
    tenant: str
    actor: str
    principal: Principal
    created_at: datetime
    seen_at: datetime
    """Accurate to a minute."""
    expires_at: datetime

    def is_valid(self, now: datetime) -> bool:
        """Return whether the session is neither too old nor idle for too long."""
        return now < self.expires_at and now < self.seen_at + IDLE_LIFETIME


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """Permission for one connection to one endpoint, as it is stored: everything but its token."""

    tenant: str
    endpoint: str
    principal: Principal
    expires_at: datetime
