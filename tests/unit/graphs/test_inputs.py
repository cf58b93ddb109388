"""The inputs of a reactor: cache, flags, queue, and whether the criteria are met."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.graphs.inputs import Inputs


@tm.passthrough
def a(event: int) -> int:
    """Emit the event."""
    return event


@tm.passthrough
def b(event: int) -> int:
    """Emit the event."""
    return event


@tm.passthrough
def c(event: int) -> int:
    """Emit the event."""
    return event


SOURCES = [a, b, c]


def inputs(when: Any = "any", strategy: Any = "latest", capacity: int = 100) -> Inputs:
    """Return the inputs of a reactor of three accumulators."""
    return Inputs(tm.Reactor("r", SOURCES, when=when, strategy=strategy, capacity=capacity))


def test_any_is_met_by_the_first_boundary_from_any_source() -> None:
    """cloacina 26: when="any" fires on the first boundary from any source."""
    for index in range(3):
        held = inputs("any")
        assert not held.is_criteria_met
        held.put(index, "x")
        assert held.is_criteria_met


def test_all_is_met_only_when_every_source_has_a_new_boundary() -> None:
    """G-10, cloacina 27, 30: flags start false for every expected source."""
    held = inputs("all")
    for index in range(3):
        assert not held.is_criteria_met
        held.put(index, index)
    assert held.is_criteria_met


def test_all_with_one_eager_source_fires_once_with_its_latest_value() -> None:
    """cloacina 28: A ten times, then the others once: one firing, A's latest value."""
    held = inputs("all")
    for value in range(10):
        held.put(0, value)
        assert not held.is_criteria_met
    held.put(1, "b")
    held.put(2, "c")
    assert held.take_snapshot().snapshot == [9, "b", "c"]
    assert not held.is_criteria_met


def test_after_an_all_firing_one_source_alone_does_not_fire() -> None:
    """cloacina 29: the flags are cleared by a firing, the cache is not."""
    held = inputs("all")
    for index in range(3):
        held.put(index, index)
    held.take_snapshot()
    held.put(0, "again")
    assert not held.is_criteria_met
    assert held.cache == ["again", 1, 2]


@pytest.mark.parametrize(
    ("when", "puts", "met"),
    [
        (tm.any_of(a, b), [2], False),
        (tm.any_of(a, b), [2, 1], True),
        (tm.all_of(a, b), [2, 1], False),
        (tm.all_of(a, b), [0, 1], True),
        (tm.all_of(c), [2], True),
        (tm.any_of(), [1], True),
        (tm.all_of(), [0, 1], False),
        (tm.all_of(), [0, 1, 2], True),
    ],
)
def test_criteria_over_a_subset_ignore_the_others(when: Any, puts: list[int], met: bool) -> None:
    """cloacina 32, 33: others fill the cache only; bare criteria mean all."""
    held = inputs(when)
    for index in puts:
        held.put(index, "x")
    assert held.is_criteria_met is met
    assert [value is not None for value in held.cache] == [index in puts for index in range(3)]


def test_a_snapshot_is_not_altered_by_later_boundaries() -> None:
    """G-3: the graph sees a snapshot."""
    held = inputs()
    held.put(0, "old")
    taken = held.take_snapshot()
    held.put(0, "new")
    held.put(1, "more")
    assert taken.snapshot == ["old", None, None]


def test_taking_a_snapshot_clears_flags_in_one_step() -> None:
    """G-2: snapshot and clear are one step; a later boundary counts for the next firing."""
    held = inputs()
    held.put(0, 1)
    held.take_snapshot()
    assert not held.is_criteria_met
    held.put(1, 2)
    assert held.take_snapshot().consumed == [(1, 2)]


def test_latest_overwrites_and_reports_the_boundaries_of_the_firing() -> None:
    """G-11: latest keeps one value per source."""
    held = inputs()
    for value in (1, 2, 3):
        held.put(0, value)
    held.put(2, "c")
    taken = held.take_snapshot()
    assert (taken.snapshot, taken.consumed) == ([3, None, "c"], [(0, 3), (2, "c")])


def test_sequential_sees_exactly_one_more_boundary_each_time() -> None:
    """G-11, cloacina 37: k boundaries give k firings in arrival order."""
    held = inputs(strategy="sequential")
    for index, value in [(0, 1), (1, 2), (0, 3)]:
        held.put(index, value)
    seen = []
    while held.apply_next():
        assert held.is_criteria_met
        seen.append(held.take_snapshot().snapshot)
    assert seen == [[1, None, None], [1, 2, None], [3, 2, None]]


def test_sequential_all_consumes_up_to_the_completing_boundary() -> None:
    """G-11: fires once, with all consumed since the last firing."""
    held = inputs(tm.all_of(a, b), "sequential")
    for index, value in [(0, 1), (0, 2), (2, 3), (1, 4), (0, 5)]:
        held.put(index, value)
    steps = 0
    while not held.is_criteria_met:
        assert held.apply_next()
        steps += 1
    taken = held.take_snapshot()
    assert steps == 4
    assert (taken.snapshot, taken.consumed) == ([2, 4, 3], [(0, 1), (0, 2), (2, 3), (1, 4)])
    assert list(held.queue) == [(0, 5, 0)]


def test_a_full_queue_can_drop_its_oldest_boundary() -> None:
    """G-12: sequential queues are bounded; latest never is."""
    held = inputs(strategy="sequential", capacity=2)
    held.put(0, 1)
    assert not held.is_full
    held.put(0, 2)
    assert held.is_full
    held.drop_oldest()
    assert (held.is_full, list(held.queue)) == (False, [(0, 2, 0)])
    newest = inputs(capacity=1)
    newest.put(0, 1)
    newest.put(0, 2)
    assert not newest.is_full


def test_replace_swaps_the_whole_cache_and_leaves_the_queue() -> None:
    """G-13, cloacina 45: sources not given are absent afterwards; fire_with keeps the queue."""
    held = inputs(strategy="sequential")
    held.put(0, 1)
    held.apply_next()
    held.put(1, 2)
    taken = held.replace_cache([None, "b", None])
    assert (taken.snapshot, taken.consumed) == ([None, "b", None], [(1, "b")])
    assert (held.cache, held.dirty, list(held.queue)) == ([None, "b", None], 0, [(1, 2, 0)])


def test_a_window_is_always_present() -> None:
    """G-5: a window is [] at first, and "all" does not wait for one that only the own graphs feed."""
    ticks = tm.window("ticks", int, capacity=3)
    reactor = tm.Reactor("r", [a, ticks], when="all")
    held = Inputs(reactor)
    assert held.cache == [None, []]
    held.put(0, 1)
    assert not held.is_criteria_met
    held.set_criteria(reactor, frozenset({"ticks"}))
    assert held.is_criteria_met


Step = tuple[str, int, int]
steps = st.lists(st.tuples(st.sampled_from(["put", "fire"]), st.integers(0, 2), st.integers()), max_size=40)
subsets = st.lists(st.sampled_from(range(3)), max_size=3, unique=True)


@given(steps, subsets, st.sampled_from(["any", "all"]))
def test_latest_agrees_with_a_simple_model(plan: list[Step], subset: list[int], mode: str) -> None:
    """cloacina 26-33: flags as a set of names, the cache as a dict."""
    chosen = [SOURCES[index] for index in subset]
    held = inputs((tm.any_of if mode == "any" else tm.all_of)(*chosen))
    wanted, news, cache = set(subset) or {0, 1, 2}, set(), {}
    for action, index, value in plan:
        if action == "put":
            held.put(index, value)
            news.add(index)
            cache[index] = value
        met = bool(news & wanted) if mode == "any" else news >= wanted
        assert held.is_criteria_met is met
        if action == "fire" and met:
            taken = held.take_snapshot()
            assert taken.snapshot == [cache.get(one) for one in range(3)]
            assert taken.consumed == [(one, cache[one]) for one in sorted(news)]
            news = set()


@given(steps, subsets, st.sampled_from(["any", "all"]))
def test_sequential_loses_and_reorders_nothing(plan: list[Step], subset: list[int], mode: str) -> None:
    """G-11: firings consume exactly the boundaries that were put, in order."""
    chosen = [SOURCES[index] for index in subset]
    held = inputs((tm.any_of if mode == "any" else tm.all_of)(*chosen), "sequential")
    put: list[tuple[int, int]] = []
    consumed: list[tuple[int, int]] = []
    for action, index, value in [*plan, ("fire", 0, 0)]:
        if action == "put":
            held.put(index, value)
            put.append((index, value))
            continue
        while held.apply_next():
            if held.is_criteria_met:
                taken = held.take_snapshot()
                consumed += taken.consumed
                latest = dict(consumed)
                assert taken.snapshot == [latest.get(one) for one in range(3)]
    assert put == [*consumed, *held.consumed, *((index, value) for index, value, _ in held.queue)]
