"""The window of a pusher, without a network: order, acknowledgements, and what is sent again after a reconnect."""

from collections import deque

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidemill.client.push_window import FRAME_SIZE_LIMIT, Acknowledgement, EventFrame, PushWindow, encode_event
from tidemill.graphs.pushes import PushProblem
from tidemill.kernel.errors import OperationError, RequestError


def decode(data: bytes) -> tuple[int, list[int]]:
    """Return the number and the events of a frame."""
    frame = msgspec.msgpack.decode(data, type=EventFrame)
    return frame.seq, [msgspec.msgpack.decode(one) for one in frame.events]


def test_events_are_sent_in_batches_and_kept_until_they_are_acknowledged() -> None:
    """A window that is full has no room."""
    window = PushWindow(batch=2, frames=2)
    assert [window.add(encode_event(number)) for number in range(5)] == [False, True, False, True, False]
    assert [decode(data) for data in window.frames_to_send()] == [(1, [0, 1]), (2, [2, 3])]
    assert not window.has_room
    window.acknowledge(Acknowledgement(seq=1, receipts={"emitted": 2}))
    assert window.has_room
    window.flush()
    assert [decode(data) for data in window.frames_to_send()] == [(3, [4])]
    problem = PushProblem(1, "dead_lettered", "misfit")
    window.acknowledge(Acknowledgement(seq=2, receipts={"emitted": 1, "dead_lettered": 1}, problems=[problem]))
    window.acknowledge(Acknowledgement(seq=3, receipts={"emitted": 1}))
    assert window.is_settled
    assert dict(window.counts) == {"emitted": 4, "dead_lettered": 1}
    assert window.problems == [PushProblem(3, "dead_lettered", "misfit")]


def test_large_events_make_small_batches() -> None:
    """A frame stays far below the limit of the server."""
    window = PushWindow(batch=100, frames=10)
    assert window.add(encode_event(b"x" * FRAME_SIZE_LIMIT))


def test_an_acknowledgement_out_of_order_is_an_error() -> None:
    """Going on would lose events."""
    window = PushWindow(batch=1, frames=10)
    window.add(encode_event(1))
    list(window.frames_to_send())
    with pytest.raises(OperationError, match="out of order"):
        window.acknowledge(Acknowledgement(seq=2))


def test_an_event_that_cannot_be_sent_is_refused_at_once() -> None:
    """The others of its batch are not affected."""
    with pytest.raises(RequestError) as refused:
        encode_event(object())
    assert refused.value.code == "not_serializable"


class ReconnectingPusher(RuleBasedStateMachine):
    """A window, a server that keeps the events it has processed, and a connection that loses frames either way."""

    def __init__(self) -> None:
        super().__init__()
        self.window = PushWindow(batch=3, frames=4)
        self.pushed = 0
        self.processed: list[int] = []
        self.last_seq: int | None = None
        self.to_server: deque[bytes] = deque()
        self.to_client: deque[Acknowledgement] = deque()

    @precondition(lambda self: self.window.has_room)
    @rule(number=st.integers(1, 5))
    def push(self, number: int) -> None:
        """Push some events."""
        for _ in range(number):
            self.window.add(encode_event(self.pushed))
            self.pushed += 1
        self.to_server.extend(self.window.frames_to_send())

    @rule()
    def flush(self) -> None:
        """Send what is buffered."""
        self.window.flush()
        self.to_server.extend(self.window.frames_to_send())

    @precondition(lambda self: self.to_server)
    @rule()
    def process(self) -> None:
        """The server processes a frame, and answers."""
        seq, events = decode(self.to_server.popleft())
        self.processed += events
        self.last_seq = seq
        self.to_client.append(Acknowledgement(seq=seq, receipts={"emitted": len(events)}))

    @precondition(lambda self: self.to_client)
    @rule()
    def acknowledge(self) -> None:
        """The client receives an answer."""
        self.window.acknowledge(self.to_client.popleft())

    @rule()
    def reconnect(self) -> None:
        """The connection is lost with everything on its way."""
        self.to_server.clear()
        self.to_client.clear()
        self.window.resume(self.last_seq)
        self.to_server.extend(self.window.frames_to_send())

    @invariant()
    def nothing_is_lost_or_repeated(self) -> None:
        """The server has processed a prefix of the events, each once; all that is settled counts."""
        assert self.processed == list(range(len(self.processed)))
        if self.window.is_settled:
            assert len(self.processed) == self.pushed == sum(self.window.counts.values())


TestReconnectingPusher = ReconnectingPusher.TestCase
