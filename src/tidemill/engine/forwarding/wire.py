"""Answers and errors as they pass between nodes: msgpack, and the same error is raised at the caller."""

from typing import Any

import msgspec

from tidemill.graphs.outcomes import Receipt, to_jsonable
from tidemill.graphs.pushes import PushSummary, ReceiptRun, decode_runs, encode_runs
from tidemill.kernel.errors import (
    FullError,
    NotFoundError,
    OperationError,
    RequestError,
    StoreError,
    TidemillError,
    rebuild_request_error,
)

_REQUEST_ERRORS: dict[str, type[RequestError]] = {one.__name__: one for one in (RequestError, NotFoundError, FullError)}


class ErrorReport(msgspec.Struct, frozen=True):
    """An error that an operation raised at the owner."""

    kind: str
    """The name of its class."""
    message: str
    code: str | None = None
    status: int = 0
    facts: dict[str, Any] = {}

    @classmethod
    def of(cls, error: TidemillError) -> "ErrorReport":
        """Report an error."""
        kind = type(error).__name__
        if isinstance(error, RequestError):
            return cls(kind, str(error), error.code, error.status, to_jsonable(error.facts))
        return cls(kind, str(error))

    def to_error(self) -> TidemillError:
        """Return the error to raise at the caller; that of a class which is not known here has the nearest one."""
        if self.code is not None:
            kind = _REQUEST_ERRORS.get(self.kind, RequestError)
            return rebuild_request_error(kind, self.message, self.code, self.status, self.facts)
        return StoreError(self.message) if self.kind == StoreError.__name__ else OperationError(self.message)


class Answer(msgspec.Struct, frozen=True):
    """What an operation returned, or the error that it raised."""

    result: msgspec.Raw = msgspec.Raw(b"\xc0")  # nil
    error: ErrorReport | None = None


class _EncodedPush(msgspec.Struct, frozen=True):
    """The result of a push: receipts in their stored form, which is short and keeps their classes."""

    receipts: bytes
    is_duplicate: bool = False


def encode_result(result: Any) -> bytes:
    """Encode what an operation returned."""
    if isinstance(result, Receipt):
        result = _EncodedPush(encode_runs([ReceiptRun.of(result)]))
    elif isinstance(result, PushSummary):
        result = _EncodedPush(encode_runs(result.runs), result.is_duplicate)
    encoded = msgspec.msgpack.encode(result, enc_hook=to_jsonable)
    return msgspec.msgpack.encode(Answer(msgspec.Raw(encoded)))


def encode_error(error: TidemillError) -> bytes:
    """Encode the error that an operation raised."""
    return msgspec.msgpack.encode(Answer(error=ErrorReport.of(error)))


def decode_answer(payload: bytes, result_type: Any) -> Any:
    """Return the result of an operation, or raise its error."""
    answer = msgspec.msgpack.decode(payload, type=Answer)
    if answer.error is not None:
        raise answer.error.to_error()
    if result_type not in (Receipt, PushSummary):
        return msgspec.msgpack.decode(answer.result, type=result_type)
    push = msgspec.msgpack.decode(answer.result, type=_EncodedPush)
    return decode_push(push.receipts, result_type, is_duplicate=push.is_duplicate)


def decode_push(receipts: bytes, result_type: Any, *, is_duplicate: bool = False) -> Receipt | PushSummary:
    """Return what a push returns that got these receipts."""
    runs = decode_runs(receipts)
    return runs[0].receipt(0) if result_type is Receipt else PushSummary(runs, is_duplicate)
