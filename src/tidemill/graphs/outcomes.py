"""Receipts and dead letters: what becomes of events, with their values as JSON."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import msgspec

Outcome = Literal["emitted", "suppressed", "buffered", "rejected", "dead_lettered"]
"""What became of an event."""


class Receipt(msgspec.Struct, frozen=True):
    """The outcome of a pushed event."""

    accepted: bool
    sequence: int
    outcome: Outcome
    reason: str | None = None


RejectionCode = Literal["accumulator_down", "not_stored", "paused", "queue_full", "rejected"]
"""Why an event was rejected, for programs."""


class Rejection(Receipt, frozen=True):
    """The receipt of an event that was rejected: it had no effect, and may be pushed again."""

    code: RejectionCode = "rejected"


def may_accept_later(receipt: Receipt) -> bool:
    """Return whether an event was rejected, and not because its reactor rejects what does not fit into its queue."""
    return isinstance(receipt, Rejection) and receipt.code != "queue_full"


DeadLetterKind = Literal["event", "firing", "start"]


class DeadLetter(msgspec.Struct, frozen=True):
    """An event or a firing that could not be processed, or a run that could not be started, kept for replay."""

    id: str
    kind: DeadLetterKind
    source: str
    at: datetime
    error: str
    event: Any = None
    inputs: dict[str, Any] | None = None
    attempts: int = 1
    workflow: str | None = None
    """The workflow of which a firing could not start a run."""
    firing_id: str | None = None
    """The firing that could not start it."""
    key: Any = None
    """Of a keyed reactor: the key of the event or the firing; None if the event has none."""
    omitted: dict[str, int] = {}
    """By path, the bytes of values that a list leaves out because they are large."""


def to_jsonable(value: Any, describe_unknown: Callable[[Any], Any] = repr) -> Any:
    """Return a value as JSON-able builtins; `describe_unknown` converts values that msgspec does not know."""
    try:
        return msgspec.to_builtins(value, enc_hook=describe_unknown, str_keys=True)
    except Exception:  # author code: a value may be of any class, and its repr may raise
        return f"<{type(value).__name__}>"
