"""Fields of log records: what an author says beside the message, `ctx.log.info("read", rows=3)`."""

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

import msgspec

from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe

MAX_DEPTH = 32
"""How deep values within values are kept as such: whoever reads them has a stack of its own."""

_LOGGING_KEYWORDS = frozenset(["exc_info", "stack_info", "stacklevel", "extra"])
"""Keywords of logging itself; every other one is a field."""
_RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def extract_fields(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields among the keywords of a log call: those in `extra`, and those that are not logging's own."""
    named = {name: value for name, value in keywords.items() if name not in _LOGGING_KEYWORDS}
    return {**(keywords.get("extra") or {}), **named}


def drop_reserved(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields without those that logging would refuse, as a record has its own of that name."""
    return {name: value for name, value in fields.items() if name not in _RECORD_ATTRIBUTES}


def to_storable_field(value: object) -> object:
    """Return the value of a field so that it can be stored, and read again; what of it cannot be, as it is shown."""
    try:
        return _to_storable(msgspec.to_builtins(value, enc_hook=_safe_repr), MAX_DEPTH)
    except AUTHOR_ERRORS:  # author code: anything may be logged, and looking at it may do anything
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
    """Return whether a text has no half characters."""
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


class FieldLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that says who speaks with every record, and takes keywords as fields."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return a message, and its keywords as logging knows them."""
        known = {name: value for name, value in kwargs.items() if name in _LOGGING_KEYWORDS}
        return msg, known | {"extra": drop_reserved({**extract_fields(kwargs), **(self.extra or {})})}
