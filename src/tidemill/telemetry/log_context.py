"""The context of log records: the request, run or firing that the logging code works for.

Every record that is logged inside has these fields, also records of author code that knows nothing of them. Tasks and
threads that are started inside inherit the context.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})
_fields: ContextVar[Mapping[str, Any]] = ContextVar("tidemill_log_fields", default=_NO_FIELDS)


@contextmanager
def log_fields(**fields: Any) -> Iterator[None]:
    """Add fields to every record that is logged inside."""
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def current_log_fields() -> Mapping[str, Any]:
    """Return the fields of records that are logged now."""
    return _fields.get()
