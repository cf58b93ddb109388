"""Pushes to accumulators: one event or many, in several formats."""

import msgspec
from litestar.params import FromPath

from tidemill.access.principal import Caller
from tidemill.engine.access.idempotency import KeyedRequest
from tidemill.engine.graphs.client.graph_client import GraphClient
from tidemill.graphs.outcomes import Receipt
from tidemill.graphs.pushes import ProducerPosition
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.server.pushes import RawEvents, read_events, receipt_without_store, rejection_error, without_store
from tidemill.server.requests import ApiRequest
from tidemill.server.routing import RawBody

PATIENCE_SECONDS = 5.0
"""Seconds that a push waits for queue space before it is rejected: who pushes more holds a WebSocket open."""

PUSH_LIMIT = 32 * 1024 * 1024
"""Bytes of a push of many events."""

NUMBERED_EVENTS = 10_000
"""Events of a request that share a number, and so a commit."""

PUSH_BODIES = (
    RawBody("application/json", "One event.", {"bid": 1.0, "ask": 1.1}),
    RawBody("application/x-ndjson", "Any number of events, one per line.", '{"bid": 1.0}\n{"bid": 1.1}\n'),
    RawBody("application/msgpack", "One event, or any number of them one after another."),
)


class Receipts(msgspec.Struct, frozen=True):
    """The receipts of many events, in their order."""

    receipts: list[Receipt]


async def push_events(request: ApiRequest, name: FromPath[str]) -> Receipt | Receipts:
    """Push one event, or many.

    One event as JSON or msgpack is answered with its receipt. Events as NDJSON, or several in msgpack, are answered
    with one receipt each; an event that is malformed or of the wrong type becomes a dead letter, and the others count.
    With an idempotency key, a batch that was rejected as a whole can be pushed again under it.
    """
    events: RawEvents = read_events(await request.body(), request.content_type[0])
    try:
        return await _push(request.node.graph_client, request.caller, request.keyed, name, events)
    except NotFoundError as error:
        if request.keyed is not None and request.keyed.was_lost:
            raise _effect_unreadable_error(name) from error
        raise


def _effect_unreadable_error(name: str) -> RequestError:
    message = (
        f"the server that handled this request ended before it answered, and accumulator '{name}' is not loaded now: "
        "repeat the request with its key, since it cannot be read whether its events were applied"
    )
    return RequestError(message, code="effect_unreadable", status=503, accumulator=name)


async def _push(
    client: GraphClient, caller: Caller, keyed: KeyedRequest | None, name: str, events: RawEvents
) -> Receipt | Receipts:
    if not events.is_one:
        if keyed is not None:
            return await _push_numbered(client, caller, keyed, name, events)
        summary = await client.push_many(caller, name, events.items, events.encoding, patience=PATIENCE_SECONDS)
        return Receipts(list(without_store(summary).receipts))
    position = None if keyed is None else ProducerPosition(keyed.effect, 1)
    receipt = await client.push(caller, name, events.items[0], events.encoding, PATIENCE_SECONDS, position)
    receipt = receipt_without_store(receipt)
    if receipt.outcome == "rejected":
        raise rejection_error(receipt)
    return receipt


async def _push_numbered(
    client: GraphClient, caller: Caller, keyed: KeyedRequest, name: str, events: RawEvents
) -> Receipts:
    """Push many events, in parts that are numbered by the request: each part is applied once, and keeps its receipts.

    The events behind a part that was rejected are rejected too, so that none overtakes another. A repetition pushes
    them, and does not apply the parts before them again.
    """
    receipts: list[Receipt] = []
    for start in range(0, len(events.items), NUMBERED_EVENTS):
        part = events.items[start : start + NUMBERED_EVENTS]
        position = ProducerPosition(f"{keyed.effect}-{start}", 1)
        summary = await client.push_many(caller, name, part, events.encoding, position, PATIENCE_SECONDS)
        receipts += without_store(summary).receipts
        if summary.is_rejected:
            receipts += [receipts[-1]] * (len(events.items) - len(receipts))
            keyed.is_final = False
            break
    return Receipts(receipts)
