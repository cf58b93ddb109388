"""Steps of a task: what it has done under a name, and is not done again when the task is called again.

A task may be called again from the top: after a deferral, by a retry, on another node. A step is a function whose
value is committed before the task goes on: every later call of the task gets the value, and does not call the function.
Steps are found by name, not by position: the order of their calls is free.
"""

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import lru_cache
from typing import Any, get_type_hints

import msgspec

from tidemill.annotations.codec import ENCODER, Codec, UnstorableError, build_codec
from tidemill.annotations.validation import TypeMismatchError
from tidemill.annotations.variants import label
from tidemill.kernel.author_errors import Fail
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.workflows.definition import Skip
from tidemill.workflows.node_calls import NodeCall, RecordCall, StepsCall, StepValueCall
from tidemill.workflows.step_records import KEPT_VALUE_LIMIT, StepFailure, StepName, StepRecord, TaskRecords
from tidemill.workflows.waits import WaitRecord

STEP_LIMIT = 10_000
"""The number of records of one task run."""
KEY_LIMIT = 200
"""Characters of a key."""
STEP_VALUE_LIMIT = 64 * 1024 * 1024 - 4096
"""The size limit of a value, in bytes of its stored form: it fits into one message to the node."""
ENCODED_NONE = ENCODER.encode(None)

Procedure = Generator["NodeCall | Awaitable[Any]", Any, Any]
"""Work of a context: it yields calls to the node and awaitables, and is sent their answers. It knows no event loop."""
Perform = Callable[[Procedure], Any]
"""Does the work: returns its result, or an awaitable of it to code that runs on an event loop."""
Judge = Callable[[BaseException], StepFailure]
"""Returns what is stored about an error of a step."""


class StepError(OperationError):
    """A step, or the run that a task has called, has failed. `type` and `message` are those of its error."""

    def __init__(self, name: str, failure: StepFailure, *, shown: str = "", run: str | None = None) -> None:
        subject = shown or f"step '{name}'"
        super().__init__(f"{subject} failed: {failure.error}")
        self.name = name
        self.type = failure.error.type
        self.message = failure.error.message
        self.run = run
        """The run that has failed; None for a step."""
        self.failure = failure

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_step_error, (self.name, self.failure, str(self), self.run)


def _rebuild_step_error(name: str, failure: StepFailure, text: str, run: str | None) -> StepError:
    error = StepError(name, failure, run=run)
    error.args = (text,)
    return error


class SupersededError(BaseException):
    """The attempt is no longer the current one of its task. Not an Exception: author code must not go on."""


class TaskSteps:
    """The steps of one attempt: those that the task has recorded, and those that it adds."""

    def __init__(
        self, *, has_records: bool, number: int, perform: Perform, judge: Judge, now: Callable[[], float]
    ) -> None:
        """Take the number of the try, and whether an earlier attempt may have left records."""
        self.perform = perform
        self._known: dict[StepName, StepRecord] | None = None if has_records else {}
        self.number = number
        self.known_waits: tuple[WaitRecord, ...] = ()
        """The waits of the task, as they were when its records were read."""
        self._judge = judge
        self._now = now

    def run(self, name: StepName, function: Callable[..., Any], values: "StepArguments") -> Procedure:
        """Return the value of a step; call the function if the step has none."""
        codec = _codec_of(function, name.shown)
        record = (yield from self._load()).get(name)
        if record is not None and record.failure is None:
            stored = record.value if record.value is not None else (yield StepValueCall(name))
            return codec.decode(stored)
        if record is not None and record.failure is not None and record.try_number == self.number:
            raise StepError(name.name, record.failure, shown=name.shown)
        self._check_room(name)
        return codec.decode((yield from self._call(name, function, values, codec)))

    def _call(
        self, name: StepName, function: Callable[..., Any], values: "StepArguments", codec: "_StepCodec"
    ) -> Procedure:
        """Call the function, and record its value or its failure; return the stored form of the value."""
        begin = self._now()
        try:
            value = function(*values.positional, **values.named)
            if inspect.isawaitable(value):
                value = yield value
        except (Fail, Skip):  # they end the task, as outside of a step
            raise
        except Exception as error:  # author code
            failure = self._judge(error)
            yield from self._record(self._make_record(name, failure=failure), self._now() - begin)
            raise StepError(name.name, failure, shown=name.shown) from error
        record = self._make_record(name, value=codec.encode(value))
        return (yield from self._record(record, self._now() - begin))

    def _load(self) -> Generator[NodeCall, Any, dict[StepName, StepRecord]]:
        """Return the records of the task; those of earlier attempts are read once."""
        if self._known is None:
            records: TaskRecords = yield StepsCall()
            if self._known is None:  # another call of the task may have read them meanwhile
                self._known, self.known_waits = {one.name: one for one in records.steps}, records.waits
        return self._known

    def load_waits(self) -> Generator[NodeCall, Any, tuple[WaitRecord, ...]]:
        """Return the waits of the task, oldest first."""
        yield from self._load()
        return self.known_waits

    def _record(self, record: StepRecord, seconds: float) -> Generator[NodeCall, Any, bytes]:
        """Commit a record; return the stored form of its value: the one of the first record of this name."""
        try:
            kept: bytes | None = yield RecordCall(record, max(0.0, seconds))
        except RequestError as error:
            if error.code == "attempt_ended":
                raise SupersededError(str(error)) from None
            raise
        value = record.value if kept is None else kept
        assert self._known is not None, "the records were loaded before"
        is_small = value is not None and len(value) <= KEPT_VALUE_LIMIT
        self._known[record.name] = msgspec.structs.replace(record, value=value if is_small else None)
        return value or b""

    def _make_record(self, name: StepName, **ended: Any) -> StepRecord:
        return StepRecord(name, self.number, len(self._known or ()), **ended)

    def _check_room(self, name: StepName) -> None:
        if self._known is not None and len(self._known) >= STEP_LIMIT and name not in self._known:
            raise Fail(f"a task has at most {STEP_LIMIT:,} steps: give parts of the work to runs of another workflow")


class StepArguments(msgspec.Struct, frozen=True):
    """The arguments of a step's function."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any]


class StepNames:
    """Names the steps of one call of a task: by function and key, else by the number of the call."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()

    def name(self, function: Callable[..., Any], key: Any) -> StepName:
        """Return the name of a step; TypeError for a function without a name, unless it has a key."""
        if not callable(function):
            raise TypeError(f"ctx.step takes a function and its arguments, not {function!r}")
        inner = getattr(function, "func", function)  # a partial has no name, its function has
        own = getattr(inner, "__name__", type(inner).__name__)
        if key is not None:
            return StepName("step", own, encode_key(key), 0)
        if inner is not function or not str(own).isidentifier() or not hasattr(inner, "__name__"):
            raise TypeError(f"{function!r} has no name: give the step one, ctx.step(..., key='fetch')")
        self._calls[own] += 1
        return StepName("step", own, "", self._calls[own])


def encode_key(key: Any) -> str:
    """Return a key as JSON; TypeError or ValueError if it cannot be one."""
    if not isinstance(key, str | int):
        raise TypeError(f"key= takes a text, a whole number or a bool, not {key!r}")
    encoded = msgspec.json.encode(key).decode()
    if len(encoded) > KEY_LIMIT + 2:
        raise ValueError(f"key= takes at most {KEY_LIMIT} characters, not {len(encoded) - 2:,}")
    return encoded


class _StepCodec:
    """Encodes and decodes the values of a step, as its function declares them."""

    def __init__(self, returns: Any, shown: str) -> None:
        self._returns = returns
        self._shown = shown
        try:
            self._codec: Codec | None = build_codec(returns)
        except UnstorableError as error:
            self._codec, self._problem = None, str(error)

    def encode(self, value: Any) -> bytes:
        """Return the stored form of a value; UnstorableError or TypeMismatchError if it has none."""
        if value is None:
            return ENCODED_NONE
        try:
            if self._codec is None:
                raise UnstorableError(self._problem)
            encoded = self._codec.encode(value)
            self._codec.decode(encoded)
        except UnstorableError as error:
            raise UnstorableError(f"{self._shown} returned a value that cannot be stored: {error}") from error
        except TypeMismatchError as error:
            returned = f"a value of class {type(value).__name__}, but declares {label(self._returns)}"
            raise TypeMismatchError(f"{self._shown} returned {returned}: {error}") from error
        if len(encoded) > STEP_VALUE_LIMIT:
            raise UnstorableError(
                f"{self._shown} returned {len(encoded):,} bytes, and {STEP_VALUE_LIMIT:,} are allowed: store the value "
                "elsewhere, and return its location"
            )
        return encoded

    def decode(self, stored: bytes) -> Any:
        """Return a value from its stored form."""
        if stored == ENCODED_NONE or self._codec is None:
            return None
        try:
            return self._codec.decode(stored)
        except TypeMismatchError as error:
            message = f"the value of {self._shown} cannot be decoded as {label(self._returns)}: {error}"
            raise TypeMismatchError(message) from error


def _codec_of(function: Callable[..., Any], shown: str) -> _StepCodec:
    try:
        return _StepCodec(_returns_of(function), shown)
    except TypeError:  # a callable that cannot be hashed
        return _StepCodec(_returns_of.__wrapped__(function), shown)


@lru_cache(maxsize=256)
def _returns_of(function: Callable[..., Any]) -> Any:
    """Return the annotation of what a function returns; Any if it has none that can be resolved."""
    inner = inspect.unwrap(getattr(function, "func", function))
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    try:
        return get_type_hints(inner, include_extras=True).get("return", Any)
    except Exception:  # author code: annotations may hold any expression
        return Any
