"""Catch-up: which slots get a run after an outage."""

from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.workflows.schedule import Catchup, Cron, DueSlots, Every, Schedule, due_slots

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def minutely(**options: Any) -> list[Schedule]:
    """Return two schedules with a slot every minute."""
    return [Cron("* * * * *", timezone="Europe/Berlin", **options), Every("1m", **options)]


def minutes(number: int) -> tuple[datetime, ...]:
    """Return the last slots up to NOW, which is one."""
    return tuple(NOW - MINUTE * back for back in reversed(range(number)))


@pytest.mark.parametrize("outage", [0, 1, 2, 100, 101, 10_000])
def test_latest_runs_the_newest_slot_alone(outage: int) -> None:
    """leoflow 24: exactly one run for the newest slot, however long the outage."""
    for schedule in minutely():
        found = due_slots(schedule, NOW - outage * MINUTE, NOW, alive_since=NOW)
        assert found == DueSlots(minutes(min(outage, 1)), max(outage - 1, 0))


@pytest.mark.parametrize("outage", [0, 1, 2, 99, 100, 101, 10_000])
def test_all_runs_every_slot_up_to_the_limit_oldest_first(outage: int) -> None:
    """leoflow 23, api: the newest ones; what is dropped is counted."""
    for schedule in minutely(catchup="all"):
        found = due_slots(schedule, NOW - outage * MINUTE, NOW, alive_since=NOW)
        assert found == DueSlots(minutes(min(outage, 100)), max(outage - 100, 0))


def test_the_limit_is_the_authors() -> None:
    """`limit=`."""
    for schedule in minutely(catchup="all", limit=3):
        assert due_slots(schedule, NOW - 10 * MINUTE, NOW, alive_since=NOW) == DueSlots(minutes(3), 7)


@pytest.mark.parametrize("outage", [1, 100, 101, 10_000])
def test_none_runs_nothing_that_fell_due_while_no_scheduler_watched(outage: int) -> None:
    """catchup="none": missed is missed, and counted."""
    for schedule in minutely(catchup="none"):
        assert due_slots(schedule, NOW - outage * MINUTE, NOW, alive_since=NOW) == DueSlots((), outage)


def test_none_runs_what_fell_due_while_a_scheduler_watched() -> None:
    """catchup="none": a late scheduler has not missed the slot."""
    for schedule in minutely(catchup="none"):
        late = NOW + timedelta(seconds=5)
        assert due_slots(schedule, NOW - 10 * MINUTE, late, alive_since=NOW - timedelta(seconds=1)) == DueSlots(
            (NOW,), 9
        )
        assert due_slots(schedule, NOW - 2 * MINUTE, late, alive_since=NOW - timedelta(days=1)) == DueSlots(
            minutes(2), 0
        )


@pytest.mark.parametrize("catchup", ["none", "latest", "all"])
def test_a_new_schedule_has_no_due_slots_from_before_it_was_known(catchup: Catchup) -> None:
    """`last` is None: never processed yet."""
    for schedule in minutely(catchup=catchup):
        assert due_slots(schedule, None, NOW, alive_since=NOW) == DueSlots((), 0)
        assert due_slots(schedule, None, NOW + MINUTE, alive_since=NOW) == DueSlots((NOW + MINUTE,), 0)


def test_a_new_schedule_owes_its_slots_since_its_start() -> None:
    """`start=` says from when there are slots, and is one itself."""
    expected = {"none": DueSlots((), 3), "latest": DueSlots((NOW,), 2), "all": DueSlots(minutes(3), 0)}
    for catchup, found in expected.items():
        for schedule in minutely(catchup=catchup, start=NOW - 2 * MINUTE):
            assert due_slots(schedule, None, NOW, alive_since=NOW) == found


@pytest.mark.parametrize("catchup", ["none", "latest", "all"])
def test_a_clock_that_was_set_back_makes_no_slot_due(catchup: Catchup) -> None:
    """Reliability F45: no slot twice."""
    for schedule in minutely(catchup=catchup):
        assert due_slots(schedule, NOW, NOW - timedelta(hours=1), alive_since=NOW) == DueSlots((), 0)


def test_nothing_is_owed_after_the_end() -> None:
    """leoflow 25."""
    for schedule in minutely(catchup="all", end=NOW - 5 * MINUTE):
        assert due_slots(schedule, NOW - 7 * MINUTE, NOW, alive_since=NOW).slots == (NOW - 6 * MINUTE, NOW - 5 * MINUTE)


@pytest.mark.parametrize(
    "schedule", [Cron("* * * * * *", timezone="Europe/Berlin", catchup="all"), Every("1s", catchup="all")]
)
def test_a_year_of_seconds_is_not_listed(schedule: Schedule) -> None:
    """Bounded work: 31.5 million slots fell due, a hundred are computed."""
    began = perf_counter()
    found = due_slots(schedule, NOW - timedelta(days=365), NOW, alive_since=NOW)
    assert perf_counter() - began < 1.0
    assert found.slots == tuple(NOW - timedelta(seconds=back) for back in reversed(range(100)))
    assert found.dropped == 365 * 86400 - 100


def test_slots_that_come_in_crowds_are_not_listed_either() -> None:
    """Bounded work: every second of January, computed in December."""
    schedule = Cron("* * * * 1 *", catchup="all", limit=2)
    december = datetime(2026, 12, 31, tzinfo=UTC)
    found = due_slots(schedule, datetime(2025, 12, 31, tzinfo=UTC), december, alive_since=december)
    assert found.slots == (datetime(2026, 1, 31, 23, 59, 58, tzinfo=UTC), datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC))
    assert found.dropped == 31 * 86400 - 2


rules = st.sampled_from(["*/10 * * * *", "0 6 * * *", "30 2 * * *", "5 */2 * * 1-5", "0 0 1 * *"])
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/Havana", "Australia/Lord_Howe"])
moments = st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))


@given(rules, zones, moments, st.timedeltas(timedelta(0), timedelta(days=6)), st.integers(1, 50))
def test_what_is_due_is_what_a_full_list_would_say(
    rule: str, zone: str, last: datetime, outage: timedelta, limit: int
) -> None:
    """Counting and bisection give the same answer as listing every slot."""
    now = last + outage
    for catchup, most in (("latest", 1), ("all", limit)):
        schedule = Cron(rule, timezone=zone, catchup=catchup, limit=limit)
        listed = tuple(schedule.slots(last, now))
        assert due_slots(schedule, last, now, alive_since=now) == DueSlots(listed[-most:], max(len(listed) - most, 0))
