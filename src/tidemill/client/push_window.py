"""The window of a pusher: events that wait to be sent, and frames that wait for their acknowledgement.

It does no I/O. Frames are numbered, sent in order, and kept until the server has acknowledged them; after a reconnect,
those that the server does not know are sent again.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tidemill.api.errors import ProblemDetails, to_error
from tidemill.graphs.pushes import PushProblem
from tidemill.kernel.durations import Duration, parse_duration
from tidemill.kernel.errors import OperationError, RequestError

FRAME_SIZE_LIMIT = 1024 * 1024
"""Bytes of events after which a frame is complete; the server accepts frames of four times that."""


class PusherOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a pusher."""

    batch: int = 256
    """The number of events of a frame."""
    window: int = 32
    """The number of frames that may wait for their acknowledgement; a push waits while it is reached."""
    linger: Duration = "20ms"
    """How long an event waits for its batch to fill up."""
    raises: bool = True
    """Whether the end of the block raises an error if events were not accepted; `problems` lists them anyway."""

    def __post_init__(self) -> None:
        if self.batch < 1 or self.window < 1:
            raise RequestError("batch and window are at least 1", code="invalid_pusher")
        try:
            parse_duration(self.linger)
        except ValueError as error:
            raise RequestError(f"linger: {error}", code="invalid_pusher") from None

    @property
    def linger_seconds(self) -> float:
        """How long an event waits for its batch to fill up, in seconds."""
        return parse_duration(self.linger)


class EventFrame(msgspec.Struct, frozen=True):
    """A frame to the server: a batch of encoded events."""

    seq: int
    events: list[msgspec.Raw]


class Acknowledgement(msgspec.Struct, frozen=True):
    """A frame from the server: which frame it has processed, with counts by outcome; or where it continues."""

    seq: int | None = None
    receipts: Mapping[str, int] = {}
    problems: list[PushProblem] = []
    resume_after: int | None = None
    error: ProblemDetails | None = None
    """Why nothing of the frame was pushed."""


class _SentFrame(msgspec.Struct, frozen=True):
    seq: int
    first: int
    """The number of its first event."""
    size: int
    data: bytes


def encode_event(event: Any) -> msgspec.Raw:
    """Return an event as it is sent; RequestError if it has no such form. An encoded one is returned unchanged."""
    if isinstance(event, msgspec.Raw):
        return event
    try:
        return msgspec.Raw(msgspec.msgpack.encode(event))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RequestError(f"this event cannot be sent: {error}", code="not_serializable") from error


class PushWindow:
    """Collects events into frames, and frames until they are acknowledged."""

    def __init__(self, *, batch: int, frames: int) -> None:
        self.problems: list[PushProblem] = []
        """Their `index` counts all events that were added, from 0."""
        self.counts: Counter[str] = Counter()
        self._batch = batch
        self._frames = frames
        self._buffer: list[msgspec.Raw] = []
        self._buffer_size = 0
        self._unsent: deque[_SentFrame] = deque()
        self._unacknowledged: deque[_SentFrame] = deque()
        self._last_seq = 0
        self._pushed = 0

    @property
    def has_room(self) -> bool:
        """Whether another event may be added: the frames in flight are fewer than the limit."""
        return len(self._unacknowledged) + len(self._unsent) < self._frames

    @property
    def is_settled(self) -> bool:
        """Whether every event was acknowledged."""
        return not (self._buffer or self._unsent or self._unacknowledged)

    @property
    def has_buffered(self) -> bool:
        """Whether events wait for their batch to fill up."""
        return bool(self._buffer)

    def add(self, event: msgspec.Raw) -> bool:
        """Add an encoded event; return whether a frame is complete."""
        self._buffer.append(event)
        self._buffer_size += len(bytes(event))
        if len(self._buffer) < self._batch and self._buffer_size < FRAME_SIZE_LIMIT:
            return False
        self.flush()
        return True

    def flush(self) -> None:
        """Complete a frame of the buffered events."""
        if not self._buffer:
            return
        events, self._buffer, self._buffer_size = self._buffer, [], 0
        self._last_seq += 1
        data = msgspec.msgpack.encode(EventFrame(self._last_seq, events))
        self._unsent.append(_SentFrame(self._last_seq, self._pushed, len(events), data))
        self._pushed += len(events)

    def frames_to_send(self) -> Iterator[bytes]:
        """Yield the complete frames, each of which counts as sent then."""
        while self._unsent:
            frame = self._unsent.popleft()
            self._unacknowledged.append(frame)
            yield frame.data

    def acknowledge(self, ack: Acknowledgement) -> None:
        """Take an acknowledgement; raises the problem that it reports, and if it is not of the oldest frame."""
        if ack.error is not None:
            raise to_error(ack.error)
        if ack.seq is None:
            return
        if not self._unacknowledged or self._unacknowledged[0].seq != ack.seq:
            raise OperationError(f"the server acknowledged frame {ack.seq} out of order")
        frame = self._unacknowledged.popleft()
        self.counts.update(ack.receipts)
        self.problems += [PushProblem(frame.first + one.index, one.outcome, one.reason) for one in ack.problems]

    def resume(self, after: int | None) -> None:
        """Continue on a new connection: the server has processed the frames up to a number; send the others again.

        The outcome of frames whose acknowledgement was lost is not known; they count as "resumed".
        """
        frames = [*self._unacknowledged, *self._unsent]
        known = [frame for frame in frames if after is not None and frame.seq <= after]
        self.counts["resumed"] += sum(frame.size for frame in known)
        self._unacknowledged.clear()
        self._unsent = deque(frames[len(known) :])
