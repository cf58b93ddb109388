"""Fields of log records: the values that an author logs with the message, `ctx.log.info("read", rows=3)`."""

import logging
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from typing import Any

import msgspec

from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe, shorten

FIELD_LIMIT = 4 * 1024
FIELD_NAME_LIMIT = 200
MAX_DEPTH = 32
"""The depth up to which nested values are kept; deeper ones become text, so that readers do not overflow the stack."""

_ENCODER = msgspec.msgpack.Encoder()
_LOGGING_KEYWORDS = frozenset(["exc_info", "stack_info", "stacklevel", "extra"])
"""Keywords of the logging module; every other keyword is a field."""
RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes of a log record itself; Python 3.11 does not have all of them."""


def extract_fields(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a log call: those in `extra`, and all keywords that are not logging's own."""
    named = {name: value for name, value in keywords.items() if name not in _LOGGING_KEYWORDS}
    return {**(keywords.get("extra") or {}), **named}


def drop_reserved(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields without those that logging rejects because a record has an attribute of that name."""
    return {name: value for name, value in fields.items() if name not in RECORD_ATTRIBUTES}


def rename_reserved(fields: Mapping[str, Any], *taken: str) -> dict[str, Any]:
    """Return fields under names that a record can have: "name_" for one that logging rejects, or that is taken."""
    reserved = {*RECORD_ATTRIBUTES, *taken}
    return {f"{name}_" if name in reserved else name: value for name, value in fields.items()}


def to_storable_field(value: object) -> object:
    """Return the value of a field in a form that can be stored; parts that cannot be stored become their repr."""
    try:
        return _to_storable(msgspec.to_builtins(value, enc_hook=_safe_repr), MAX_DEPTH)
    except AUTHOR_ERRORS:  # author code: any value may be logged, and inspecting it may raise
        return _safe_repr(value)


def _to_storable(value: Any, depth: int) -> Any:
    match value:
        case None | bool() | float():
            return value
        case int():
            return value if -(2**63) <= value < 2**64 else _safe_repr(value)
        case str():
            return value if value.isascii() or _is_encodable(value) else _safe_repr(value)
        case list() | tuple() if depth:
            return [_to_storable(one, depth - 1) for one in value]
        case dict() if depth:
            return {_to_storable(name, 0): _to_storable(one, depth - 1) for name, one in value.items()}
    return _safe_repr(value)


def _is_encodable(text: str) -> bool:
    """Return whether a text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _safe_repr(value: object) -> str:
    try:
        text = repr(value)
    except AUTHOR_ERRORS as error:  # author code: as above
        return describe(error)
    return text.encode(errors="backslashreplace").decode()


def storable_fields(keywords: Mapping[str, Any]) -> dict[str, object]:
    """Return the fields of a log call in a form that can be stored."""
    return {
        shorten(str(name), FIELD_NAME_LIMIT): _to_bounded(value) for name, value in extract_fields(keywords).items()
    }


def format_message(message: object, args: Any) -> str:
    """Return a message with its arguments, formatted as logging does."""
    if isinstance(args, tuple) and len(args) == 1 and isinstance(args[0], Mapping) and args[0]:
        args = args[0]  # "%(name)s" % mapping
    try:
        return str(message) % args if args else str(message)
    except Exception as error:  # author code: a bad format, or a `__str__` that raises, does not fail the task
        return (
            f"{message!r} % {len(args)} arguments: {describe(error)}" if isinstance(message, str) else describe(error)
        )


def format_exc_info(info: Any) -> str:
    """Return the traceback of a log call, after a line break; "" without one."""
    error = info if isinstance(info, BaseException) else None
    if info and error is None:
        error = info[1] if isinstance(info, tuple) else sys.exc_info()[1]
    return "\n" + "".join(traceback.format_exception(error)).rstrip() if error is not None else ""


def _to_bounded(value: object) -> object:
    """Return the value of a field in a form that can be stored, shortened to FIELD_LIMIT."""
    storable = to_storable_field(value)
    return storable if len(_ENCODER.encode(storable)) <= FIELD_LIMIT else shorten(repr(storable), FIELD_LIMIT)


class FieldLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that adds its own fields to every record, and takes keywords as fields."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return the message, with its fields moved into `extra`."""
        known = {name: value for name, value in kwargs.items() if name in _LOGGING_KEYWORDS}
        return msg, known | {"extra": drop_reserved({**extract_fields(kwargs), **(self.extra or {})})}
