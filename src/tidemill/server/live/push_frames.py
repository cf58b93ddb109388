"""Frames of pushes: what clients send to an accumulator, and the acknowledgements that they get back."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from tidemill.api.errors import ProblemDetails
from tidemill.graphs.outcomes import Outcome, Receipt
from tidemill.graphs.pushes import PushProblem, PushSummary
from tidemill.server.live.closing import bad_frame

MAX_EVENTS = 10_000
"""Events of one frame."""


class PushFrame(msgspec.Struct, forbid_unknown_fields=True):
    """One event, or a batch. The events stay encoded: the accumulator decodes each with its declared type."""

    seq: int | float | None = None
    """Any growing number of the client's; its acknowledgement has the same."""
    event: msgspec.Raw | UnsetType = UNSET
    events: list[msgspec.Raw] | UnsetType = UNSET

    @property
    def is_batch(self) -> bool:
        """Whether the client sent a list of events, and gets a summary back."""
        return self.events is not UNSET

    def encoded_events(self) -> list[bytes]:
        """Return the events; CloseError if there is not exactly one of `event` and `events`, or too many."""
        if self.events is UNSET and self.event is not UNSET:
            return [bytes(self.event)]
        if self.events is not UNSET and self.event is UNSET:
            if len(self.events) > MAX_EVENTS:
                raise bad_frame(f"bad frame: {len(self.events):,} events, and a frame has at most {MAX_EVENTS:,}")
            return [bytes(one) for one in self.events]
        raise bad_frame('bad frame: it has either "event" or "events"')


class ResumeFrame(msgspec.Struct, frozen=True):
    """The first frame back to a client with an id: it continues after the push with this number."""

    resume_after: int | None


class EventAck(msgspec.Struct, frozen=True):
    """The acknowledgement of one event."""

    seq: int | float | None
    receipt: Receipt


class BatchAck(msgspec.Struct, frozen=True):
    """The acknowledgement of a batch: how many events had each outcome, and those with problems."""

    seq: int | float | None
    receipts: dict[Outcome, int]
    problems: list[PushProblem]


class PushError(msgspec.Struct, frozen=True):
    """The answer to a frame of which nothing was pushed; the connection goes on."""

    seq: int | float | None
    error: ProblemDetails


def acknowledge(frame: PushFrame, receipts: Sequence[Receipt]) -> EventAck | BatchAck:
    """Return the acknowledgement of a frame."""
    if not frame.is_batch and len(receipts) == 1:
        return EventAck(frame.seq, receipts[0])
    summary = PushSummary.of(receipts)
    return BatchAck(frame.seq, summary.counts, summary.problems)


def has_problems(ack: EventAck | BatchAck) -> bool:
    """Return whether a client that wants to hear of problems only gets an acknowledgement."""
    if isinstance(ack, BatchAck):
        return bool(ack.problems)
    return ack.receipt.outcome in ("rejected", "dead_lettered")
