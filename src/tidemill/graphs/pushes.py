"""Pushes of many events: their receipts, their stored form, and the numbers by which repetitions are recognized."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from tidemill.graphs.outcomes import Outcome, Receipt, Rejection, RejectionCode
from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import WORD_RULE, is_word, make_storable

MAX_SEQUENCE = 2**63 - 1
SOURCE_CLIENT = "tidemill-source"
"""The producer that a source is to the journals of partitions. It may be silent for as long as its source is."""
_PROBLEMS = ("rejected", "dead_lettered")


class ProducerPosition(msgspec.Struct, frozen=True):
    """The number that a producer gives a push. The numbers of a client grow, and may have gaps."""

    client: str
    sequence: int

    def check(self) -> None:
        """Raise RequestError unless every store can hold it."""
        if not is_word(self.client):
            raise RequestError(f"a client is {WORD_RULE}, not {self.client!r}", code="invalid_position")
        if type(self.sequence) is not int or not 0 <= self.sequence <= MAX_SEQUENCE:
            message = f"the number of a push is a whole number from 0 to {MAX_SEQUENCE}, not {self.sequence!r}"
            raise RequestError(message, code="invalid_position")


class RelayProgress(msgspec.Struct, frozen=True):
    """How far a partition is with the events of a source that one node reads for all partitions, by their numbers."""

    taken: int
    """The newest event that it has taken."""
    stored: int
    """The newest event that it will still have after a crash."""
    reason: str | None = None
    """Why it has not taken all events that it was sent."""


class PushProblem(msgspec.Struct, frozen=True):
    """An event of a push that was rejected or became a dead letter."""

    index: int
    outcome: Outcome
    reason: str | None


class PushHandle(Protocol):
    """What `node.handle` returns: pushes an event, or many, without await. It stays valid across every change."""

    many: Callable[[Iterable[Any]], "PushSummary"]
    """Pushes events in order, and returns their receipts.

    Raises FullError at the first event that would have to wait, and PushStoppedError at the first one of a key that is
    not in memory; `taken` says how many were pushed before."""

    def __call__(self, event: Any, /) -> int | None:
        """Push an event; return the number of the boundary that it emitted, or None if it emitted none.

        Raises FullError where `push` would wait."""


def list_events(events: Iterable[Any]) -> list[Any]:
    """Return the events of a push; RequestError for what is one event, although Python can iterate over it."""
    if isinstance(events, str | bytes | bytearray | memoryview | Mapping):
        message = f"push_many takes a list of events, or another iterable of them, not one {type(events).__name__}"
        raise RequestError(f"{message}: put it into a list, or use `push`", code="invalid_events")
    return list(events)


class ReceiptRun(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive receipts that differ in nothing but the numbers of their boundaries, which grow by one."""

    accepted: bool
    outcome: Outcome
    reason: str | None
    sequence: int
    """Of the first receipt."""
    count: int
    code: RejectionCode | None = None
    """Of rejections."""

    @classmethod
    def of(cls, receipt: Receipt, count: int = 1) -> "ReceiptRun":
        """Return the run of a receipt that some events in a row got."""
        code = receipt.code if isinstance(receipt, Rejection) else None
        return cls(receipt.accepted, receipt.outcome, receipt.reason, receipt.sequence, count, code)

    def receipt(self, index: int) -> Receipt:
        """Return one of the receipts."""
        sequence = self.sequence + (index if self.outcome == "emitted" else 0)
        if self.code is None:
            return Receipt(self.accepted, sequence, self.outcome, self.reason)
        return Rejection(self.accepted, sequence, self.outcome, self.reason, self.code)

    @property
    def last_sequence(self) -> int:
        """The number of the last receipt."""
        return self.sequence + (self.count - 1 if self.outcome == "emitted" else 0)

    def joined_with(self, later: "ReceiptRun") -> "ReceiptRun | None":
        """Return the run of both; None if they are not one."""
        following = self.sequence + (self.count if self.outcome == "emitted" else 0)
        if later.sequence != following or later.outcome != self.outcome or later.reason != self.reason:
            return None
        if later.accepted != self.accepted or later.code != self.code:
            return None
        return ReceiptRun(self.accepted, self.outcome, self.reason, self.sequence, self.count + later.count, self.code)


class ReceiptTally:
    """Collects the receipts of a push, as runs."""

    __slots__ = ("count", "runs")

    def __init__(self) -> None:
        self.count = 0  # of receipts
        self.runs: list[ReceiptRun] = []

    def add(self, receipt: Receipt, count: int = 1) -> None:
        """Add the receipt of the next event, or of several in a row."""
        self._append(ReceiptRun.of(receipt, count))

    def add_emitted(self, sequence: int, count: int) -> None:
        """Add the receipts of events that emitted boundaries with numbers from `sequence` on."""
        if count:
            self._append(ReceiptRun(True, "emitted", None, sequence, count))

    def extend(self, runs: Iterable[ReceiptRun]) -> None:
        """Add the receipts of the next events."""
        for run in runs:
            self._append(run)

    def _append(self, run: ReceiptRun) -> None:
        self.count += run.count
        joined = self.runs[-1].joined_with(run) if self.runs else None
        if joined is None:
            self.runs.append(run)
        else:
            self.runs[-1] = joined


class PushSummary(msgspec.Struct, frozen=True, dict=True):
    """The outcome of a push of many events."""

    runs: tuple[ReceiptRun, ...]
    """The receipts of the events in order; those of a run follow one another."""
    is_duplicate: bool = False
    """Whether an earlier push of the same producer had the same number, or a higher one: then nothing was done."""

    @classmethod
    def of(cls, receipts: Iterable[Receipt], *, is_duplicate: bool = False) -> "PushSummary":
        """Return the summary of a push whose events got these receipts."""
        tally = ReceiptTally()
        for receipt in receipts:
            tally.add(receipt)
        return cls(tuple(tally.runs), is_duplicate)

    @cached_property
    def receipts(self) -> tuple[Receipt, ...]:
        """One receipt for each event, in the order of the events; they are made when they are first asked for."""
        return tuple(run.receipt(index) for run in self.runs for index in range(run.count))

    @property
    def counts(self) -> dict[Outcome, int]:
        """The number of events by outcome."""
        counts: Counter[Outcome] = Counter()
        for run in self.runs:
            counts[run.outcome] += run.count
        return dict(counts)

    @property
    def problems(self) -> list[PushProblem]:
        """The events that were rejected or became dead letters."""
        problems, index = [], 0
        for run in self.runs:
            if run.outcome in _PROBLEMS:
                problems += [PushProblem(index + one, run.outcome, run.reason) for one in range(run.count)]
            index += run.count
        return problems

    @property
    def is_rejected(self) -> bool:
        """Whether every event was rejected: then the push has changed nothing."""
        return all(run.outcome == "rejected" for run in self.runs)

    @property
    def first_sequence(self) -> int | None:
        """The number of the first boundary that was emitted; None if there is none."""
        return next((run.sequence for run in self.runs if run.outcome == "emitted"), None)

    @property
    def last_sequence(self) -> int | None:
        """The number of the last boundary that was emitted; None if there is none."""
        return next((run.last_sequence for run in reversed(self.runs) if run.outcome == "emitted"), None)


def encode_runs(runs: Iterable[ReceiptRun]) -> bytes:
    """Return receipts in their stored form; a batch without problems takes a few bytes."""
    return msgspec.msgpack.encode([_storable(run) for run in runs])


def _storable(run: ReceiptRun) -> ReceiptRun:
    return run if run.reason is None else replace(run, reason=make_storable(run.reason))


def decode_runs(payload: bytes) -> tuple[ReceiptRun, ...]:
    """Return receipts from their stored form."""
    return msgspec.msgpack.decode(payload, type=tuple[ReceiptRun, ...])
