"""Cron through changes of the wall clock, compared with an oracle that walks minute by minute.

`pytest --hypothesis-profile=soak` compares every zone and every change of ten years, `make test` a sample of them.
"""

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import settings

from tests.unit.workflows.oracle import Oracle, changes, walk
from tidemill.workflows.schedule import Cron

EXPRESSIONS = (
    # times of the day
    "0 0 * * *",
    "30 0 * * *",
    "0 1 * * *",
    "30 1 * * *",
    "0 2 * * *",
    "30 2 * * *",
    "59 2 * * *",
    "0 3 * * *",
    "30 23 * * *",
    "0,30 2,3 * * *",
    "10,50 0,1,2,3,23 * * *",
    "*/20 2 * * *",
    "*/7 1 * * 0",
    "5 0,1,2 * * 0,6",
    "15 2 1-7 3,10,11 0",
    "45 1,2 25-31 * 6,7",
    # rhythms
    "* * * * *",
    "*/15 * * * *",
    "0 * * * *",
    "20 * * * *",
    "45 */1 * * 0,6",
    "0 */2 * * *",
    "10 1-3 * * *",
    "*/30 0-23/3 * * *",
)
ODD = (
    "Africa/Casablanca",  # back and forth around Ramadan
    "Africa/Cairo",  # at midnight
    "America/Asuncion",  # back to the day before
    "America/Havana",  # midnight is gone, midnight comes twice
    "Antarctica/Troll",  # two hours
    "Asia/Beirut",
    "Atlantic/Azores",
    "Australia/Lord_Howe",  # half an hour
    "Europe/Berlin",
    "Europe/Dublin",
)
DECADE = range(2020, 2030)
AROUND = timedelta(hours=5)


def sample() -> list[tuple[str, range]]:
    """Choose zones and years: all of a decade in the soak, a few otherwise."""
    zones = sorted(available_timezones())
    if settings.get_current_profile_name() == "soak":
        return [(name, DECADE) for name in zones]
    chance = random.Random(46)
    others = chance.sample([name for name in zones if name not in ODD], 8)
    return [(name, range(year, year + 1)) for name in (*ODD, *others) for year in (chance.choice(DECADE),)]


@pytest.mark.parametrize(("name", "years"), sample(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_change_of_the_clock_agrees_with_the_oracle(name: str, years: range) -> None:
    """W-13, leoflow 26, reliability F46: no slot skipped, none doubled, for times of the day and for rhythms."""
    zone = ZoneInfo(name)
    schedules = [(Oracle(expression), Cron(expression, timezone=name)) for expression in EXPRESSIONS]
    moments = [*changes(zone, years), datetime(years.start, 12, 31, 23, tzinfo=UTC)]
    for moment in moments:
        minutes = walk(zone, moment - AROUND, moment + AROUND)
        after, until = minutes[0][0] - timedelta(minutes=1), minutes[-1][0]
        for oracle, schedule in schedules:
            expected = list(oracle.slots(minutes))
            assert list(schedule.slots(after, until)) == expected, (schedule, moment)
            assert schedule.count(after, until) == len(expected), (schedule, moment)


def local(schedule: Cron, day: datetime) -> list[str]:
    """List the slots of the 24 hours around a change as the wall clock shows them, with the offset."""
    around = timedelta(hours=12)
    return [f"{schedule.in_zone(slot):%H:%M%z}" for slot in schedule.slots(day - around, day + around)]


SPRING = datetime(2026, 3, 29, 1, tzinfo=UTC)  # Berlin: 02:00 becomes 03:00
AUTUMN = datetime(2026, 10, 25, 1, tzinfo=UTC)  # Berlin: 03:00 becomes 02:00


def test_a_time_in_the_gap_comes_at_the_first_valid_instant() -> None:
    """Time: the hour between 2 and 3 does not exist."""
    assert local(Cron("30 2 * * *", timezone="Europe/Berlin"), SPRING) == ["03:00+0200"]
    assert local(Cron("0 30 2 * * *", timezone="Europe/Berlin"), SPRING) == ["03:00+0200"]


def test_several_times_in_one_gap_come_as_one_slot() -> None:
    """Time: also together with a slot that is there anyway."""
    assert local(Cron("*/15 2 * * *", timezone="Europe/Berlin"), SPRING) == ["03:00+0200"]
    assert local(Cron("30 1,2,3 * * *", timezone="Europe/Berlin"), SPRING) == ["01:30+0100", "03:00+0200", "03:30+0200"]
    assert local(Cron("0 2,3 * * *", timezone="Europe/Berlin"), SPRING) == ["03:00+0200"]


def test_a_time_in_the_fold_comes_once_at_its_first_showing() -> None:
    """Time: the hour between 2 and 3 comes twice."""
    assert local(Cron("30 2 * * *", timezone="Europe/Berlin"), AUTUMN) == ["02:30+0200"]
    assert local(Cron("0,30 2,3 * * *", timezone="Europe/Berlin"), AUTUMN) == [
        "02:00+0200",
        "02:30+0200",
        "03:00+0100",
        "03:30+0100",
    ]


def test_asked_during_the_second_pass_a_time_of_the_day_has_been() -> None:
    """Time: a restart in the fold repeats nothing."""
    schedule = Cron("* 2 * * *", timezone="Europe/Berlin")
    second_pass = AUTUMN + timedelta(minutes=10)
    assert schedule.next_after(second_pass) == datetime(2026, 10, 26, 1, tzinfo=UTC)
    assert schedule.count(second_pass, AUTUMN + timedelta(hours=3)) == 0


@pytest.mark.parametrize("moment", [SPRING, AUTUMN])
@pytest.mark.parametrize(("expression", "seconds"), [("*/20 * * * *", 1200), ("7 * * * *", 3600), ("*/5 * * * * *", 5)])
def test_a_wildcard_hour_keeps_real_intervals(moment: datetime, expression: str, seconds: int) -> None:
    """Time: sub-hourly ones every real interval, through the gap and the fold."""
    schedule = Cron(expression, timezone="Europe/Berlin")
    slots = list(schedule.slots(moment - timedelta(hours=4), moment + timedelta(hours=4)))
    assert {(later - slot).total_seconds() for slot, later in pairwise(slots)} == {seconds}
    assert len(slots) == 8 * 3600 // seconds


def test_steps_and_ranges_follow_the_wall_clock() -> None:
    """Time: an hour that does not exist has no slot, one that comes twice has two."""
    assert local(Cron("0 0-4 * * *", timezone="Europe/Berlin"), SPRING) == [
        "00:00+0100",
        "01:00+0100",
        "03:00+0200",
        "04:00+0200",
    ]
    assert local(Cron("0 0-4/2 * * *", timezone="Europe/Berlin"), AUTUMN) == [
        "00:00+0200",
        "02:00+0200",
        "02:00+0100",
        "04:00+0100",
    ]


def test_a_day_that_was_left_out_comes_at_the_beginning_of_the_next() -> None:
    """Time: Samoa crossed the date line and had no 30 December 2011."""
    schedule = Cron("0 6 * * *", timezone="Pacific/Apia")
    slots = list(schedule.slots(datetime(2011, 12, 29, tzinfo=UTC), datetime(2011, 12, 31, tzinfo=UTC)))
    assert [f"{schedule.in_zone(slot):%d %H:%M}" for slot in slots] == ["29 06:00", "31 00:00", "31 06:00"]
    assert schedule.count(datetime(2011, 12, 29, tzinfo=UTC), datetime(2011, 12, 31, tzinfo=UTC)) == 3


def test_a_fold_across_midnight_shows_two_days_by_turns() -> None:
    """Time: in St. John's of 2010 the clock went from 00:01 back to 23:01 of the day before."""
    schedule = Cron("0 * * * *", timezone="America/St_Johns")
    slots = list(schedule.slots(datetime(2010, 11, 7, 1, tzinfo=UTC), datetime(2010, 11, 7, 5, tzinfo=UTC)))
    assert [f"{schedule.in_zone(slot):%d %H:%M}" for slot in slots] == ["06 23:00", "07 00:00", "07 00:00", "07 01:00"]


def test_a_rhythm_that_only_beats_in_gaps_ends_the_search() -> None:
    """Reliability F49: the search is bounded."""
    schedule = Cron("30 2-2 * 3 0L", timezone="Europe/Berlin")
    assert schedule.next_after(datetime(2026, 1, 1, tzinfo=UTC)) is None
