"""Fields of log records: what an author says beside the message, `ctx.log.info("read", rows=3)`."""

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

_OWN = frozenset(["exc_info", "stack_info", "stacklevel", "extra"])
"""Keywords of logging itself; every other one is a field."""
_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def fields_of(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields among the keywords of a log call: those in `extra`, and those that are not logging's own."""
    named = {name: value for name, value in keywords.items() if name not in _OWN}
    return {**(keywords.get("extra") or {}), **named}


def without_reserved(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields without those that logging would refuse, as a record has its own of that name."""
    return {name: value for name, value in fields.items() if name not in _RESERVED}


class FieldsLog(logging.LoggerAdapter[logging.Logger]):
    """A logger that says who speaks with every record, and takes keywords as fields."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return a message, and its keywords as logging knows them."""
        known = {name: value for name, value in kwargs.items() if name in _OWN}
        return msg, known | {"extra": without_reserved({**fields_of(kwargs), **(self.extra or {})})}
