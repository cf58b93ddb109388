"""Schedules: valid declarations, and their slots."""

import re
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernel.errors import DefinitionError, Location
from tidemill.workflows.schedule import Cron, Every, Schedule

BERLIN = ZoneInfo("Europe/Berlin")
FAR_WEST = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-12)))


def utc(*fields: int) -> datetime:
    """Return an instant."""
    return datetime(*fields, tzinfo=UTC)  # type: ignore[misc]


def first(schedule: Schedule, after: datetime, number: int) -> list[datetime]:
    """Return the first slots after a moment."""
    slots: list[datetime] = []
    while len(slots) < number:
        slot = schedule.next_after(slots[-1] if slots else after)
        assert slot is not None
        slots.append(slot)
    return slots


@pytest.mark.parametrize(
    ("expression", "after", "slots"),
    [
        ("0 6 * * *", utc(2026, 1, 1, 6), [utc(2026, 1, 2, 6), utc(2026, 1, 3, 6)]),
        ("0 6 * * *", utc(2026, 1, 1, 5, 59, 59), [utc(2026, 1, 1, 6)]),
        ("*/20 * * * *", utc(2026, 12, 31, 23, 30), [utc(2026, 12, 31, 23, 40), utc(2027, 1, 1)]),
        ("59 59 23 31 12 *", utc(2026, 1, 1), [utc(2026, 12, 31, 23, 59, 59), utc(2027, 12, 31, 23, 59, 59)]),
        ("*/30 * * * * *", utc(2026, 1, 1, 0, 0, 1), [utc(2026, 1, 1, 0, 0, 30), utc(2026, 1, 1, 0, 1)]),
        ("0 0 29 2 *", utc(2026, 1, 1), [utc(2028, 2, 29), utc(2032, 2, 29)]),
        ("0 0 29 2 *", utc(2096, 3, 1), [utc(2104, 2, 29)]),
        ("0 0 31 * *", utc(2026, 2, 1), [utc(2026, 3, 31), utc(2026, 5, 31)]),
        ("0 0 L * *", utc(2028, 1, 31), [utc(2028, 2, 29), utc(2028, 3, 31), utc(2028, 4, 30)]),
        ("0 0 LW * *", utc(2026, 1, 1), [utc(2026, 1, 30), utc(2026, 2, 27)]),
        ("0 0 * * 5L", utc(2026, 1, 1), [utc(2026, 1, 30), utc(2026, 2, 27)]),
        ("0 0 * * MON#1", utc(2026, 1, 1), [utc(2026, 1, 5), utc(2026, 2, 2)]),
        ("0 0 * JAN-FEB sun", utc(2026, 1, 1), [utc(2026, 1, 4), utc(2026, 1, 11)]),
        ("0 0 * * 7", utc(2026, 1, 1), [utc(2026, 1, 4)]),
        ("0 0 13 * FRI", utc(2026, 1, 1), [utc(2026, 1, 2), utc(2026, 1, 9), utc(2026, 1, 13)]),
        ("0 3 19 1 *", utc(2037, 12, 31), [utc(2038, 1, 19, 3), utc(2039, 1, 19, 3)]),
        ("@hourly", utc(2026, 1, 1, 0, 30), [utc(2026, 1, 1, 1)]),
        ("@daily", utc(2026, 1, 1), [utc(2026, 1, 2)]),
        ("@midnight", utc(2026, 1, 1), [utc(2026, 1, 2)]),
        ("@weekly", utc(2026, 1, 1), [utc(2026, 1, 4)]),
        (" @Monthly ", utc(2026, 1, 1), [utc(2026, 2, 1)]),
        ("@yearly", utc(2026, 1, 1), [utc(2027, 1, 1)]),
        ("@annually", utc(2026, 1, 1), [utc(2027, 1, 1)]),
    ],
)
def test_cron_by_example(expression: str, after: datetime, slots: list[datetime]) -> None:
    """Schedules: 5 or 6 fields, seconds first, and aliases; reliability F49: 29 February, 2038, year's end."""
    assert first(Cron(expression), after, len(slots)) == slots


def test_cron_reads_the_clock_of_its_zone() -> None:
    """Time: cron in the schedule's zone; slots are instants in UTC."""
    slots = list(Cron("0 6 * * *", timezone="Europe/Berlin").slots(utc(2026, 3, 27, 12), utc(2026, 3, 30, 12)))
    assert slots == [utc(2026, 3, 28, 5), utc(2026, 3, 29, 4), utc(2026, 3, 30, 4)]
    assert all(slot.tzinfo is UTC for slot in slots)


def test_intervals_are_counted_from_the_epoch_or_the_start() -> None:
    """Schedules: a restart does not shift slots."""
    assert first(Every("15m"), utc(2026, 1, 1, 0, 7), 2) == [utc(2026, 1, 1, 0, 15), utc(2026, 1, 1, 0, 30)]
    every = Every("7m", start=utc(2026, 1, 1, 0, 1))
    assert first(every, utc(2020, 1, 1), 2) == [utc(2026, 1, 1, 0, 1), utc(2026, 1, 1, 0, 8)]
    assert first(every, utc(2026, 1, 1, 0, 8), 1) == [utc(2026, 1, 1, 0, 15)]
    assert first(Every("200ms"), utc(2026, 1, 1), 1) == [utc(2026, 1, 1) + timedelta(milliseconds=200)]


@pytest.mark.parametrize("schedule", [Cron, Every])
def test_no_slot_lies_outside_start_and_end(schedule: Any) -> None:
    """leoflow 25: floor and ceiling hold, and both may be slots."""
    rule = "0 * * * *" if schedule is Cron else "1h"
    bounded = schedule(rule, start=utc(2026, 1, 1, 3), end=utc(2026, 1, 1, 5))
    hours = [utc(2026, 1, 1, 3), utc(2026, 1, 1, 4), utc(2026, 1, 1, 5)]
    assert list(bounded.slots(utc(2025, 1, 1), utc(2027, 1, 1))) == hours
    assert bounded.count(utc(2025, 1, 1), utc(2027, 1, 1)) == 3
    assert bounded.next_after(utc(2026, 1, 1, 5)) is None


def test_bounds_in_a_fold_are_instants() -> None:
    """Python reckons by the wall clock between two datetimes of one zone; schedules do not."""
    second = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)
    every = Every("30m", start=second, end=second + timedelta(hours=3))
    assert every.next_after(datetime(2026, 10, 25, 2, 45, tzinfo=BERLIN)) == utc(2026, 10, 25, 1, 30)
    assert every.count(datetime(2026, 10, 25, 2, 0, tzinfo=BERLIN), second) == 1


def test_params_get_the_slot_in_the_zone_of_the_schedule() -> None:
    """A workflow: `params=lambda slot: {"day": slot.date()}` means the day in Berlin."""
    schedule = Cron("0 0 * * *", timezone="Europe/Berlin", params=lambda slot: {"day": slot.date(), "at": slot})
    params = schedule.params_for(utc(2026, 6, 30, 22))
    assert params["day"].isoformat() == "2026-07-01"
    assert params["at"].tzinfo == BERLIN
    assert Every("1h").params_for(utc(2026, 1, 1)) == {}


def test_the_key_outlives_a_change_of_the_rule() -> None:
    """W-13: uniqueness is by (tenant, workflow, schedule key, slot), independent of the current expression."""
    assert Cron("0 6 * * *").key == Cron("0 6 * * 1-5", timezone="Asia/Tokyo").key == Every("1d").key
    assert Cron("0 6 * * *", key="morning").key != Cron("0 6 * * *", key="evening").key


def test_a_schedule_in_words_is_its_rule() -> None:
    """It changes when the rule does."""
    assert str(Cron("0 6 * * *", timezone="Europe/Berlin")) == "0 6 * * * (Europe/Berlin)"
    assert str(Every("15m")) == str(Every(900)) == "every 0:15:00"
    assert str(Every("15m", start=utc(2026, 1, 1))) == "every 0:15:00 from 2026-01-01 00:00:00+00:00"


def test_the_calendar_ends_without_a_crash() -> None:
    """Reliability F49: defined, never spins."""
    assert Cron("0 0 29 2 *", timezone="Asia/Tokyo").next_after(utc(9998, 1, 1)) is None
    assert Cron("*/5 * * * *", timezone="America/Lima").next_after(utc(9999, 12, 31, 23, 59)) is None
    assert Every("1d").next_after(utc(9999, 12, 31, 23)) is None


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("60 * * * *", "'60' is not a valid minute"),
        ("* 24 * * *", "'24' is not a valid hour"),
        ("* * 0 * *", "'0' is not a valid day of month"),
        ("* * * 13 *", "'13' is not a valid month"),
        ("* * * * 8", "'8' is not a valid day of week"),
        ("60 * * * * *", "'60' is not a valid second"),
        ("1-60/2 * * * *", "'1-60/2' is not a valid minute"),
        ("*/0 * * * *", "'*/0' is not a valid minute"),
        ("5-1 * * * *", "'5-1' is not a valid minute"),
        (f"1/{'9' * 5000} * * * *", "is not a valid minute"),
        ("* * *", "has 3 fields: 5 are needed, or 6 with seconds first"),
        ("", "has 0 fields"),
        ("0 0 30 2 *", "names a day that never comes"),
        ("0 0 31 4,6 *", "names a day that never comes"),
        ("0 0 */31 2 1#5", "names a day that never comes"),
        ("@dayly", "did you mean '@daily'?"),
        ("@once", "is not an alias"),
        (None, "an expression is a text"),
    ],
)
def test_a_bad_expression_says_which_field(expression: Any, said: str) -> None:
    """leoflow 28: refused where it is written."""
    with pytest.raises(DefinitionError, match=re.escape(said)):
        Cron(expression)


@pytest.mark.parametrize(
    "name", ["Europe/Berlni", "europe/berlin", "Europe", "../Europe/Berlin", "", "+02:00", None, 2]
)
def test_an_unknown_time_zone_is_refused(name: Any) -> None:
    """Errors say what was found and what to do."""
    with pytest.raises(DefinitionError, match=r"is not a time zone: it has a name such as 'Europe/Berlin'"):
        Cron("@daily", timezone=name)


def test_a_misspelt_time_zone_is_suggested() -> None:
    """The nearest name there is."""
    with pytest.raises(DefinitionError, match=r"did you mean 'America/New_York'\?"):
        Cron("@daily", timezone="America/NewYork")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"catchup": "lates"}, "did you mean 'latest'?"),
        ({"catchup": None}, "catchup is one of 'none', 'latest', 'all'"),
        ({"limit": 0}, "limit is a number of slots from 1 to 2147483647, not 0"),
        ({"limit": True}, "limit is a number of slots"),
        ({"start": datetime(2026, 1, 1)}, "start 2026-01-01 00:00:00 has no time zone"),
        ({"end": datetime(2026, 1, 1)}, "end 2026-01-01 00:00:00 has no time zone"),
        ({"end": "2026-01-01"}, "end is an aware datetime, not '2026-01-01'"),
        ({"start": utc(2026, 1, 2), "end": utc(2026, 1, 1)}, "is before start"),
        ({"params": {"day": 1}}, "params is a function that makes a dict of a slot"),
        ({"key": ""}, "key is a name"),
        ({"key": "a\nb"}, "key is a name"),
        ({"limit": 2**31}, "limit is a number of slots from 1 to 2147483647"),
        ({"start": utc(1, 1, 1)}, "start 0001-01-01 00:00:00+00:00 is not in the years 1900 to 9999, in UTC"),
        ({"end": FAR_WEST}, "end 9999-12-31 23:59:00-12:00 is not in the years 1900 to 9999, in UTC"),
    ],
)
def test_options_that_make_no_sense_are_definition_errors(options: dict[str, Any], said: str) -> None:
    """The same for both kinds of schedule."""
    for build in (lambda: Cron("@daily", **options), lambda: Every("1h", **options)):
        with pytest.raises(DefinitionError, match=re.escape(said)):
            build()


@pytest.mark.parametrize("interval", ["0s", 0, -1, "soon", None, float("nan"), 1e-9, "9999999999d", float("inf")])
def test_an_interval_is_longer_than_nothing(interval: Any) -> None:
    """And shorter than the calendar."""
    with pytest.raises(DefinitionError, match="Every"):
        Every(interval)


def test_all_problems_come_at_once_with_their_place() -> None:
    """Errors: `tm.DefinitionError` carries every problem found."""
    place = Location("report.py", 7)
    with pytest.raises(DefinitionError) as caught:
        Cron("61 * 32 * *", timezone="Mars", catchup="no", limit=0, start=datetime(2026, 1, 1), location=place)
    assert len(caught.value.problems) == 6
    assert {problem.location for problem in caught.value.problems} == {place}


def test_moments_without_a_time_zone_are_refused() -> None:
    """A guess would be wrong half of the year."""
    with pytest.raises(ValueError, match="has no time zone"):
        Every("1h").next_after(datetime(2026, 1, 1))


@given(st.text(alphabet="0123456789*/-,#LWMONJAFEB@ ", max_size=24))
def test_no_text_breaks_the_parser(text: str) -> None:
    """A text is a schedule or a DefinitionError, never anything else."""
    try:
        assert Cron(text).next_after(utc(2026, 1, 1)) is not None
    except DefinitionError as error:
        assert error.problems  # noqa: PT017


def terms(low: int, high: int) -> st.SearchStrategy[str]:
    """Draw one field."""
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        number.map(str),
        st.lists(number, min_size=2, max_size=4).map(lambda some: ",".join(map(str, some))),
        st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}"),
        st.integers(1, high).map(lambda step: f"*/{step}"),
    )


zones = st.sampled_from(["UTC", "Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "Antarctica/Troll"])
crons = st.builds(
    lambda fields, zone: Cron(" ".join(fields), timezone=zone),
    st.tuples(terms(0, 59), terms(0, 23), st.one_of(st.just("*"), terms(1, 28)), st.just("*"), terms(0, 7)),
    zones,
)
schedules: st.SearchStrategy[Schedule] = st.one_of(crons, st.integers(60, 10**6).map(Every))
moments = st.datetimes(datetime(2000, 1, 1), datetime(2039, 1, 1), timezones=st.just(UTC))
spans = st.timedeltas(timedelta(0), timedelta(days=3))


@given(schedules, moments)
def test_the_next_slot_is_always_later(schedule: Schedule, moment: datetime) -> None:
    """Reliability I-15: strictly increasing in UTC, for every cron, zone and instant; and the cron's own next."""
    slots = first(schedule, moment, 5)
    assert all(slot < later for slot, later in pairwise([moment, *slots]))
    assert all(schedule.next_after(slot - timedelta.resolution) == slot for slot in slots)


@given(schedules, moments, spans, spans)
def test_spans_of_slots_join(schedule: Schedule, moment: datetime, one: timedelta, two: timedelta) -> None:
    """However often one looks, no slot is seen twice and none is overlooked."""
    middle, end = moment + one, moment + one + two
    slots = list(schedule.slots(moment, end))
    assert [*schedule.slots(moment, middle), *schedule.slots(middle, end)] == slots
    assert len(set(slots)) == len(slots)
    assert schedule.count(moment, middle) + schedule.count(middle, end) == schedule.count(moment, end) == len(slots)


@given(st.sampled_from([1, 2, 3, 5, 10, 15, 30]), zones, moments)
def test_a_wildcard_hour_keeps_real_intervals_without_end(minutes: int, zone: str, moment: datetime) -> None:
    """Time: independent of the wall clock."""
    slots = first(Cron(f"*/{minutes} * * * *", timezone=zone), moment, 20)
    assert {later - slot for slot, later in pairwise(slots)} == {timedelta(minutes=minutes)}
