"""A nightly report: fetch, clean each row, choose a branch by the total, publish, clean up.

    tidemill run examples/nightly_report.py --day 2026-01-05
    tidemill run examples/nightly_report.py --day 2026-01-05 --rows 40 --store sqlite:///build/reports.db

With a store the run is kept: kill it, and the next node on that store continues it. The fetch fails now and then, and
is retried.
"""

import asyncio
import random
from datetime import date

import tidemill as tm


class Params(tm.Params):
    """The arguments of a report."""

    day: date
    rows: int = 12
    luck: float = 0.7
    """The probability that the warehouse responds."""


class Row(tm.Boundary):
    """One line of the day's sales."""

    product: str
    amount: float


class Quiet(tm.Boundary):
    """A day with little turnover."""

    total: float


class Busy(tm.Boundary):
    """A day with much turnover."""

    total: float
    best: str


nightly = tm.Workflow(
    "nightly_report",
    schedule=tm.Cron("0 6 * * *", timezone="Europe/Berlin", params=lambda slot: {"day": slot.date()}),
    params=Params,
    tags=["finance"],
    max_active_runs=1,
)


@nightly.task(retry=tm.Retry(5, delay="200ms", jitter=0.2, on=(ConnectionError,)), timeout="1m")
def fetch(params: Params, ctx: tm.Context) -> list[Row]:
    """Query the warehouse, which is not always available."""
    chance = random.Random(f"{params.day}/{ctx.attempt}")
    if chance.random() > params.luck:
        raise ConnectionError("the warehouse does not answer")
    ctx.log.info("fetched %s rows", params.rows)
    return [Row(f"product {number % 7}", round(chance.uniform(-5, 100), 2)) for number in range(params.rows)]


@nightly.task(each="fetch")
async def clean(fetch: Row) -> Row | None:
    """Remove returned items; one task run per row, several at a time."""
    await asyncio.sleep(0.1)
    return fetch if fetch.amount > 0 else None


@nightly.task
def judge(clean: list[Row | None]) -> Quiet | Busy:
    """Classify the day: the class of the return value selects the next task."""
    rows = [row for row in clean if row is not None]
    total = round(sum(row.amount for row in rows), 2)
    return Quiet(total) if total < 400 else Busy(total, max(rows, key=lambda row: row.amount).product)


@nightly.task
def short(judge: Quiet) -> str:
    """Write one line."""
    return f"a quiet day: {judge.total:.2f}"


@nightly.task
def long(judge: Busy) -> str:
    """Write the longer report."""
    return f"a busy day: {judge.total:.2f}, best of all {judge.best}"


@nightly.task
def publish(short: str | None, long: str | None, params: Params) -> str:
    """Publish the report of the branch that ran."""
    return f"{params.day:%A, %d %B}: {short or long}"


@nightly.task(after=[publish], rule="all_done")
def tidy() -> None:
    """Run in every case, whether or not the other tasks succeeded."""


if __name__ == "__main__":
    result = nightly.run(day=date(2026, 1, 5)).raise_for_status()
    print(result.outputs["publish"])
