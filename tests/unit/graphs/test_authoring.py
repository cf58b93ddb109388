"""Declaring accumulators: a decorator per kind, and the declarations that each rejects."""

import functools
import inspect
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest

import tidemill as tm


class Fill(tm.Boundary):
    """An event."""

    size: int


class Exposure(tm.Boundary):
    """A running state."""

    size: int = 0


class OwnSource:
    """A source of the author's own."""

    async def start(self, checkpoint: Any) -> AsyncIterator[tuple[Any, Any]]:
        """Yield events."""
        yield (1, 1)


def refused(declare: Any) -> tm.DefinitionError:
    """Return the error of a declaration."""
    with pytest.raises(tm.DefinitionError) as caught:
        declare()
    return caught.value


def test_an_accumulator_has_the_name_of_its_function() -> None:
    """The accumulator's name is the function's name."""

    @tm.passthrough
    def orderbook(event: dict) -> Fill:
        return Fill(size=1)

    assert (orderbook.name, orderbook.kind) == ("orderbook", "passthrough")
    assert orderbook.location.file == __file__


def test_an_accumulator_stays_callable() -> None:
    """Calling it calls the author's function, as in a unit test."""

    @tm.passthrough
    def one(event: int) -> int:
        return event + 1

    @tm.stream(tm.Kafka(topic="fills"), state=Exposure)
    def two(event: Fill, state: Exposure) -> Exposure:
        return Exposure(state.size + event.size)

    assert one(1) == 2
    assert two(Fill(2), Exposure(3)) == Exposure(5)
    assert two(event=Fill(2), state=Exposure(3)) == Exposure(5)


@pytest.mark.parametrize("state", [None, Exposure])
def test_every_kind_but_window_takes_state(state: type | None) -> None:
    """`state=T` works on every kind but window."""
    kinds = {
        tm.passthrough(state=state): ["event"],
        tm.stream(OwnSource(), state=state): ["event"],
        tm.polling(every="1s", state=state): [],
        tm.batch(every="1s", state=state): ["events"],
    }
    for decorate, parameters in kinds.items():
        names = parameters + (["state"] if state else [])
        namespace: dict[str, Any] = {}
        exec(f"def acc({', '.join(names)}): return None", namespace)
        assert decorate(namespace["acc"]).state is state


@pytest.mark.parametrize(
    ("decorate", "source"),
    [
        (tm.passthrough, "def acc(): ..."),
        (tm.passthrough, "def acc(event, more): ..."),
        (tm.passthrough, "def acc(*, event): ..."),
        (tm.passthrough, "def acc(*events): ..."),
        (tm.passthrough, "def acc(**event): ..."),
        (tm.passthrough(state=Exposure), "def acc(event): ..."),
        (tm.passthrough(state=Exposure), "def acc(state, event): ..."),
        (tm.passthrough(state=Exposure), "def acc(event, memory): ..."),
        (tm.polling(every="1s"), "def acc(event): ..."),
        (tm.polling(every="1s", state=Exposure), "def acc(): ..."),
        (tm.batch(every="1s"), "def acc(): ..."),
        (tm.batch(every="1s"), "def acc(events, state): ..."),
        (tm.stream(OwnSource()), "def acc(event, state): ..."),
    ],
)
def test_a_function_that_does_not_fit_its_kind_is_rejected(decorate: Any, source: str) -> None:
    """Wrong parameters are found at the declaration, with name and location."""
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    error = refused(lambda: decorate(namespace["acc"]))
    assert "'acc'" in str(error)
    assert error.problems[0].location is not None


def test_a_wrapped_function_is_checked_by_the_function_it_wraps() -> None:
    """A decorator made with functools.wraps does not hide the parameters."""

    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*values: Any, **named: Any) -> Any:
            return function(*values, **named)

        return wrapper

    @tm.passthrough
    @logged
    def one(event: int) -> int:
        return event

    assert (one.name, one.event_type, one(3)) == ("one", int, 3)


@pytest.mark.parametrize(
    "every", ["", "5", "5x", "s", "-5s", "0s", "five", "5 s s", "1,5s", 0, -1, None, True, [], "∞"]
)
def test_an_invalid_interval_is_rejected(every: Any) -> None:
    """cloacina 8: anything but ms, s, m, h and d is a build error, at the author's line."""
    for decorate in (tm.polling, tm.batch):
        error = refused(lambda decorate=decorate: decorate(every=every))
        assert "duration" in str(error)
        assert error.problems[0].location is not None
        assert error.problems[0].location.file == __file__


@pytest.mark.parametrize(
    ("every", "seconds"), [("200ms", 0.2), ("5s", 5.0), ("10m", 600.0), ("3h", 10800.0), (2, 2.0), (0.5, 0.5)]
)
def test_intervals_are_seconds(every: Any, seconds: float) -> None:
    """cloacina 8: intervals parse ms, s, m and h."""

    @tm.polling(every=every)
    def poll() -> None: ...

    assert poll.every == pytest.approx(seconds)


@pytest.mark.parametrize("size", [0, -1, 1.5, "3"])
def test_an_invalid_batch_size_is_rejected(size: Any) -> None:
    """max_size is a number of events, at least one."""
    assert "max_size" in str(refused(lambda: tm.batch(every="1s", max_size=size)))


@pytest.mark.parametrize("source", ["prices", None, 3, object(), OwnSource])
def test_a_stream_needs_a_source(source: Any) -> None:
    """A source has `start`; a topic's name alone is none, nor is a class that was not called."""
    assert "source" in str(refused(lambda: tm.stream(source)))


@pytest.mark.parametrize("name", ["", "two words", "9lives", "class", None, 3])
def test_a_windows_name_is_an_identifier(name: Any) -> None:
    """A parameter must be able to name it."""
    assert "window" in str(refused(lambda: tm.window(name, int, capacity=1)))


@pytest.mark.parametrize("capacity", ["3", 1.5, None])
def test_a_windows_capacity_is_a_whole_number(capacity: Any) -> None:
    """Negative is unbounded, 0 a sink; anything but a whole number is a mistake."""
    assert "capacity" in str(refused(lambda: tm.window("ticks", int, capacity=capacity)))


def test_a_window_emits_a_list_of_its_elements() -> None:
    """A window is read as a list, and has no function to call."""
    ticks = tm.window("ticks", Fill, capacity=-1)
    assert (ticks.event_type, ticks.boundary_type, ticks.is_window) == (Fill, list[Fill], True)
    assert ticks.location.line == inspect.currentframe().f_lineno - 2
    with pytest.raises(TypeError):
        ticks(1)


@pytest.mark.parametrize("decorate", [tm.passthrough, tm.polling(every="1s"), tm.batch(every="1s")])
@pytest.mark.parametrize("thing", [lambda event: event, 3, "text"])
def test_only_a_function_with_a_name_can_accumulate(decorate: Any, thing: Any) -> None:
    """The function's name is the accumulator's, so it needs one."""
    refused(lambda: decorate(thing))


def test_the_types_of_events_and_boundaries_follow_the_annotations() -> None:
    """The annotation of `event` decides what fits; None in the result means that nothing is emitted."""

    @tm.passthrough
    def plain(event: Fill) -> Exposure | None: ...

    @tm.batch(every="1s", max_size=2)
    def many(events: list[Fill]) -> Exposure | None: ...

    @tm.batch(every="1s")
    def maybe(events: Annotated[list[Fill], "as they came"] | None) -> Exposure: ...

    @tm.batch(every="1s")
    def loose(events): ...

    @tm.polling(every="1s")
    async def polled() -> Exposure | None: ...

    assert (plain.event_type, plain.boundary_type) == (Fill, Exposure)
    assert (many.event_type, many.boundary_type, many.max_size) == (Fill, Exposure, 2)
    assert maybe.event_type is Fill
    assert (loose.event_type, loose.boundary_type) == (Any, Any)
    assert (polled.event_type, polled.boundary_type) == (Exposure, Exposure)


def test_sources_are_values() -> None:
    """Kafka and NATS are declared, not contacted."""
    assert tm.Kafka(topic="prices", group="maker") == tm.Kafka(topic="prices", group="maker", servers=None)
    with pytest.raises(AttributeError):
        tm.Kafka(topic="prices").topic = "other"  # type: ignore[misc]
    assert isinstance(OwnSource(), tm.Source)


@pytest.mark.parametrize(
    ("decorate", "remedy"),
    [
        (tm.polling, '@tm.polling needs an interval: write @tm.polling(every="5s")'),
        (tm.batch, '@tm.batch needs an interval: write @tm.batch(every="1s", max_size=500)'),
        (tm.stream, '@tm.stream needs a source: write @tm.stream(tm.Kafka(topic="prices"))'),
    ],
)
def test_a_bare_decorator_says_what_it_needs(decorate: Any, remedy: str) -> None:
    """G-17: with an example, the function's name, and the author's line."""

    def limits() -> int: ...

    error = refused(lambda: decorate(limits))
    assert f"accumulator 'limits': {error.problems[0].location}: {remedy}" == str(error)
    assert error.problems[0].location.file == __file__


@pytest.mark.parametrize(
    "declare",
    [
        lambda extra: tm.passthrough(extra=extra),
        lambda extra: tm.stream(OwnSource(), extra=extra),
        lambda extra: tm.polling(every="1s", extra=extra),
        lambda extra: tm.batch(every="1s", extra=extra),
        lambda extra: tm.window("w", int, capacity=1, extra=extra),
    ],
)
def test_extra_is_one_of_two_words(declare: Any) -> None:
    """G-17: on every kind."""
    assert "extra is one of 'ignore', 'forbid', not 'forbidden' (did you mean 'forbid'?)" in str(
        refused(lambda: declare("forbidden"))
    )
    declare("forbid")


def test_extra_forbid_needs_a_type_with_fields() -> None:
    """G-17: nothing could be unknown in a dict."""

    @tm.passthrough(extra="forbid")
    def loose(event: dict) -> int: ...

    graph = tm.Graph("g", reactor=tm.Reactor("r", [loose]))

    @graph.node
    def out(loose: int) -> int: ...

    assert "extra='forbid' needs an event type with fields" in str(refused(graph.check))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"upgrade": dict}, "upgrade= needs state="),
        (
            {"state": dict, "upgrade": 5},
            "upgrade= is a function, not async, that takes the stored state as a dict, not 5",
        ),
    ],
)
def test_upgrade_is_a_function_and_needs_a_state(options: Any, message: str) -> None:
    """D9: found where it is declared."""

    def declare() -> None:
        @tm.batch(every="1s", **options)
        def total(events: list[int], state: Any = None) -> Any:
            """Never called."""

    if "state" not in options:

        def declare() -> None:
            @tm.passthrough(**options)
            def total(event: int) -> int:
                return event

    assert message in str(refused(declare))
