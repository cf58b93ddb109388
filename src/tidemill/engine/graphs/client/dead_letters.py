"""Dead letters as plain values, and what becomes of them when they are processed again."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.engine.graphs.client.values import FiringView, ReplayResult
from tidemill.engine.graphs.dead_letters import DeadLetterQueue
from tidemill.graphs.key_forms import key_to_json
from tidemill.graphs.result import DeadLetter, Firing, Receipt, to_jsonable
from tidemill.kernel.errors import NotFoundError


def find_dead_letter(queues: Iterable[DeadLetterQueue], id: str) -> tuple[DeadLetterQueue, tuple[DeadLetter, Any]]:
    """Return a dead letter with its detail, and the queue that holds it; NotFoundError if none does."""
    for queue in queues:
        if (entry := queue.find(id)) is not None:
            return queue, entry
    raise unknown_dead_letter_error(id)


def unknown_dead_letter_error(id: str) -> NotFoundError:
    """Return the error for a dead letter that is not there."""
    message = f"there is no dead letter '{id}' here: it was replayed or dropped, or it never existed"
    return NotFoundError("dead_letter", id, message)


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
