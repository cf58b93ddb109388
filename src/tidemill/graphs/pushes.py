"""Pushes of many events: their receipts, their stored form, and the numbers by which repetitions are recognized."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from tidemill.graphs.result import Outcome, Receipt, Rejection, RejectionCode
from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import WORD_RULE, is_word, make_storable

MAX_SEQUENCE = 2**63 - 1
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


class PushProblem(msgspec.Struct, frozen=True):
    """An event of a push that was rejected or became a dead letter."""

    index: int
    outcome: Outcome
    reason: str | None


class PushSummary(msgspec.Struct, frozen=True):
    """The outcome of a push of many events."""

    receipts: tuple[Receipt, ...]
    """One for each event, in the order of the events."""
    is_duplicate: bool = False
    """Whether an earlier push of the same producer had the same number, or a higher one: then nothing was done."""

    @property
    def counts(self) -> dict[Outcome, int]:
        """The number of events by outcome."""
        return dict(Counter(receipt.outcome for receipt in self.receipts))

    @property
    def problems(self) -> list[PushProblem]:
        """The events that were rejected or became dead letters."""
        return [
            PushProblem(index, receipt.outcome, receipt.reason)
            for index, receipt in enumerate(self.receipts)
            if receipt.outcome in _PROBLEMS
        ]

    @property
    def is_rejected(self) -> bool:
        """Whether every event was rejected: then the push has changed nothing."""
        return all(receipt.outcome == "rejected" for receipt in self.receipts)

    @property
    def first_sequence(self) -> int | None:
        """The number of the first boundary that was emitted; None if there is none."""
        return next((receipt.sequence for receipt in self.receipts if receipt.outcome == "emitted"), None)

    @property
    def last_sequence(self) -> int | None:
        """The number of the last boundary that was emitted; None if there is none."""
        return next((receipt.sequence for receipt in reversed(self.receipts) if receipt.outcome == "emitted"), None)


class _Run(msgspec.Struct, array_like=True):
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
    def of(cls, receipt: Receipt) -> "_Run":
        reason = None if receipt.reason is None else make_storable(receipt.reason)
        code = receipt.code if isinstance(receipt, Rejection) else None
        return cls(receipt.accepted, receipt.outcome, reason, receipt.sequence, 1, code)

    def continues_with(self, receipt: Receipt) -> bool:
        return receipt == self.receipt(self.count)

    def receipt(self, index: int) -> Receipt:
        sequence = self.sequence + (index if self.outcome == "emitted" else 0)
        if self.code is None:
            return Receipt(self.accepted, sequence, self.outcome, self.reason)
        return Rejection(self.accepted, sequence, self.outcome, self.reason, self.code)


def encode_receipts(receipts: Iterable[Receipt]) -> bytes:
    """Return receipts in their stored form; a batch without problems takes a few bytes."""
    runs: list[_Run] = []
    for receipt in receipts:
        if runs and runs[-1].continues_with(receipt):
            runs[-1].count += 1
        else:
            runs.append(_Run.of(receipt))
    return msgspec.msgpack.encode(runs)


def decode_receipts(payload: bytes) -> tuple[Receipt, ...]:
    """Return receipts from their stored form."""
    runs = msgspec.msgpack.decode(payload, type=list[_Run])
    return tuple(run.receipt(index) for run in runs for index in range(run.count))
