"""Ratios of contestants that alternate."""

from benchmarks.measure import ratio, take_turns


def test_a_ratio_ignores_rounds_that_the_machine_disturbed() -> None:
    """Most rounds of one contestant are slowed down by something else: its cost is the same."""
    bare = [1.0] * 100
    engine = [2.0] * 10 + [50.0] * 90

    assert ratio(engine, bare) == 2.0
    assert ratio(bare, engine) == 0.5


def test_contestants_take_turns() -> None:
    """Each round has all contestants, so that a busy minute meets all of them."""
    order: list[str] = []
    contestants = {name: lambda _, name=name: order.append(name) for name in ("bare", "engine")}

    seconds = take_turns(contestants, events=10, rounds=3)

    assert order == ["bare", "engine"] * 3
    assert {name: len(values) for name, values in seconds.items()} == {"bare": 3, "engine": 3}
