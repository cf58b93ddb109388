"""Decorators that declare accumulators, one per kind, and `window` for a graph's own memory."""

import inspect
import keyword
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, get_args, overload

from tidemill.annotations.signatures import MISSING, AuthorFunction, caller_location, inspect_signature
from tidemill.graphs.definition import Accumulator, AccumulatorKind, Extra, Kafka, Nats, Source
from tidemill.kernel.durations import Duration, parse_positive_duration
from tidemill.kernel.errors import DefinitionError, Location
from tidemill.kernel.suggestions import did_you_mean

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")
Event = TypeVar("Event")
Function = Callable[..., Any]
Upgrade = Callable[[dict[str, Any]], Any]
"""Returns the running state for the stored one of an older version, which is plain data."""


class Declare(Protocol):
    """What a decorator with options returns."""

    def __call__(self, function: Callable[Arguments, Returned], /) -> Accumulator[Arguments, Returned]:
        """Declare the accumulator of a function."""


SHORTEST_DEFAULT_TIMEOUT = 10.0  # seconds that a poll has if its declaration does not say


@overload
def passthrough(function: Callable[Arguments, Returned], /) -> Accumulator[Arguments, Returned]: ...
@overload
def passthrough(name: str, element: type[Event], /, *, extra: Extra = "ignore") -> Accumulator[[Event], Event]: ...
@overload
def passthrough(*, state: type | None = None, upgrade: Upgrade | None = None, extra: Extra = "ignore") -> Declare: ...
def passthrough(
    function: Function | str | None = None,
    element: Any = MISSING,
    /,
    *,
    state: type | None = None,
    upgrade: Upgrade | None = None,
    extra: Extra = "ignore",
) -> Any:
    """Declare an accumulator fed by push alone: one event in, one boundary out, or None to emit nothing.

    `tm.passthrough("orderbook", Book)` is an accumulator that emits its events as they are. Here and in the other
    declarations, `extra="forbid"` rejects events with fields that their type does not have.
    """
    location = caller_location()
    _check_extra(extra, location)
    if isinstance(function, str):
        return _declare_unchanged(function, element, state or upgrade, extra, location)
    if element is not MISSING:
        message = f'with a type it takes a name, tm.passthrough("orderbook", Book), not {function!r}'
        raise DefinitionError.single("passthrough", message, location)
    if function is not None:
        return _declare_accumulator(function, AccumulatorKind.PASSTHROUGH)
    return _with_options(AccumulatorKind.PASSTHROUGH, state=state, upgrade=upgrade, extra=extra)


def stream(
    source: Source | Kafka | Nats,
    *,
    state: type | None = None,
    upgrade: Upgrade | None = None,
    extra: Extra = "ignore",
) -> Declare:
    """Declare an accumulator that follows a source of events, such as a Kafka topic."""
    location = caller_location()
    _check_not_bare("stream", "a source", '(tm.Kafka(topic="prices"))', source, location)
    if isinstance(source, type) or not isinstance(source, Source | Kafka | Nats):
        message = (
            f"{source!r} is not a source: it needs `async def start(self, checkpoint)` that yields (event, checkpoint)"
        )
        raise DefinitionError.single("stream", message, location)
    _check_extra(extra, location)
    return _with_options(AccumulatorKind.STREAM, source=source, state=state, upgrade=upgrade, extra=extra)


def polling(
    every: Duration,
    *,
    timeout: Duration | None = None,
    state: type | None = None,
    upgrade: Upgrade | None = None,
    thread: bool = False,
    extra: Extra = "ignore",
) -> Declare:
    """Declare an accumulator that polls at an interval; None means nothing changed. `thread=True` if it blocks.

    A poll that does not answer within `timeout` (by default `every`, and at least 10 s) is given up. A synchronous
    function can be given up only on a thread, where `timeout=` sends it, too.
    """
    location = caller_location()
    _check_not_bare("polling", "an interval", '(every="5s")', every, location)
    seconds = _parse_duration("polling(every=...)", every, location)
    limit = None if timeout is None else _parse_duration("polling(timeout=...)", timeout, location)
    _check_extra(extra, location)
    options: dict[str, Any] = {
        "every": seconds,
        "timeout": limit or max(seconds, SHORTEST_DEFAULT_TIMEOUT),
        "state": state,
    }
    options["upgrade"] = upgrade
    is_on_thread = thread or timeout is not None
    return _with_options(AccumulatorKind.POLLING, thread=is_on_thread, extra=extra, **options)


def batch(
    every: Duration,
    *,
    max_size: int | None = None,
    state: type | None = None,
    upgrade: Upgrade | None = None,
    extra: Extra = "ignore",
) -> Declare:
    """Declare an accumulator that buffers events and flushes them: by time, by size, and after each firing."""
    location = caller_location()
    _check_not_bare("batch", "an interval", '(every="1s", max_size=500)', every, location)
    seconds = _parse_duration("batch(every=...)", every, location)
    if max_size is not None and (type(max_size) is not int or max_size < 1):
        raise DefinitionError.single("batch", f"max_size is a number of events, at least 1, not {max_size!r}", location)
    _check_extra(extra, location)
    options = {"every": seconds, "max_size": max_size, "state": state, "upgrade": upgrade, "extra": extra}
    return _with_options(AccumulatorKind.BATCH, **options)


def window(name: str, element: Any, *, capacity: int, extra: Extra = "ignore") -> Accumulator:
    """Declare a window of the newest `capacity` values fed to it; negative for all, 0 for a sink that shows none."""
    location = caller_location()
    _check_name("window", name, location)
    if type(capacity) is not int:
        raise DefinitionError.single(f"window '{name}'", f"capacity is a whole number, not {capacity!r}", location)
    _check_extra(extra, location)
    kind = AccumulatorKind.WINDOW
    return Accumulator(name=name, kind=kind, location=location, element=element, capacity=capacity, extra=extra)


def _declare_unchanged(name: str, element: Any, state: Any, extra: Extra, location: Location) -> Accumulator:
    """Declare an accumulator that emits its events as they are."""
    _check_name("passthrough accumulator", name, location)
    if element is MISSING or state is not None:
        message = f'without a function it takes the type of its events, tm.passthrough("{name}", Book), and no state='
        raise DefinitionError.single(f"accumulator '{name}'", message, location)

    def keep(event: Any) -> Any:
        return event

    keep.__name__ = keep.__qualname__ = name
    keep.__annotations__ = {"event": element, "return": element}
    function = AuthorFunction(call=keep, location=location)
    kind = AccumulatorKind.PASSTHROUGH
    return Accumulator(name=name, kind=kind, function=function, location=location, extra=extra)


def _check_name(subject: str, name: Any, location: Location) -> None:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise DefinitionError.single(subject, f"a {subject}'s name is an identifier, not {name!r}", location)


def _check_not_bare(decorator: str, missing: str, example: str, argument: Any, location: Location) -> None:
    """Reject a decorator without its arguments: then it receives the function in place of the first one."""
    if inspect.isroutine(argument):
        message = f"@tm.{decorator} needs {missing}: write @tm.{decorator}{example}"
        raise DefinitionError.single(f"accumulator '{argument.__name__}'", message, location)


def _check_extra(extra: Any, location: Location) -> None:
    words = get_args(Extra)
    if extra not in words:
        message = f"extra is one of {', '.join(map(repr, words))}, not {extra!r}{did_you_mean(str(extra), words)}"
        raise DefinitionError.single("accumulator", message, location)


def _parse_duration(subject: str, value: Duration, location: Location) -> float:
    try:
        return parse_positive_duration(value)
    except ValueError as error:
        raise DefinitionError.single(subject, str(error), location) from error


def _with_options(kind: AccumulatorKind, **options: Any) -> Declare:
    def declare(function: Callable[Arguments, Returned], /) -> Accumulator[Arguments, Returned]:
        return _declare_accumulator(function, kind, **options)

    return declare


def _declare_accumulator(
    call: Callable[Arguments, Returned], kind: AccumulatorKind, **options: Any
) -> Accumulator[Arguments, Returned]:
    try:
        function = AuthorFunction.capture(call, depth=2)
    except TypeError as error:
        raise DefinitionError.single(f"{kind} accumulator", str(error), caller_location(2)) from error
    accumulator: Accumulator[Arguments, Returned] = Accumulator(
        name=function.name, kind=kind, function=function, location=function.location, **options
    )
    _check_parameters(accumulator, function)
    _check_upgrade(accumulator)
    return accumulator


def _check_parameters(accumulator: Accumulator, function: AuthorFunction) -> None:
    """Reject a function that cannot be called with the arguments of its accumulator kind."""
    parameters = inspect_signature(function.call).parameters
    names = list(parameters)
    by_position = [name for name, one in parameters.items() if one.kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
    passed = {AccumulatorKind.POLLING: [], AccumulatorKind.BATCH: ["events"]}.get(accumulator.kind, ["event"])
    if accumulator.state is not None:
        passed.append("state")
    is_callable = names == by_position and len(names) == len(passed)
    if not is_callable or (accumulator.state is not None and names[-1:] != ["state"]):
        message = (
            f"a {accumulator.kind} accumulator is called with ({', '.join(passed)}), "
            f"but '{function.name}' takes ({', '.join(names)})"
        )
        raise DefinitionError.single(f"accumulator '{function.name}'", message, function.location)


def _check_upgrade(accumulator: Accumulator) -> None:
    """Reject an `upgrade=` that cannot be called, or that has no state to upgrade."""
    upgrade = accumulator.upgrade
    if upgrade is None:
        return
    message = ""
    if accumulator.state is None:
        message = "upgrade= needs state=: it makes the running state from the stored one of an older version"
    elif not callable(upgrade) or inspect.iscoroutinefunction(upgrade):
        message = f"upgrade= is a function, not async, that takes the stored state as a dict, not {upgrade!r}"
    if message:
        raise DefinitionError.single(f"accumulator '{accumulator.name}'", message, accumulator.location)
