"""Dead letters as plain values, and what becomes of them when they are processed again."""

from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.graphs.key_forms import key_to_json
from tidemill.graphs.outcomes import DeadLetter, Receipt, to_jsonable
from tidemill.graphs.result import Firing
from tidemill.graphs.views import FiringView, ReplayResult


def to_plain(dead_letter: DeadLetter, detail: Any) -> DeadLetter:
    """Return a dead letter whose values can be encoded as JSON; `detail` is the encoding of an event in bytes."""
    inputs = dead_letter.inputs
    return replace(
        dead_letter,
        event=_to_plain_event(dead_letter.event, detail),
        inputs=None if inputs is None else {name: to_jsonable(value) for name, value in inputs.items()},
        key=key_to_json(dead_letter.key),
    )


def _to_plain_event(event: Any, encoding: Any) -> Any:
    if not isinstance(event, bytes | bytearray | memoryview):
        return to_jsonable(event)
    try:
        decode = msgspec.msgpack.decode if encoding == "msgpack" else msgspec.json.decode
        return to_jsonable(decode(event))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return bytes(event).decode("utf-8", "backslashreplace")  # what was pushed, for a person to read


def to_replay_result(outcome: Any) -> ReplayResult:
    """Return what a replay of a dead event, firing or start has returned, as a plain value."""
    match outcome:
        case Receipt():
            return ReplayResult(receipt=outcome)
        case Firing():
            return ReplayResult(firing=FiringView.of(outcome))
        case None:
            return ReplayResult()
    return ReplayResult(run=outcome.id)
