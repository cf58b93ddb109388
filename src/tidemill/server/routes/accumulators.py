"""Accumulators: state, pushes of one event or many, and restarts."""

import msgspec
from litestar.params import FromPath

from tidemill.engine.graphs.client.values import AccumulatorDetails
from tidemill.graphs.result import Receipt
from tidemill.graphs.state import AccumulatorState
from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.paging import DEFAULT_LIMIT, Cursor, Limit, Page, page_of
from tidemill.server.pushes import RawEvents, read_events, rejection_error
from tidemill.server.requests import ApiRequest
from tidemill.server.routing import RawBody

PATIENCE_SECONDS = 5.0
"""Seconds that a push waits for queue space before it is rejected: who pushes more holds a WebSocket open."""

PUSH_LIMIT = 32 * 1024 * 1024
"""Bytes of a push of many events."""

PUSH_BODIES = (
    RawBody("application/json", "One event.", {"bid": 1.0, "ask": 1.1}),
    RawBody("application/x-ndjson", "Any number of events, one per line.", '{"bid": 1.0}\n{"bid": 1.1}\n'),
    RawBody("application/msgpack", "One event, or any number of them one after another."),
)


class Receipts(msgspec.Struct, frozen=True):
    """The receipts of many events, in their order."""

    receipts: list[Receipt]


async def list_accumulators(
    context: InjectedContext, caller: InjectedCaller, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[AccumulatorState]:
    """List the accumulators with their state."""
    accumulators = await context.node.graph_client.list_accumulators(caller)
    return page_of(accumulators, limit=limit, cursor=cursor, key=lambda one: one.name, view=lambda one: one)


async def get_accumulator(context: InjectedContext, caller: InjectedCaller, name: FromPath[str]) -> AccumulatorDetails:
    """Return the state of an accumulator, and the JSON Schema of its events."""
    return await context.node.graph_client.accumulator(caller, name)


async def push_events(
    context: InjectedContext, caller: InjectedCaller, request: ApiRequest, name: FromPath[str]
) -> Receipt | Receipts:
    """Push one event, or many.

    One event as JSON or msgpack is answered with its receipt. Events as NDJSON, or several in msgpack, are answered
    with one receipt each; an event that is malformed or of the wrong type becomes a dead letter, and the others count.
    """
    client = context.node.graph_client
    events: RawEvents = read_events(await request.body(), request.content_type[0])
    if not events.is_one:
        summary = await client.push_many(caller, name, events.items, events.encoding, patience=PATIENCE_SECONDS)
        return Receipts(list(summary.receipts))
    receipt = await client.push(caller, name, events.items[0], events.encoding, PATIENCE_SECONDS)
    if receipt.outcome == "rejected":
        raise rejection_error(receipt)
    return receipt


async def restart_accumulator(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str]
) -> AccumulatorDetails:
    """Restart an accumulator that the supervisor gave up, or one that hangs."""
    return await context.node.graph_client.restart_accumulator(caller, name)
