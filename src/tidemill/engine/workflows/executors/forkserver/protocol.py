"""The messages between a node, its fork servers and their children: msgpack, each with its length in front.

    node             fork server      child
     | ---- Prepare ----> |
     | <-- PrepareReply - |
     | ---------- AttemptRequest -------->      into the control socket, before there is a child
     | ----- Spawn -----> | -- fork --> |       with three descriptors: the control socket, stdout and stderr
     | <---- Spawned ---- |             |
     | <--------- LogMessage ... ------ |       over the control socket
     | <--------- CallMessage --------- |       over the control socket, one at a time
     | ---------- CallReply ----------> |       over the control socket
     | <--------- ResultMessage ------- |       over the control socket
     | <---- Exited ----- |
     | ----- Signal ----> |                     at any time
     | -- LeasesRenewed-> |                     if children have leases: at every heartbeat
     | <---- Expired ---- |                     in place of Exited

A disconnected process ends: a fork server whose socket to the node is closed kills its children and exits, and a child
whose control socket is closed is killed.
"""

import os
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from tidemill.engine.workflows.executors.code import CodeLocation
from tidemill.engine.workflows.executors.interface import VALUE_LIMIT
from tidemill.graphs.outcomes import Receipt
from tidemill.kernel import durations
from tidemill.kernel.author_errors import describe
from tidemill.kernel.errors import OperationError, RequestError, TidemillError
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.attempt_results import AttemptResult, Deferred, Failed, Skipped, Succeeded
from tidemill.workflows.node_calls import NodeCall, PushCall, StartCall, StartedRun, StepsCall
from tidemill.workflows.step_records import TaskRecords
from tidemill.workflows.waits import WaitRequest

FRAME_LIMIT = VALUE_LIMIT
"""The longest message in bytes, and so about the biggest value that a task in a subprocess may return.

Text that author code writes into the socket announces a longer message with its first characters, and is detected.
"""

REQUEST_FRAME_LIMIT = 2**32 - 1
"""The longest message that the header can announce: the limit of a request."""

_HEADER_SIZE = 4
FIRST_READ_SIZE = 448
"""The size of the first read. Most messages are shorter, and Python's small-object allocator has room for it, so that a
child touches few pages.
"""
_REST_READ_SIZE = 256 * 1024

ForkHooks = dict[str, Callable[[], Any]]
"""The arguments of one `os.register_at_fork` call."""


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """To a fork server: import this code."""

    source: CodeLocation
    lease: float | None = None
    """Seconds that a child may run without a renewal; None: any time."""


class PrepareReply(msgspec.Struct, frozen=True, tag=True):
    """From a fork server: the imported workflows with their versions, or the error."""

    versions: dict[str, str] = {}
    error: str = ""


class Spawn(msgspec.Struct, frozen=True, tag=True):
    """To a fork server: fork a child for a task."""

    number: int
    workflow: str
    task: str


class Signal(msgspec.Struct, frozen=True, tag=True):
    """To a fork server: send a signal to a child's process group, if the child is alive."""

    number: int
    signal: int


class LeasesRenewed(msgspec.Struct, frozen=True, tag=True):
    """To a fork server: the node still owns the attempts of all its children."""


class Spawned(msgspec.Struct, frozen=True, tag=True):
    """From a fork server: a child was forked, with this process group. It may be delayed until the next message."""

    number: int
    group: int


class Exited(msgspec.Struct, frozen=True, tag=True):
    """From a fork server: a child has ended, and the rest of its process group was killed."""

    number: int
    status: int
    """Its exit code; negative for the signal that ended it."""


class Expired(msgspec.Struct, frozen=True, tag=True):
    """From a fork server: a child was killed, because its lease was not renewed in time."""

    number: int


class SpawnFailed(msgspec.Struct, frozen=True, tag=True):
    """From a fork server: a child could not be forked."""

    number: int
    reason: str


class LogMessage(msgspec.Struct, frozen=True, tag=True):
    """From a child: a log record of author code."""

    record: LogRecord


class CallMessage(msgspec.Struct, frozen=True, tag=True):
    """From a child: a call of its task to the node. The next one follows after the reply."""

    call: NodeCall


class CallError(msgspec.Struct, frozen=True):
    """An error of a call: a RequestError if it has a code, else an OperationError."""

    message: str
    code: str = ""
    status: int = 400
    facts: dict[str, Any] = {}

    @classmethod
    def from_error(cls, error: BaseException) -> "CallError":
        """Return the stored form of an error."""
        if not isinstance(error, RequestError):
            return cls(str(error) if isinstance(error, TidemillError) else describe(error))
        facts = {
            name: value if isinstance(value, str | int | float | list) else repr(value)
            for name, value in error.facts.items()
        }
        return cls(str(error), error.code, error.status, facts)

    def to_error(self) -> TidemillError:
        """Return the error that the task sees."""
        if self.code:
            return RequestError(self.message, code=self.code, status=self.status, **self.facts)
        return OperationError(self.message)


class CallReply(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """To a child: the answer to its call. One of the fields is set."""

    receipt: Receipt | None = None
    run: str | None = None
    value: tuple[Any] | None = None
    """A secret, a variable or the value of a step: in a tuple, because it may be null."""
    records: TaskRecords | None = None
    error: CallError | None = None

    @classmethod
    def to_answer(cls, call: NodeCall, answer: Any) -> "CallReply":
        """Return the reply with the answer to a call."""
        match call:
            case PushCall():
                return cls(receipt=answer)
            case StartCall():
                return cls(run=answer.id)
            case StepsCall():
                return cls(records=answer)
        return cls(value=(answer,))

    def unwrap(self) -> Any:
        """Return the answer, or raise the error."""
        if self.error is not None:
            raise self.error.to_error()
        if self.value is not None:
            return self.value[0]
        if self.records is not None:
            return self.records
        return self.receipt if self.run is None else StartedRun(self.run)


_Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=durations.MAX_DURATION_SECONDS)]


class ResultMessage(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """From a child: the result of the attempt. One kind of result is set."""

    succeeded: Succeeded | None = None
    skipped: str | None = None
    failed: Failed | None = None
    wake_at: datetime | None = None
    after: _Seconds | None = None
    """Seconds until it is woken. Sent in place of a moment, because a child knows only the machine's clock."""
    is_over: bool = True
    every: float = 0.0
    waits: tuple[WaitRequest, ...] = ()
    ended_waits: int = 0

    @classmethod
    def from_ending(cls, ending: AttemptResult) -> "ResultMessage":
        """Return the message for a result. A poll function is not sent: the task is called again to poll."""
        match ending:
            case Succeeded():
                return cls(succeeded=ending)
            case Skipped(reason):
                return cls(skipped=reason)
            case Failed():
                return cls(failed=ending)
            case Deferred(waits=waits) if waits:
                return cls(waits=waits, ended_waits=ending.ended_waits)
            case Deferred():
                wake_at = ending.wake_at if ending.delay is None else None
                return cls(wake_at=wake_at, after=ending.delay, is_over=ending.ends_on_wake, every=ending.every)
            case _:
                raise TypeError(f"{ending!r} is not a result of author code")

    def to_ending(self, now: datetime) -> AttemptResult | None:
        """Return the result in the message, or None if it has none; `now` is the time on the node's clock."""
        if self.succeeded is not None:
            return self.succeeded
        if self.skipped is not None:
            return Skipped(self.skipped)
        if self.waits:
            return Deferred(wake_at=None, ends_on_wake=False, waits=self.waits, ended_waits=self.ended_waits)
        wake_at = self.wake_at if self.after is None else now + timedelta(seconds=self.after)
        if wake_at is not None and wake_at.tzinfo is not None:
            return Deferred(wake_at=wake_at, delay=self.after, ends_on_wake=self.is_over, every=self.every)
        return self.failed


ToServer = Prepare | Spawn | Signal | LeasesRenewed
FromServer = PrepareReply | Spawned | Exited | Expired | SpawnFailed
FromChild = LogMessage | CallMessage | ResultMessage

_ENCODER = msgspec.msgpack.Encoder()
TO_SERVER_DECODER = msgspec.msgpack.Decoder(ToServer)
FROM_SERVER_DECODER = msgspec.msgpack.Decoder(FromServer)
RESULT_DECODER = msgspec.msgpack.Decoder(ResultMessage)
CALL_DECODER = msgspec.msgpack.Decoder(NodeCall)
CALL_REPLY_DECODER = msgspec.msgpack.Decoder(CallReply)
FROM_CHILD_DECODER = msgspec.msgpack.Decoder(FromChild)


class FrameTooLongError(ValueError):
    """A message is longer than the limit."""


def encode_frame(message: msgspec.Struct, limit: int | None = None) -> bytes:
    """Return a message with its header; FrameTooLongError above `limit` bytes (default: FRAME_LIMIT)."""
    body = _ENCODER.encode(message)
    limit = FRAME_LIMIT if limit is None else limit
    if len(body) > limit:
        raise FrameTooLongError(f"a message of {len(body)} bytes is longer than {limit}")
    return len(body).to_bytes(_HEADER_SIZE, "big") + body


class FrameDecoder:
    """Splits a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield every complete message; FrameTooLongError if a header announces more than FRAME_LIMIT bytes."""
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
    """Write all of the data to a blocking descriptor."""
    sent = os.write(descriptor, data)
    while sent < len(data):
        sent += os.write(descriptor, memoryview(data)[sent:])


def read_frame(descriptor: int) -> bytes | None:
    """Return the only message on a blocking descriptor, or None if the other end closes before it is complete."""
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
    """Return the length of a message including its header."""
    return _HEADER_SIZE + int.from_bytes(data[:_HEADER_SIZE], "big")
