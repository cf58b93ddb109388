"""Remote attempts: what `tidemill attempt` calls with the token of its attempt."""

from typing import Annotated

import msgspec
from litestar import Response
from litestar.params import JSONBody

from tidemill.access.principal import Principal
from tidemill.engine.workflows.executors.attempt_output import mask_ending, mask_record
from tidemill.engine.workflows.executors.forkserver.protocol import (
    CALL_DECODER,
    FRAME_LIMIT,
    RESULT_DECODER,
    CallError,
    CallReply,
)
from tidemill.engine.workflows.executors.remote.orders import Order, decode_order
from tidemill.engine.workflows.remote_reports import AttemptEndedError
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.server.requests import ApiRequest, ServerContext
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.attempt_results import AttemptResult
from tidemill.workflows.records import AttemptKey

REPORT_LIMIT = FRAME_LIMIT + FRAME_LIMIT // 2
"""Bytes of a report: the largest value of a task, even as base64 in JSON."""


class AttemptStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The process that begins an attempt."""

    process: Annotated[str, msgspec.Meta(min_length=1, max_length=200, examples=["6f1c2a70b7d94f4e"])]
    """Names the process: another one is refused."""


class StartedAttempt(msgspec.Struct, frozen=True):
    """An attempt that has started."""

    order: bytes
    """What to run, as msgpack."""


class AttemptLease(msgspec.Struct, frozen=True):
    """The lease of an attempt."""

    seconds: float
    """How long the attempt may run until the next heartbeat."""


class AttemptLogs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch of log records."""

    number: Annotated[int, msgspec.Meta(ge=0, lt=2**30)]
    """The number of the batch, from 0: one that was sent before is dropped."""
    records: list[LogRecord]


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of an attempt."""

    result: bytes
    """The result of the code, as msgpack."""


class AttemptCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of the code to its node, such as `ctx.push`."""

    call: bytes
    """As msgpack."""


class AttemptReply(msgspec.Struct, frozen=True):
    """The answer to a call."""

    reply: bytes
    """As msgpack."""


def _key_of(principal: Principal) -> AttemptKey:
    assert principal.attempt is not None, "the permission of the route"
    return AttemptKey(*principal.attempt)


async def _read_order(context: ServerContext, key: AttemptKey) -> Order:
    """Return the order of an attempt that is wanted."""
    await context.node.remote_reports.check_current(key)
    stored = await context.node.store.attempt_orders.get(key)
    if stored is None:
        raise AttemptEndedError(key)
    return decode_order(stored.payload)


async def start_attempt(request: ApiRequest, data: JSONBody[AttemptStart]) -> StartedAttempt:
    """Begin an attempt, and return what to run.

    The attempt is `running` from now on. A repeated call of the same process gets the same answer. Another process is
    refused with `attempt_started`, and an attempt that is no longer wanted with `attempt_ended`.
    """
    key = _key_of(request.user)
    await request.node.remote_reports.start(key, data.process)
    return StartedAttempt((await _read_order(request.context, key)).encode())


async def beat_attempt(request: ApiRequest) -> AttemptLease:
    """Renew the lease of an attempt; `attempt_ended` says that the code is to be stopped."""
    await request.node.remote_reports.renew(_key_of(request.user))
    return AttemptLease(request.node.settings.heartbeat_timeout)


async def add_attempt_logs(request: ApiRequest, data: JSONBody[AttemptLogs]) -> None:
    """Append a numbered batch of log records; a repeated one is dropped."""
    mask = request.node.access.secrets.mask
    records = data.records if mask.is_empty else [mask_record(mask, record) for record in data.records]
    await request.node.remote_reports.add_logs(_key_of(request.user), data.number, records)


async def report_attempt(request: ApiRequest, data: JSONBody[AttemptReport]) -> None:
    """Record the result of an attempt; a repeated report changes nothing, and a late one is refused."""
    key, mask = _key_of(request.user), request.node.access.secrets.mask
    stored = await request.node.store.attempt_orders.get(key)
    if stored is None:
        raise AttemptEndedError(key)
    result = _decode_result(request.context, data)
    await request.node.remote_reports.end(decode_order(stored.payload), mask_ending(mask, result))


def _decode_result(context: ServerContext, data: AttemptReport) -> AttemptResult:
    try:
        message = RESULT_DECODER.decode(data.result)
    except msgspec.DecodeError as error:
        raise RequestError(f"the result cannot be decoded: {error}", code="invalid_result") from error
    result = message.to_ending(context.node.event_feed.clock.now())
    if result is None:
        raise RequestError("the result says nothing", code="invalid_result")
    return result


async def call_from_attempt(request: ApiRequest, data: JSONBody[AttemptCall]) -> AttemptReply:
    """Make a call of the code, such as `ctx.push`, for the tenant of the attempt; its error is part of the answer."""
    order = await _read_order(request.context, _key_of(request.user))
    try:
        call = CALL_DECODER.decode(data.call)
    except msgspec.DecodeError as error:
        raise RequestError(f"the call cannot be decoded: {error}", code="invalid_call") from error
    try:
        reply = CallReply.to_answer(call, await request.node.handle_call(order.request, call))
    except StoreError:
        raise  # the attempt repeats the call
    except Exception as error:  # of any kind: it belongs to the task, which waits for a reply
        reply = CallReply(error=CallError.from_error(error))
    return AttemptReply(msgspec.msgpack.encode(reply))


async def get_attempt_code(request: ApiRequest) -> Response[bytes]:
    """Return the code of an attempt: the archive whose digest the order names."""
    key = _key_of(request.user)
    await request.node.remote_reports.check_current(key)
    stored = await request.node.store.attempt_orders.get(key)
    digest = None if stored is None else stored.bundle
    archive = None if digest is None else await request.node.store.code_bundles.read(request.user.tenant, digest)
    if archive is None:
        raise RequestError(f"attempt {key} has no code to download", code="code_not_found", status=404)
    return Response(archive, media_type="application/octet-stream")
