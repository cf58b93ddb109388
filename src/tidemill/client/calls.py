"""Calls of the API as values: what is sent, how the answer is read, and whether the call may be repeated.

Calls do no I/O. Both clients, the asynchronous and the blocking one, send the same calls.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, get_args
from urllib.parse import quote
from uuid import uuid4

import msgspec

from tidemill.api.fields import Place, RequestField, TenantName
from tidemill.api.operation import Method, Operation
from tidemill.client.connection import API_PATH
from tidemill.kernel.errors import OperationError, RequestError

Answer = TypeVar("Answer")

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARCHIVE = "application/octet-stream"

QueryValue = str | int | float | bool | datetime | Sequence[str] | None


class ApiCall(msgspec.Struct, Generic[Answer], frozen=True, kw_only=True):
    """One request of the API."""

    method: Method
    path: str
    answer: Any
    """The type of the answer; None if there is none to read."""
    query: Mapping[str, str | list[str]] = {}
    content: bytes | None = None
    headers: Mapping[str, str] = {}
    is_repeatable: bool = True
    """Whether the call may be sent again if it is unknown what became of it: a second one changes nothing more."""

    def read(self, body: bytes) -> Answer:
        """Return the answer in a body; OperationError if this is not what a server of this version answers."""
        if self.answer is None:
            return None  # type: ignore[return-value]  # a call without an answer is an ApiCall[None]
        try:
            return msgspec.json.decode(body, type=self.answer)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"the answer to {self.method} {self.path} is not what this client expects: {error}"
            raise OperationError(f"{message}; are client and server of the same version?") from error


def to_call(operation: Operation[..., Answer], fields: Mapping[str, Any]) -> ApiCall[Answer]:
    """Return the call of an operation with the fields of its request."""
    http, sent = operation.http, operation.to_wire(fields)
    places = {place: [one.wire_name for one in operation.fields if one.place == place] for place in get_args(Place)}
    names = {one.name: _in_path(one, sent.pop(one.name)) for one in operation.fields if one.place == "path"}
    body = {name: sent[name] for name in places["body"] if name in sent}
    headers = {name: str(sent[name]) for name in places["header"] if name in sent}
    if body:
        headers["content-type"] = JSON
    if operation.makes_once:
        headers["idempotency-key"] = str(uuid4())
    return ApiCall(
        method=http.method,
        path=API_PATH + http.path.format(**names),
        answer=None if operation.answer is type(None) else operation.answer,
        query=encode_query({name: sent[name] for name in places["query"] if name in sent}),
        content=encode(body) if body else None,
        headers=headers,
        is_repeatable=http.is_idempotent or operation.makes_once,
    )


def get(path: str, answer: type[Answer], **query: QueryValue) -> ApiCall[Answer]:
    """Return a call that reads."""
    return ApiCall(method="GET", path=API_PATH + path, answer=answer, query=encode_query(query))


def make(path: str, answer: type[Answer], body: Any = None, *, content_type: str = JSON) -> ApiCall[Answer]:
    """Return a call that makes something. Its idempotency key lets it be repeated: the server makes it once."""
    headers = {"idempotency-key": str(uuid4()), "content-type": content_type}
    return ApiCall(method="POST", path=API_PATH + path, answer=answer, content=encode(body), headers=headers)


def command(
    path: str, answer: type[Answer], body: Any = None, *, is_repeatable: bool = False, content_type: str = JSON
) -> ApiCall[Answer]:
    """Return a call that does something to what exists; repeatable if doing it twice is doing it once."""
    headers = {"content-type": content_type}
    return ApiCall(
        method="POST",
        path=API_PATH + path,
        answer=answer,
        content=encode(body),
        headers=headers,
        is_repeatable=is_repeatable,
    )


def put(
    path: str, answer: type[Answer], body: Any, *, content_type: str = JSON, **query: QueryValue
) -> ApiCall[Answer]:
    """Return a call that sets something."""
    return ApiCall(
        method="PUT",
        path=API_PATH + path,
        answer=answer,
        query=encode_query(query),
        content=encode(body),
        headers={"content-type": content_type},
    )


def patch(path: str, answer: type[Answer], body: Any) -> ApiCall[Answer]:
    """Return a call that changes a part of something."""
    headers = {"content-type": JSON}
    return ApiCall(method="PATCH", path=API_PATH + path, answer=answer, content=encode(body), headers=headers)


def delete(path: str) -> ApiCall[None]:
    """Return a call that deletes something."""
    return ApiCall(method="DELETE", path=API_PATH + path, answer=None)


def _in_path(field: RequestField, name: str) -> str:
    """Return a name for use in a path; that of another tenant's has two parts."""
    is_foreign = field.marker(TenantName) is not None and isinstance(name, str) and "/" in name
    return "/".join(map(name_in_path, name.split("/", 1))) if is_foreign else name_in_path(name)


def name_in_path(name: str) -> str:
    """Return a name for use in a path."""
    if not isinstance(name, str) or not name or name in (".", ".."):
        raise RequestError(f"{name!r} is not a name", code="invalid_name")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise RequestError(f"{name!r} is not a name: a character of it is not Unicode", code="invalid_name") from None


def encode(body: Any) -> bytes:
    """Return the bytes of a body; bytes are sent as they are. RequestError if the value has no JSON form."""
    if isinstance(body, bytes):
        return body
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"this cannot be sent as JSON: {error}", code="not_serializable") from error


def encode_query(query: Mapping[str, QueryValue]) -> dict[str, str | list[str]]:
    """Return the given options of a query: without those that are None, with true and false as the API spells them.

    An underscore at the end of a name is dropped: `from_` is the option `from`.
    """
    return {name.removesuffix("_"): _query_text(value) for name, value in query.items() if value is not None}


def _query_text(value: str | float | bool | datetime | Sequence[str]) -> str | list[str]:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, str | int | float) else [str(one) for one in value]
