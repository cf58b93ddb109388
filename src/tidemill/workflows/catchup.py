"""Which slots get a run: those that fell due, less those that the schedule does not want made up for."""

from datetime import UTC, datetime, timedelta

import msgspec

from tidemill.workflows.schedule import Schedule


class Due(msgspec.Struct, frozen=True):
    """The slots that get a run now, oldest first, and how many others fell due and get none."""

    slots: tuple[datetime, ...]
    dropped: int


def due(schedule: Schedule, last: datetime | None, now: datetime, *, alive_since: datetime) -> Due:
    """Return which slots of a schedule get a run at `now`.

    `last` is how far the schedule was looked at, by whomever: slots up to there are settled. None means never; then a
    schedule owes its slots since its `start`, and without one only those since `alive_since`: nobody could have missed
    what did not exist. When the rule of a schedule changes, `last` moves up to the moment of the change, for the same
    reason. `alive_since` is when this scheduler began to watch without interruption.

    * catchup "none": every slot that fell due while somebody watched; what fell due before `alive_since` is dropped.
    * catchup "latest": of all slots that fell due, the newest.
    * catchup "all": every slot that fell due.

    At most `schedule.limit` slots are returned, the newest. The work grows with the days since `last`, not with the
    slots. A clock that was put back owes nothing until it has passed `last` again.
    """
    if last is None:
        last = alive_since if schedule.start is None else schedule.start - timedelta.resolution  # it may be a slot
    total = schedule.count(last, now)
    since = max(last, alive_since) if schedule.catchup == "none" else last
    slots = newest(schedule, since, now, 1 if schedule.catchup == "latest" else schedule.limit)
    return Due(slots, total - len(slots))


def newest(schedule: Schedule, after: datetime, until: datetime, limit: int) -> tuple[datetime, ...]:
    """Return the last slots in (after, until], at most `limit`, oldest first, without listing those before them."""
    # In UTC, because Python reckons between two datetimes of one zone by the wall clock.
    many, few = after.astimezone(UTC), until.astimezone(UTC)
    while schedule.count(many, until) > 2 * limit:
        middle = many + (few - many) / 2
        if schedule.count(middle, until) >= limit:
            many = middle
        else:
            few = middle
    return tuple(schedule.slots(many, until))[-limit:]
