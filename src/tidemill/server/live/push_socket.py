"""`/ws/accumulators/{name}`: pushes events to an accumulator, in order, each frame acknowledged.

One task reads frames into a bounded buffer, another pushes them and answers. Where events share a commit, the frames
that came during the last commit are pushed together.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from litestar.params import FromPath, FromQuery

from tidemill.api.errors import code_and_status, detail_of, to_problem
from tidemill.graphs.outcomes import Receipt
from tidemill.graphs.pushes import ProducerPosition, PushSummary
from tidemill.kernel.concurrency import FirstErrorGroup
from tidemill.kernel.errors import NotFoundError, TidemillError
from tidemill.server.live.closing import ClientGoneError, CloseCode, CloseError, bad_frame
from tidemill.server.live.codecs import decode_frame
from tidemill.server.live.connection import Endpoint, LiveSession, LiveSocket, serve_session
from tidemill.server.live.frame_buffer import FrameBuffer
from tidemill.server.live.push_frames import PushError, PushFrame, ResumeFrame, acknowledge, has_problems
from tidemill.server.pushes import receipt_without_store, without_store
from tidemill.server.request_context import request_id_of

RETRIED_STATUSES = (429, 500, 503)
"""Statuses of errors after which a client with an id connects again, and repeats what was not taken."""
DRAIN_SECONDS = 10.0
"""Seconds that the frames before the end of a connection may take."""


async def push_socket(
    socket: LiveSocket,
    name: FromPath[str],
    ack: FromQuery[str] = "all",
    client: FromQuery[str | None] = None,
) -> None:
    """Push events to an accumulator over a WebSocket."""

    async def serve(session: LiveSession, group: FirstErrorGroup) -> None:
        if ack not in ("all", "none"):
            raise bad_frame(f"ack is 'all' or 'none', not {ack!r}")
        pusher = Pusher(session, name, client, request_id_of(socket.scope), answers_all=ack == "all")
        await pusher.serve(group)

    await serve_session(socket, serve, Endpoint("accumulator", name))


class _Push(NamedTuple):
    """A frame with its encoded events."""

    frame: PushFrame
    events: list[bytes]


class Pusher:
    """Pushes the frames of one connection."""

    def __init__(
        self, session: LiveSession, name: str, client: str | None, request_id: str, *, answers_all: bool
    ) -> None:
        self._connection = session.connection
        self._graph_client = session.context.node.graph_client
        self._caller = session.caller
        self._name = name
        self._client = client
        self._request_id = request_id
        self._answers_all = answers_all
        self._encoding = session.connection.codec.name
        self._decoder = session.connection.codec.decoder(PushFrame)
        self._buffer = FrameBuffer()
        self._is_client_gone = False

    async def serve(self, group: FirstErrorGroup) -> None:
        """Push frames until the connection ends."""
        if self._client is not None:
            last = await self._graph_client.last_position(self._caller, self._name, self._client)
            await self._connection.send(ResumeFrame(last))
        pushing = group.start("connection: push", self._push_frames())
        try:
            while True:
                await self._buffer.put(self._connection.codec.payload(await self._connection.receive()))
        except (ClientGoneError, CloseError) as error:
            self._buffer.end(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await pushing
            raise

    async def _push_frames(self) -> None:
        while True:
            await self._buffer.wait()
            pushes = [self._take()] if self._client is not None else await self._take_together()
            try:
                receipts = await self._push(pushes)
            except NotFoundError as error:
                raise CloseError(CloseCode.UNLOADED, str(error)) from error
            except TidemillError as error:
                if self._client is not None and code_and_status(error)[1] in RETRIED_STATUSES:
                    raise CloseError(CloseCode.TRY_AGAIN, detail_of(error)) from error
                problem = to_problem(error, self._request_id)
                for one in pushes:
                    await self._send(PushError(one.frame.seq, problem))
            else:
                await self._acknowledge(pushes, receipts)
                if self._client is not None:
                    _check_taken(receipts)

    # -- taking frames

    def _take(self) -> _Push:
        frame: PushFrame = decode_frame(self._decoder, self._buffer.take())
        return _Push(frame, frame.encoded_events())

    async def _take_together(self) -> list[_Push]:
        """Return the oldest frame, and those behind it that can share its commit without waiting for space."""
        pushes = [self._take()]
        if self._buffer.is_empty:
            return pushes
        space = await self._graph_client.batch_space(self._caller, self._name) - len(pushes[0].events)
        while space > 0 and not self._buffer.is_empty:
            raw = self._buffer.take()
            try:
                frame: PushFrame = decode_frame(self._decoder, raw)
                push = _Push(frame, frame.encoded_events())
            except CloseError as error:  # after those before it
                self._buffer.fail(error)
                break
            if len(push.events) > space:
                self._buffer.put_back(raw)
                break
            pushes.append(push)
            space -= len(push.events)
        return pushes

    # -- pushing and answering

    async def _push(self, pushes: list[_Push]) -> Sequence[Receipt]:
        """Push the events of some frames, and return the receipts of all of them."""
        frame, events = pushes[0]
        if self._client is not None:
            position = ProducerPosition(self._client, _whole_number(frame.seq))
            return (await self._push_many(events, position)).receipts
        if len(pushes) == 1 and len(events) == 1:
            receipt = await self._graph_client.push(self._caller, self._name, events[0], self._encoding)
            return [receipt_without_store(receipt)]
        return (await self._push_many([event for one in pushes for event in one.events])).receipts

    async def _push_many(self, events: list[bytes], position: ProducerPosition | None = None) -> PushSummary:
        summary = await self._graph_client.push_many(self._caller, self._name, events, self._encoding, position)
        return without_store(summary)

    async def _acknowledge(self, pushes: list[_Push], receipts: Sequence[Receipt]) -> None:
        start = 0
        for frame, events in pushes:
            own = receipts if len(pushes) == 1 else receipts[start : start + len(events)]
            ack = acknowledge(frame, own)
            if self._answers_all or has_problems(ack):
                await self._send(ack)
            start += len(events)

    async def _send(self, answer: Any) -> None:
        """Send an answer; frames of a client that has gone are still pushed."""
        if self._is_client_gone:
            return
        try:
            await self._connection.send(answer)
        except ClientGoneError:
            self._is_client_gone = True


def _check_taken(receipts: Sequence[Receipt]) -> None:
    """End the connection after a numbered push that was rejected.

    The pushes behind it must not overtake it: the client would be told to continue after them, and its push be lost.
    """
    if receipts and all(receipt.outcome == "rejected" for receipt in receipts):
        raise CloseError(CloseCode.TRY_AGAIN, receipts[0].reason or "the push was rejected")


def _whole_number(seq: float | None) -> int:
    if not isinstance(seq, int):
        raise bad_frame('bad frame: with ?client= every frame has a "seq", a growing whole number')
    return seq
