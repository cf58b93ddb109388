"""The port of the mailbox: requests from nodes to the owners of reactors and accumulators, and their answers.

A request names the part that it is for, not a node: whichever node owns the part when the request is read serves it.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from tidemill.storage.graph_ports import PartKey


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the owner of a part. Its id sorts by age."""

    id: str
    target: PartKey
    sender: str
    """The node that waits for the answer."""
    operation: str
    payload: bytes
    at: datetime
    applied: bytes | None = None
    """The answer of a push that was numbered by this request's id and committed, in case its owner died before it
    answered; only in requests that were read."""


class StoredAnswer(NamedTuple):
    """The answer to a request."""

    request: str
    payload: bytes


class Mailbox(Protocol):
    """Requests that wait for their answers, and answers that wait for their readers.

    Other stores on the same database are notified of both: the topic is "mail".
    """

    async def send(self, request: StoredRequest) -> None:
        """Add a request."""

    async def read_requests(self, owner: str, known: Collection[str] = ()) -> list[StoredRequest]:
        """Return the requests without an answer for the parts that a node owns, except known ones, oldest first."""

    async def answer(self, answer: StoredAnswer) -> None:
        """Answer a request; ignored if the request was deleted, or has an answer."""

    async def read_answers(self, sender: str) -> list[StoredAnswer]:
        """Return the answers to the requests of a node."""

    async def delete(self, requests: Sequence[StoredRequest]) -> None:
        """Delete requests, with their answers, and with what producers named like them have pushed to their targets."""

    async def delete_before(self, before: datetime) -> None:
        """Delete the requests before a time, of all nodes, with their answers."""
