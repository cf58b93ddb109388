"""Declaring a reactor: what it accepts, and every mistake at once."""

import inspect
from typing import Any

import pytest

import tidemill as tm


@tm.passthrough
def alpha(event: int) -> int:
    """Emit what came."""
    return event


@tm.passthrough
def beta(event: int) -> int:
    """Emit what came."""
    return event


@tm.passthrough
def stranger(event: int) -> int:
    """Belong to nobody."""
    return event


def refused(*arguments: Any, **options: Any) -> tm.DefinitionError:
    """Return the refusal of a declaration."""
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
def test_an_unknown_option_is_refused_with_what_is_known(option: str, value: Any, hint: str) -> None:
    """Messages say what was found, where, and what to do."""
    error = refused("market", [alpha], **{option: value})
    assert option in str(error)
    assert repr(value) in str(error)
    assert hint in str(error)


def test_all_mistakes_come_at_once_with_their_place() -> None:
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


def test_an_accumulator_stands_once_in_a_reactor() -> None:
    """Names are the wiring: two of one name would hide each other."""
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


def test_one_accumulator_in_place_of_a_list_is_refused_kindly() -> None:
    """A missing pair of brackets is a mistake of the author, and said so."""
    assert "list" in str(refused("market", alpha))


def test_one_accumulator_may_feed_several_reactors() -> None:
    """One accumulator definition may feed several reactors."""
    one, two = tm.Reactor("one", [alpha]), tm.Reactor("two", [alpha, beta])
    assert one.accumulators[0] is two.accumulators[0]


def test_a_retry_policy_is_an_answer_to_errors() -> None:
    """`on_error=tm.Retry(...)`."""
    retry = tm.Retry(3)
    assert tm.Reactor("market", [alpha], on_error=retry).on_error is retry


def test_a_reactor_describes_itself() -> None:
    """A reactor that is printed tells its name and what feeds it."""
    assert repr(tm.Reactor("market", [alpha, beta])) == "<reactor 'market' of alpha, beta>"
