"""Declaring a reactor: its options, and all mistakes in one error."""

import inspect
from typing import Any

import pytest

import tidemill as tm


@tm.passthrough
def alpha(event: int) -> int:
    """Emit the event."""
    return event


@tm.passthrough
def beta(event: int) -> int:
    """Emit the event."""
    return event


@tm.passthrough
def stranger(event: int) -> int:
    """Belong to no reactor."""
    return event


def refused(*arguments: Any, **options: Any) -> tm.DefinitionError:
    """Return the error of a declaration."""
    with pytest.raises(tm.DefinitionError) as caught:
        tm.Reactor(*arguments, **options)
    return caught.value


def test_the_defaults_are_those_of_the_documentation() -> None:
    """`when="any"`, `strategy="latest"`, `capacity=10_000`, `overflow="block"`, `on_error="dead_letter"`."""
    reactor = tm.Reactor("market", [alpha, beta])
    assert (reactor.name, reactor.accumulator_names) == ("market", ("alpha", "beta"))
    assert (reactor.when.mode, reactor.strategy, reactor.capacity) == ("any", "latest", 10_000)
    assert (reactor.overflow, reactor.on_error) == ("block", "dead_letter")


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("when", "sometimes", "'any', 'all'"),
        ("when", None, "'any', 'all'"),
        ("strategy", "newest", "'latest', 'sequential'"),
        ("strategy", "sequental", "did you mean 'sequential'?"),
        ("overflow", "explode", "'block', 'drop_oldest', 'reject'"),
        ("overflow", "drop-oldest", "did you mean 'drop_oldest'?"),
        ("durability", "forever", "'none', 'interval', 'fire', 'boundary'"),
        ("durability", "", "'none', 'interval', 'fire', 'boundary'"),
        ("capacity", 0, "at least 1"),
        ("capacity", "many", "at least 1"),
        ("on_error", "retry", "tm.Retry"),
        ("on_error", None, "tm.Retry"),
    ],
)
def test_an_unknown_option_is_rejected_with_the_known_ones(option: str, value: Any, hint: str) -> None:
    """Messages say what was found, where, and what to do."""
    error = refused("market", [alpha], **{option: value})
    assert option in str(error)
    assert repr(value) in str(error)
    assert hint in str(error)


def test_all_mistakes_are_reported_together_with_their_locations() -> None:
    """G-17: all definition problems reported at once, each with file and line."""
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(tm.DefinitionError) as caught:
        tm.Reactor("market", [alpha, alpha], strategy="x", overflow="y", durability="z", when="w")
    assert len(caught.value.problems) == 5
    for problem in caught.value.problems:
        assert problem.location is not None
        assert (problem.location.file, problem.location.line) == (__file__, line)


@pytest.mark.parametrize("criteria", [tm.any_of, tm.all_of])
def test_criteria_name_only_accumulators_of_the_reactor(criteria: Any) -> None:
    """cloacina 31: criteria naming an undeclared accumulator are rejected at declaration."""
    error = refused("market", [alpha, beta], when=criteria(alpha, stranger))
    assert "'stranger'" in str(error)
    assert "'alpha', 'beta'" in str(error)


def test_drop_oldest_contradicts_boundary_durability() -> None:
    """G-24: `overflow="drop_oldest"` with "boundary" is a DefinitionError."""
    assert "boundary" in str(refused("market", [alpha], overflow="drop_oldest", durability="boundary"))
    tm.Reactor("market", [alpha], overflow="drop_oldest", durability="fire")
    tm.Reactor("market", [alpha], overflow="reject", durability="boundary")


def test_an_accumulator_is_in_a_reactor_only_once() -> None:
    """Nodes are wired by name, and two accumulators of one name would hide each other."""
    assert "alpha" in str(refused("market", [alpha, beta, alpha]))


def test_a_reactor_needs_a_name_and_accumulators() -> None:
    """An empty reactor could never fire, and one without a name could not be found."""
    for name in ("", None, 3, "a/b"):
        assert "name" in str(refused(name, [alpha]))
    assert "at least one accumulator" in str(refused("market", []))


@pytest.mark.parametrize("thing", ["alpha", len, None, 3])
def test_only_accumulators_feed_a_reactor(thing: Any) -> None:
    """The decorated functions themselves are passed, not their names."""
    assert "accumulator" in str(refused("market", [alpha, thing]))


def test_one_accumulator_in_place_of_a_list_is_rejected() -> None:
    """The error shows the missing brackets."""
    assert "list" in str(refused("market", alpha))


def test_one_accumulator_may_feed_several_reactors() -> None:
    """One accumulator definition may feed several reactors."""
    one, two = tm.Reactor("one", [alpha]), tm.Reactor("two", [alpha, beta])
    assert one.accumulators[0] is two.accumulators[0]


def test_on_error_takes_a_retry_policy() -> None:
    """`on_error=tm.Retry(...)`."""
    retry = tm.Retry(3)
    assert tm.Reactor("market", [alpha], on_error=retry).on_error is retry


def test_a_reactor_describes_itself() -> None:
    """The repr of a reactor shows its name and its accumulators."""
    assert repr(tm.Reactor("market", [alpha, beta])) == "<reactor 'market' of alpha, beta>"
