"""Bodies of pushes: one event or many, as JSON, NDJSON or msgpack; and the errors for rejected events."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidemill.graphs.outcomes import Receipt, Rejection
from tidemill.graphs.pushes import PushSummary
from tidemill.kernel.errors import RequestError
from tidemill.server.msgpack_stream import split_msgpack
from tidemill.server.requests import JSON_MEDIA_TYPES, MSGPACK_MEDIA_TYPES

NDJSON_MEDIA_TYPES = frozenset(["application/x-ndjson", "application/ndjson", "application/jsonl"])
MAX_EVENTS = 100_000
"""Events of one request."""
NOT_STORED = "not stored: push it again. The log of the server has the reason"


class RawEvents(NamedTuple):
    """The encoded events of a body."""

    items: list[bytes]
    encoding: str
    is_one: bool
    """Whether the body is one event, and not a list of events that may have one."""


def read_events(body: bytes, media_type: str) -> RawEvents:
    """Return the events of a body; RequestError if it is malformed as a whole."""
    if media_type in NDJSON_MEDIA_TYPES:
        lines = [line for line in body.splitlines() if line.strip()]
        return RawEvents(_check_count(lines), "json", is_one=False)
    if media_type in JSON_MEDIA_TYPES:
        _check_syntax(body, msgspec.json.decode, "JSON")
        return RawEvents([body], "json", is_one=True)
    if media_type in MSGPACK_MEDIA_TYPES:
        items = _split(body)
        return RawEvents(_check_count(items), "msgpack", is_one=len(items) == 1)
    message = f"events are application/json, application/x-ndjson or application/msgpack, not {media_type}"
    raise RequestError(message, code="unsupported_media_type", status=415)


def _check_syntax(body: bytes, decode: Callable[..., object], name: str) -> None:
    try:
        decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not {name}: {error}", code="malformed_body") from error
    except RecursionError as error:
        raise RequestError("the body is nested too deeply", code="malformed_body") from error


def _split(body: bytes) -> list[bytes]:
    try:
        items = list(split_msgpack(body))
    except msgspec.DecodeError as error:
        raise RequestError(f"the body is not msgpack: {error}", code="malformed_body") from error
    if not items:
        raise RequestError("the body is empty: send an event", code="malformed_body")
    return items


def _check_count(items: list[bytes]) -> list[bytes]:
    if len(items) > MAX_EVENTS:
        message = f"a request has at most {MAX_EVENTS:,} events, not {len(items):,}: send several, or use a WebSocket"
        raise RequestError(message, code="too_many_events", status=413)
    return items


def without_store(summary: PushSummary) -> PushSummary:
    """Return the outcome of a push as callers learn it: why the store failed names its address."""
    if not any(run.code == "not_stored" for run in summary.runs):
        return summary
    runs = (replace(run, reason=NOT_STORED) if run.code == "not_stored" else run for run in summary.runs)
    return replace(summary, runs=tuple(runs))


def receipt_without_store(receipt: Receipt) -> Receipt:
    """Return the receipt of one event as callers learn it."""
    is_hidden = isinstance(receipt, Rejection) and receipt.code == "not_stored"
    return replace(receipt, reason=NOT_STORED) if is_hidden else receipt


def rejection_error(receipt: Receipt) -> RequestError:
    """Return the error for an event that was rejected: it had no effect, and may be pushed again."""
    reason = receipt.reason or "the event was rejected"
    match receipt.code if isinstance(receipt, Rejection) else "rejected":
        case "accumulator_down":
            return RequestError(reason, code="accumulator_down", status=409)
        case "paused":
            return RequestError(reason, code="paused", status=409)
        case "queue_full":
            return RequestError(reason, code="queue_full", status=429, retry_after=1)
        case "not_stored":
            return RequestError(reason, code="not_stored", status=503, retry_after=1)
    return RequestError(reason, code="rejected", status=409)
