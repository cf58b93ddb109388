"""Tickets: a browser cannot send a header with a WebSocket, so it sends a ticket, which is used once and soon."""

from datetime import datetime
from typing import NamedTuple

from tidemill.access.principal import Principal
from tidemill.access.sessions import TICKET_LIFETIME, Ticket
from tidemill.access.tokens import digest_token, new_secret
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError
from tidemill.storage.tables.sessions import Tickets

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
