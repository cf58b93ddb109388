"""`ctx.log`: a logger whose records go to the attempt's log, and to Python's logging as well."""

import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from tidemill.annotations.codec import ENCODER
from tidemill.engine.workflows.executors.failures import shorten
from tidemill.engine.workflows.executors.interface import LINE, LogRecord
from tidemill.kernel.author_errors import describe
from tidemill.kernel.clock import Clock
from tidemill.telemetry.fields import fields_of, storable_field, without_reserved
from tidemill.workflows.records import AttemptKey

FIELD_LIMIT = 4 * 1024
NAME_LIMIT = 200

logger = logging.getLogger("tidemill.task")


class TaskLog(logging.LoggerAdapter[logging.Logger]):
    """The log of one attempt. It keeps every level: what is worth reading is the reader's choice.

    Keywords are fields of the record, `ctx.log.info("read", rows=3)`, and so are those in `extra`.
    """

    def __init__(self, key: AttemptKey, clock: Clock, take: Callable[[LogRecord], None], *, echoes: bool) -> None:
        super().__init__(logger, {})
        self._key = key
        self._clock = clock
        self._take = take
        self._echoes = echoes

    def isEnabledFor(self, level: int) -> bool:  # noqa: ARG002, N802 - the name is logging's
        """Return True: the attempt's log takes all."""
        return True

    def log(self, level: int, msg: object, /, *args: object, **kwargs: Any) -> None:  # type: ignore[override]
        """Keep a record."""
        record = LogRecord(
            at=self._clock.now(),
            message=shorten(_text(msg, args) + _trace(kwargs.get("exc_info")), LINE),
            level=logging.getLevelName(level).lower(),
            fields={shorten(str(name), NAME_LIMIT): _plain(value) for name, value in fields_of(kwargs).items()},
        )
        self._take(record)
        if self._echoes:
            echo(self._key, record)


def echo(key: AttemptKey, record: LogRecord) -> None:
    """Say to Python's logging what an attempt said."""
    level = logging.getLevelNamesMapping().get(record.level.upper(), logging.INFO)
    if logger.isEnabledFor(level):
        fields = without_reserved(record.fields)
        logger.log(level, "%s", record.message, extra=fields | {"attempt": str(key)})


def _text(message: object, args: tuple[Any, ...]) -> str:
    """Return a message with its arguments, as logging would put it."""
    if len(args) == 1 and isinstance(args[0], Mapping) and args[0]:
        args = args[0]  # type: ignore[assignment]  # "%(name)s" % mapping
    try:
        return str(message) % args if args else str(message)
    except Exception as error:  # author code: a bad format, or a `__str__` that raises, is no reason to fail
        return (
            f"{message!r} % {len(args)} arguments: {describe(error)}" if isinstance(message, str) else describe(error)
        )


def _trace(info: Any) -> str:
    error = info if isinstance(info, BaseException) else None
    if info and error is None:
        error = info[1] if isinstance(info, tuple) else _current()
    return "\n" + "".join(traceback.format_exception(error)).rstrip() if error is not None else ""


def _current() -> BaseException | None:
    return sys.exc_info()[1]


def _plain(value: object) -> object:
    """Return the value of a field as something that can be stored, and is not too big for that."""
    plain = storable_field(value)
    return plain if len(ENCODER.encode(plain)) <= FIELD_LIMIT else shorten(repr(plain), FIELD_LIMIT)
