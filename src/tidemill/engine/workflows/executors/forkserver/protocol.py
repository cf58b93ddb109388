"""What the node, its fork servers and their children say to one another: msgpack with its length in front.

    node          fork server      child
     | --- Prepare --> |
     | <-- Prepared -- |
     | -------------- Order ------->         into the control socket, where the child will find it
     | --- Spawn ----> | -- fork --> |       with three descriptors: the control socket, stdout and stderr
     | <-- Spawned --- |             |
     | <---------- Said ... -------- |       over the control socket, as is what follows
     | <------------- Told --------- |
     | <-- Exited ---- |
     | --- Signal ---> |                     at any time

Who is cut off ends: a fork server whose socket to the node is closed kills its children, and so does a child itself.
"""

import os
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from tidemill.engine.workflows.executors.code import CodeLocation
from tidemill.engine.workflows.executors.interface import LogRecord
from tidemill.kernel import durations
from tidemill.workflows.attempt_results import AttemptResult, Deferred, Failed, Skipped, Succeeded

FRAME_LIMIT = 64 * 1024 * 1024
"""The longest message, in bytes, and so about the biggest value that a task in a process may return.

A text that author code wrote into the socket announces more than that with its first letters, and is found out by it.
"""

REQUEST_FRAME_LIMIT = 2**32 - 1
"""The longest message that can be announced at all: an order may be as long as that."""

_HEADER_SIZE = 4
FIRST_READ_SIZE = 448
"""How much is read at first. Most messages are shorter, and what Python's own allocator has room for touches least."""
_REST_READ_SIZE = 256 * 1024

ForkHooks = dict[str, Callable[[], Any]]
"""What `os.register_at_fork` is given."""


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """To a fork server: import this."""

    source: CodeLocation


class PrepareReply(msgspec.Struct, frozen=True, tag=True):
    """From a fork server: these workflows were found, each in this version; or why not."""

    versions: dict[str, str] = {}
    error: str = ""


class Spawn(msgspec.Struct, frozen=True, tag=True):
    """To a fork server: fork for a task."""

    number: int
    workflow: str
    task: str


class Signal(msgspec.Struct, frozen=True, tag=True):
    """To a fork server: send a signal to the process group of a child, if it still lives."""

    number: int
    signal: int


class Spawned(msgspec.Struct, frozen=True, tag=True):
    """From a fork server: there is a child, and this is its process group. It may come with what is said next."""

    number: int
    group: int


class Exited(msgspec.Struct, frozen=True, tag=True):
    """From a fork server: a child has ended, and all that it left behind was killed."""

    number: int
    status: int
    """Its exit code; negative for the signal that ended it."""


class SpawnFailed(msgspec.Struct, frozen=True, tag=True):
    """From a fork server: there is no child."""

    number: int
    reason: str


class LogMessage(msgspec.Struct, frozen=True, tag=True):
    """From a child: the author's code logged something."""

    record: LogRecord


_Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=durations.MAX_DURATION_SECONDS)]


class ResultMessage(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """From a child: how it ended. One of them is set."""

    succeeded: Succeeded | None = None
    skipped: str | None = None
    failed: Failed | None = None
    wake_at: datetime | None = None
    after: _Seconds | None = None
    """Until it is woken, in place of a moment: a process knows no other clock than the machine's."""
    is_over: bool = True
    every: float = 0.0

    @classmethod
    def from_ending(cls, ending: AttemptResult) -> "ResultMessage":
        """Return an ending as it is sent. What is polled stays here: the task is called again to ask it."""
        match ending:
            case Succeeded():
                return cls(succeeded=ending)
            case Skipped(reason):
                return cls(skipped=reason)
            case Failed():
                return cls(failed=ending)
            case Deferred():
                wake_at = ending.wake_at if ending.delay is None else None
                return cls(wake_at=wake_at, after=ending.delay, is_over=ending.ends_on_wake, every=ending.every)
            case _:
                raise TypeError(f"code does not end with {ending!r}")

    def to_ending(self, now: datetime) -> AttemptResult | None:
        """Return the ending that was sent, None if there is none in it; `now` is the node's own time."""
        if self.succeeded is not None:
            return self.succeeded
        if self.skipped is not None:
            return Skipped(self.skipped)
        wake_at = self.wake_at if self.after is None else now + timedelta(seconds=self.after)
        if wake_at is not None and wake_at.tzinfo is not None:
            return Deferred(wake_at=wake_at, delay=self.after, ends_on_wake=self.is_over, every=self.every)
        return self.failed


ToServer = Prepare | Spawn | Signal
FromServer = PrepareReply | Spawned | Exited | SpawnFailed
FromChild = LogMessage | ResultMessage

_ENCODER = msgspec.msgpack.Encoder()
TO_SERVER_DECODER = msgspec.msgpack.Decoder(ToServer)
FROM_SERVER_DECODER = msgspec.msgpack.Decoder(FromServer)
FROM_CHILD_DECODER = msgspec.msgpack.Decoder(FromChild)


class FrameTooLongError(ValueError):
    """A message is longer than any may be."""


def encode_frame(message: msgspec.Struct, limit: int | None = None) -> bytes:
    """Return a message as it is sent; no longer than LIMIT, if nothing else is said."""
    body = _ENCODER.encode(message)
    longest = FRAME_LIMIT if limit is None else limit
    if len(body) > longest:
        raise FrameTooLongError(f"a message of {len(body)} bytes is longer than {longest}")
    return len(body).to_bytes(_HEADER_SIZE, "big") + body


class FrameDecoder:
    """Bytes as they come in, taken apart into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield every message that is complete; TooLongError if one is announced that is too long."""
        self._buffer += data
        while len(self._buffer) >= _HEADER_SIZE:
            length = int.from_bytes(self._buffer[:_HEADER_SIZE], "big")
            if length > FRAME_LIMIT:
                raise FrameTooLongError(f"a message of {length} bytes was announced")
            if len(self._buffer) < _HEADER_SIZE + length:
                return
            body = bytes(self._buffer[_HEADER_SIZE : _HEADER_SIZE + length])
            del self._buffer[: _HEADER_SIZE + length]
            yield body


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it to a descriptor that blocks."""
    sent = os.write(descriptor, data)
    while sent < len(data):
        sent += os.write(descriptor, memoryview(data)[sent:])


def read_frame(descriptor: int) -> bytes | None:
    """Return the only message on a descriptor that blocks, None if the other side goes before it is whole."""
    data = os.read(descriptor, FIRST_READ_SIZE)
    if len(data) < _HEADER_SIZE or len(data) < _frame_length(data):
        return _read_frame_rest(descriptor, bytearray(data))
    return data[_HEADER_SIZE:]


def _read_frame_rest(descriptor: int, data: bytearray) -> bytes | None:
    while len(data) < _HEADER_SIZE or len(data) < _frame_length(data):
        part = os.read(descriptor, _REST_READ_SIZE)
        if not part:
            return None
        data += part
    return bytes(data[_HEADER_SIZE:])


def _frame_length(data: bytes | bytearray) -> int:
    """Return how long a message is, its header included."""
    return _HEADER_SIZE + int.from_bytes(data[:_HEADER_SIZE], "big")
