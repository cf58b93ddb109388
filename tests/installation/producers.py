"""Clients that push events: over HTTP with keys, over WebSocket with numbered frames, and with the client's pusher."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.installation.front import REQUEST_TIMEOUT, Front
from tests.installation.journal import Event, EventsAnswered, EventsSent
from tests.installation.package_under_test import ACCOUNTS
from tidemill.kernel.backoff import Retry
from tidemill.kernel.errors import TidemillError

REFUSAL_LIMIT = 15.0  # seconds of one refusal, after which events are pushed under another key; longer than any freeze
FRAME = 4  # events of a frame of the keyed reactor, each of another account
SESSION = 60  # events that one pusher takes
CONNECTION_ERRORS = (OSError, TimeoutError, ConnectionClosed, InvalidHandshake)


def body_of(event: Event) -> dict[str, Any]:
    """Return an event as it is sent."""
    return {"producer": event.producer, "number": event.number, "account": event.account}


class NumberedEvents:
    """Gives a producer its events: those of the ledger, or of some accounts at a time, with numbers that grow."""

    def __init__(self, reactor: str, producer: str) -> None:
        self._reactor = reactor
        self._producer = producer
        self._numbers = Counter[str]()

    def take(self) -> list[Event]:
        """Return the next events; no two of them have the same account."""
        accounts = [""] if self._reactor == "ledger" else random.sample(ACCOUNTS, FRAME)
        self._numbers.update(accounts)
        return [Event(self._reactor, self._producer, self._numbers[account], account) for account in accounts]


async def push_over_http(front: Front, name: str, reactor: str, accumulator: str) -> None:
    """Push events with `Idempotency-Key`; those that were rejected are pushed again under another key."""
    numbered, keys = NumberedEvents(reactor, name), count(1)
    while not front.is_closing.is_set():
        events = numbered.take()
        while events and not front.is_over.is_set():
            front.journal.write(EventsSent(events))
            lines = b"\n".join(json.dumps(body_of(event)).encode() for event in events)
            answer = await front.post_until_answered(
                f"/accumulators/{accumulator}/events",
                f"{name}-{next(keys)}",
                refusal_limit=REFUSAL_LIMIT,
                content=lines,
                headers={"content-type": "application/x-ndjson"},
            )
            if answer is None:
                return
            if answer.status < 300:
                receipts = answer.body["receipts"]
                rejected = [event for event, one in zip(events, receipts, strict=True) if one["outcome"] == "rejected"]
                write_answer(front, events, rejected, str(answer.body))
                events = rejected
            else:
                front.journal.write(EventsAnswered(events, is_accepted=False, reason=str(answer)))
        await front.pause()


def write_answer(front: Front, events: Sequence[Event], rejected: Sequence[Event], reason: str) -> None:
    """Write which events were acknowledged, and which rejected."""
    if accepted := [event for event in events if event not in rejected]:
        front.journal.write(EventsAnswered(accepted, is_accepted=True))
    if rejected:
        front.journal.write(EventsAnswered(list(rejected), is_accepted=False, reason=reason))


class SocketProducer:
    """Pushes frames over WebSocket, one at a time; after a lost connection it repeats the frame under its number."""

    def __init__(self, front: Front, name: str, reactor: str, accumulator: str) -> None:
        self._front = front
        self._path = f"/ws/accumulators/{accumulator}?client={name}"
        self._numbered = NumberedEvents(reactor, name)
        self._events: list[Event] = []
        self._sequence = 0

    async def run(self) -> None:
        """Push until the end."""
        while not self._front.is_over.is_set() and not self._is_done:
            url = self._front.url().replace("http", "ws", 1) + self._path
            headers = {"authorization": f"Bearer {self._front.key}"}
            with suppress(*CONNECTION_ERRORS):
                async with connect(
                    url, additional_headers=headers, open_timeout=REQUEST_TIMEOUT, close_timeout=0.2, ping_timeout=None
                ) as socket:
                    await self._receive(socket)
                    await self._push(socket)
            await self._front.pause()

    @property
    def _is_done(self) -> bool:
        return self._front.is_closing.is_set() and not self._events

    async def _push(self, socket: ClientConnection) -> None:
        while not self._is_done:
            if not self._events:
                self._events = self._numbered.take()
                self._next_frame()
            frame = {"seq": self._sequence, "events": [body_of(event) for event in self._events]}
            await socket.send(json.dumps(frame))
            answer = await self._receive(socket)
            assert answer["seq"] == self._sequence
            if "error" not in answer:  # else nothing of it was pushed, and it is repeated
                rejected = [self._events[one["index"]] for one in answer["problems"] if one["outcome"] == "rejected"]
                write_answer(self._front, self._events, rejected, str(answer))
                self._events = rejected
                if rejected:
                    self._next_frame()
            await self._front.pause()

    def _next_frame(self) -> None:
        self._sequence += 1
        self._front.journal.write(EventsSent(self._events))

    async def _receive(self, socket: ClientConnection) -> Any:
        return json.loads(await asyncio.wait_for(socket.recv(), REQUEST_TIMEOUT))


async def push_with_client(front: Front, name: str, reactor: str, accumulator: str) -> None:
    """Push with the pusher of the library; each one is a producer of its own, since a failed one is not repeated."""
    for session in count(1):
        if front.is_closing.is_set():
            return
        numbered, sent = NumberedEvents(reactor, f"{name}-{session}"), list[Event]()
        async with front.client(retry=Retry(40, delay=0.1, max_delay=0.5)) as client:
            try:
                async with client.pusher(accumulator, batch=5, raises=False) as push:
                    while len(sent) < SESSION and not front.is_closing.is_set():
                        events = numbered.take()
                        front.journal.write(EventsSent(events))
                        for event in events:
                            sent.append(event)
                            await push(body_of(event))
                        await front.pause()
                    await push.flush()
            except TidemillError:
                pass  # unknown: its events were applied in order, up to one of them
            else:
                write_answer(front, sent, [sent[one.index] for one in push.problems], "problem of a pusher")
        await front.pause()
