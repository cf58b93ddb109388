"""Back-off and retry policies."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.kernel.backoff import Backoff


def test_back_off_doubles_up_to_a_minute_without_jitter() -> None:
    """G-20: 1 s doubling to 60 s, no jitter."""
    assert [Backoff().delay(failures) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]


@given(st.integers(1, 10_000))
def test_back_off_never_exceeds_its_ceiling(failures: int) -> None:
    """G-20: however many failures."""
    assert 0 < Backoff(initial_delay=0.5, max_delay=7.0).delay(failures) <= 7.0


def test_retry_counts_further_tries() -> None:
    """`tm.Retry(3)`: three more tries after the first."""
    retry = tm.Retry(3)
    assert [retry.allows(attempts, ValueError()) for attempts in (1, 2, 3, 4)] == [True, True, True, False]
    assert not tm.Retry(0).allows(1, ValueError())


def test_retry_applies_to_the_errors_it_names() -> None:
    """`on=(ConnectionError,)`: subclasses count, others do not."""
    retry = tm.Retry(3, on=(ConnectionError,))
    assert retry.allows(1, ConnectionResetError())
    assert not retry.allows(1, ValueError())
    assert tm.Retry(1, on=KeyError).allows(1, KeyError())


def test_delays_grow_by_the_factor_up_to_the_limit() -> None:
    """`delay="10s", backoff=2.0, max_delay="1m"`."""
    retry = tm.Retry(9, delay="10s", backoff=2.0, max_delay="1m")
    assert [retry.delay_after(attempts) for attempts in (1, 2, 3, 4, 5)] == [10, 20, 40, 60, 60]
    assert tm.Retry(2, delay=0).delay_after(2) == 0


@pytest.mark.parametrize(
    ("options", "delays"),
    [
        ({"delay": "1h"}, [3600, 3600, 3600]),
        ({"delay": "2m"}, [120, 240, 300]),
        ({"delay": "5m"}, [300, 300, 300]),
        ({"delay": "1h", "max_delay": "3h"}, [3600, 7200, 10_800]),
        ({"delay": "1h", "max_delay": "5m"}, [300, 300, 300]),
    ],
)
def test_a_delay_is_limited_to_five_minutes_only_if_it_begins_below(options: dict[str, Any], delays: list[int]) -> None:
    """`max_delay` defaults to 5 minutes or to `delay`, whichever is longer; an explicit one holds."""
    retry = tm.Retry(3, **options)
    assert [retry.delay_after(attempts) for attempts in (1, 2, 3)] == delays


@given(st.integers(1, 100_000), st.floats(1.0, 100.0))
def test_no_number_of_tries_breaks_the_delay(attempts: int, backoff: float) -> None:
    """The delay reaches the limit instead of overflowing."""
    assert 0 < tm.Retry(100_000, delay="1s", backoff=backoff, max_delay="5m").delay_after(attempts) <= 300.0


@given(st.integers(), st.floats(0.0, 1.0))
def test_jitter_is_a_fraction_of_the_delay_both_ways(seed: int, jitter: float) -> None:
    """`jitter` is a fraction of the delay, both ways."""
    delay = tm.Retry(3, delay="10s", jitter=jitter).delay_after(1, random.Random(seed))
    assert 10 * (1 - jitter) - 1e-9 <= delay <= 10 * (1 + jitter) + 1e-9


def test_jitter_goes_both_ways() -> None:
    """Some delays are shorter, some longer."""
    chance = random.Random(1)
    delays = [tm.Retry(3, delay="10s", jitter=0.5).delay_after(1, chance) for _ in range(50)]
    assert min(delays) < 10 < max(delays)


@pytest.mark.parametrize(
    ("times", "options"),
    [
        (-1, {}),
        ("3", {}),
        (1, {"delay": "soon"}),
        (1, {"delay": -1}),
        (1, {"max_delay": "5 parsecs"}),
        (1, {"backoff": 0.5}),
        (1, {"jitter": 1.5}),
        (1, {"jitter": -0.1}),
    ],
)
def test_an_invalid_policy_is_a_definition_error(times: Any, options: dict[str, Any]) -> None:
    """Errors: the author must act."""
    with pytest.raises(tm.DefinitionError, match="Retry"):
        tm.Retry(times, **options)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"times": 2**31}, "counts further tries, from 0 to 2147483646"),
        ({"delay": "4000000d"}, "delay: '4000000d' is not a duration: it is finite, and at most a hundred years"),
        ({"max_delay": "4000000d"}, "max_delay: '4000000d' is not a duration"),
        ({"delay": float("inf")}, "delay: inf is not a duration"),
    ],
)
def test_an_endless_retry_is_rejected_where_it_is_declared(wrong: dict[str, Any], message: str) -> None:
    """W-5: else the run would be quarantined when it fails."""
    with pytest.raises(tm.DefinitionError, match=message):
        tm.Retry(**({"times": 1} | wrong))
