"""`@tm.trigger`: declares a function that is polled, and decides whether a run starts."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidemill.annotations.signatures import AuthorFunction, caller_location, inspect_signature
from tidemill.kernel.durations import Duration, parse_positive_duration
from tidemill.kernel.errors import DefinitionError, Location, Problem
from tidemill.workflows.definition import Fire, Trigger

DEFAULT_TIMEOUT_LIMIT = 60.0  # the longest default timeout, in seconds

Decision = TypeVar("Decision", bound=Fire | Awaitable[Fire | None] | None)


def trigger(
    function: None = None,
    /,
    *,
    every: Duration | None = None,
    timeout: Duration | None = None,
    allow_concurrent: bool = False,
) -> Callable[[Callable[[], Decision]], Trigger[Decision]]:
    """Declare a trigger: a function that is polled at an interval, and returns tm.Fire(...) to start a run, or None.

    `timeout` is how long a call may take; by default `every`, but at most a minute. While a run with the same params is
    active no other starts, unless `allow_concurrent`.
    """
    location = caller_location()
    if every is None or callable(every):
        name = getattr(function or every, "__name__", None)
        message = '@tm.trigger needs the interval at which it is polled: write @tm.trigger(every="10s")'
        raise DefinitionError.single(f"trigger '{name}'" if name else "trigger", message, location)
    problems: list[str] = []
    seconds = _read_seconds("every", every, problems)
    timeout_seconds = min(seconds, DEFAULT_TIMEOUT_LIMIT)
    if timeout is not None:
        timeout_seconds = _read_seconds("timeout", timeout, problems)
    if not isinstance(allow_concurrent, bool):
        problems.append(f"allow_concurrent is True or False, not {allow_concurrent!r}")
    if problems:
        raise DefinitionError([Problem(message=one, location=location) for one in problems], "trigger")
    return lambda call: _declare_trigger(call, seconds, timeout_seconds, allow_concurrent, location)


def _read_seconds(option: str, value: Duration, problems: list[str]) -> float:
    try:
        return parse_positive_duration(value)
    except ValueError as error:
        problems.append(f"{option}: {error}")
        return 0.0


def _declare_trigger(
    call: Callable[[], Decision], every: float, timeout: float, allow_concurrent: bool, location: Location
) -> Trigger[Decision]:
    try:
        function = AuthorFunction.capture(call, depth=2)
    except TypeError as error:
        raise DefinitionError.single("trigger", str(error), location) from error
    if names := list(inspect_signature(call).parameters):
        message = f"a trigger is called without arguments, but '{function.name}' takes ({', '.join(names)})"
        raise DefinitionError.single(f"trigger '{function.name}'", message, function.location)
    return Trigger(function=function, every=every, timeout=timeout, allow_concurrent=allow_concurrent)
