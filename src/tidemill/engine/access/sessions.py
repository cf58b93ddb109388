"""Sessions of browsers, and the tickets with which they connect: opened, authenticated, closed."""

from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from tidemill.access.principal import Principal
from tidemill.access.tokens import IDLE_LIFETIME, LIFETIME, TICKET_LIFETIME, Session, Ticket, digest_token, new_secret
from tidemill.engine.access.audit_log import AuditLog
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError
from tidemill.kernel.ids import new_instance_id
from tidemill.storage.tables.sessions import Sessions, Tickets

USE_ACCURACY = timedelta(minutes=1)  # of `seen_at`
_KIND = "session:"


class NewSession(NamedTuple):
    """A new session, and its token, which only the browser keeps."""

    session: Session
    token: str


class SessionService:
    """Sessions of all tenants."""

    def __init__(self, sessions: Sessions, audit: AuditLog, clock: Clock) -> None:
        self._sessions = sessions
        self._audit = audit
        self._clock = clock

    async def open(self, principal: Principal, until: datetime | None = None) -> NewSession:
        """Open a session for a principal who has proved who they are; it ends at `until` at the latest."""
        now, id_, token = self._clock.now(), new_instance_id(), new_secret()
        session = Session(
            id=id_,
            tenant=principal.tenant,
            actor=principal.actor,
            principal=replace(principal, credential=f"{_KIND}{id_}"),
            created_at=now,
            seen_at=now,
            expires_at=now + LIFETIME if until is None else min(until, now + LIFETIME),
        )
        await self._sessions.add(session, digest_token(token))
        await self._audit.record(principal, "session.open", id_)
        return NewSession(session, token)

    async def authenticate(self, token: str) -> Principal:
        """Return the principal of a session's token; RequestError if the session has ended."""
        session = await self._sessions.find(digest_token(token))
        now = self._clock.now()
        if session is None or not session.is_valid(now):
            raise RequestError("the session has ended: sign in again", code="session_ended", status=401)
        if now - session.seen_at >= USE_ACCURACY:
            await self._sessions.record_use(session.id, now)
        return session.principal

    async def close(self, principal: Principal) -> None:
        """Close the session of a principal; nothing happens to one with a key."""
        kind, _, id_ = (principal.credential or "").partition(":")
        if kind == "session" and await self._sessions.delete(id_):
            await self._audit.record(principal, "session.close", id_)

    async def is_valid(self, id: str) -> bool:
        """Return whether a session has not ended."""
        session = await self._sessions.get(id)
        return session is not None and session.is_valid(self._clock.now())

    async def prune(self) -> int:
        """Delete the sessions that have ended; return their number."""
        now = self._clock.now()
        return await self._sessions.prune(now, now - IDLE_LIFETIME)


SESSION_ENDPOINT = "/session"
"""A ticket for this endpoint opens a session: the one-time link that `tidemill dev` prints."""


class NewTicket(NamedTuple):
    """The token of a new ticket, and when it expires."""

    token: str
    expires_at: datetime


class TicketService:
    """Tickets of all tenants. They are in the store, so that every server takes them."""

    def __init__(self, tickets: Tickets, clock: Clock) -> None:
        self._tickets = tickets
        self._clock = clock

    async def issue(self, principal: Principal, endpoint: str) -> NewTicket:
        """Return a ticket with which the principal may connect to an endpoint once."""
        expires_at, token = self._clock.now() + TICKET_LIFETIME, new_secret()
        ticket = Ticket(tenant=principal.tenant, endpoint=endpoint, principal=principal, expires_at=expires_at)
        await self._tickets.add(ticket, digest_token(token))
        return NewTicket(token, expires_at)

    async def redeem(self, token: str, endpoint: str) -> Principal:
        """Return the principal of a ticket, which is used up by this, even if it is for another endpoint."""
        ticket = await self._tickets.take(digest_token(token))
        if ticket is None or ticket.endpoint != endpoint or ticket.expires_at <= self._clock.now():
            message = f"the ticket is not valid for {endpoint}, was used before, or has expired: ask for another one"
            raise RequestError(message, code="invalid_ticket", status=401)
        return ticket.principal

    async def prune(self) -> int:
        """Delete the tickets that have expired; return their number."""
        return await self._tickets.prune(self._clock.now())
