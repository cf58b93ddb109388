"""Requests: bodies are decoded strictly, from JSON or msgpack, and every invalid field is named by its path."""

import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, get_args, get_type_hints

import msgspec
from litestar import Request
from litestar.datastructures import State

from tidemill.access.principal import Principal
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.server.problems import FieldProblem, InvalidRequestError

JSON_MEDIA_TYPES = frozenset(["", "application/json"])
MSGPACK = "application/msgpack"
MSGPACK_MEDIA_TYPES = frozenset([MSGPACK, "application/x-msgpack", "application/vnd.msgpack"])

_PATH_PATTERN = re.compile(r"^(?P<message>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?$", re.DOTALL)
_UNKNOWN_FIELD_PATTERN = re.compile(r"unknown field `(?P<name>.*)`$")
_UNKNOWN_VALUE_PATTERN = re.compile(r"Invalid enum value '(?P<value>.*)'$")


class ApiRequest(Request[Principal, Any, State]):
    """A request whose body is decoded with the type that its handler declares."""

    async def json(self) -> Any:
        """Return the decoded body; RequestError if it is malformed or invalid."""
        field = self.route_handler.parsed_data_field
        kind = Any if field is None else field.annotation
        return decode_body(await self.body(), self.content_type[0], kind)


def decode_body(body: bytes, media_type: str, kind: Any) -> Any:
    """Decode a body as a type; RequestError says what is wrong with it, and where."""
    decode: Callable[..., Any]
    if media_type in JSON_MEDIA_TYPES:
        decode, name = msgspec.json.decode, "JSON"
    elif media_type in MSGPACK_MEDIA_TYPES:
        decode, name = partial(msgspec.msgpack.decode, ext_hook=_refuse_extension), "msgpack"
    else:
        message = f"the body is application/json or application/msgpack, not {media_type}"
        raise RequestError(message, code="unsupported_media_type", status=415)
    try:
        return decode(body, type=kind)
    except msgspec.ValidationError as error:
        problem = field_problem(error, kind)
        where = f" at `{problem.path}`" if problem.path else ""
        raise InvalidRequestError(f"the body is invalid{where}: {problem.message}", [problem]) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not {name}: {error}", code="malformed_body") from error
    except RecursionError as error:
        raise RequestError("the body is nested too deeply", code="malformed_body") from error


def require_offset(name: str, time: datetime | None) -> None:
    """Raise a RequestError if a parameter is a time without an offset."""
    if time is not None and time.tzinfo is None:
        message = f"{name} needs an offset, such as {time.isoformat()}Z"
        raise InvalidRequestError(message, [FieldProblem(name, message)])


def _refuse_extension(code: int, _: memoryview) -> Any:
    raise msgspec.ValidationError(f"extension {code} is not a value here")


def field_problem(error: Exception, kind: Any = Any) -> FieldProblem:
    """Return the path and the message of a validation error, with a suggestion for an unknown field."""
    match = _PATH_PATTERN.match(str(error))
    path, message = (match["path"] or "", match["message"]) if match else ("", str(error))
    path = path.removeprefix(".")
    if unknown := _UNKNOWN_FIELD_PATTERN.search(message):
        known = getattr(kind, "__struct_fields__", ())
        message += did_you_mean(unknown["name"], known)
        path = f"{path}.{unknown['name']}" if path else unknown["name"]
    elif wrong := _UNKNOWN_VALUE_PATTERN.search(message):
        message += did_you_mean(wrong["value"], _known_values(kind, path))
    return FieldProblem(path, message)


def _known_values(kind: Any, field: str) -> list[str]:
    """Return the values that a field of a body may have, if it declares them."""
    annotation = get_type_hints(kind).get(field) if isinstance(kind, type) else None
    return [one for one in get_args(annotation) if isinstance(one, str)]
