"""Operations, results and errors as they pass between nodes: msgpack, and the same error is raised at the caller."""

import inspect
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, get_type_hints

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


class RemoteCall(msgspec.Struct, frozen=True):
    """The signature of an operation that other nodes ask for."""

    signature: inspect.Signature
    hints: dict[str, Any]

    @classmethod
    @cache
    def of_function(cls, function: Callable[..., Awaitable[Any]]) -> "RemoteCall":
        """Read the signature of an operation, once."""
        return cls(inspect.signature(function), get_type_hints(function))

    @classmethod
    def of(cls, operation: Any) -> "RemoteCall":
        """Return the signature of an operation, a bound method."""
        return cls.of_function(operation.__func__)

    @property
    def result_type(self) -> Any:
        """The type of what the operation returns."""
        return self.hints["return"]

    @property
    def takes_position(self) -> bool:
        """Whether the operation is a push, which a producer may number."""
        return "position" in self.hints

    def to_push_result(self, runs: tuple[ReceiptRun, ...]) -> Receipt | PushSummary:
        """Return what a push returns that got these receipts."""
        return runs[0].receipt(0) if self.result_type is Receipt else PushSummary(runs)

    def encode_arguments(self, *arguments: Any, **keywords: Any) -> bytes:
        """Encode arguments by name; RequestError if a value cannot be sent."""
        named = self.signature.bind(None, *arguments, **keywords).arguments
        try:
            return msgspec.msgpack.encode({name: value for name, value in named.items() if name != "self"})
        except (TypeError, ValueError, OverflowError) as error:
            message = f"another node owns the accumulator or reactor, and the value cannot be sent there: {error}"
            raise RequestError(message, code="invalid_value") from error

    def decode_arguments(self, payload: bytes) -> dict[str, Any]:
        """Return arguments by name."""
        named: dict[str, Any] = msgspec.msgpack.decode(payload)
        return {name: msgspec.convert(value, self.hints[name]) for name, value in named.items()}


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
    runs = decode_runs(push.receipts)
    return runs[0].receipt(0) if result_type is Receipt else PushSummary(runs, push.is_duplicate)
