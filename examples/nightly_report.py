"""A nightly report: fetch, clean each row, choose a branch by the total, publish, clean up.

    tidemill dev examples --pool warehouse=1                             run it, with the other examples
    tidemill run examples/nightly_report.py --day 2026-01-05             run it now, for a day
    tidemill run examples/nightly_report.py --day 2026-01-05 --rows 40 --currency USD --no-publish

It is due every morning at six in Berlin. At its first start it makes up for the past seven days, oldest first and two
at a time; after a weekend without a node it makes up for the weekend.

The warehouse does not always answer, so `fetch` is retried. It serves one query at a time: `fetch` needs the only slot
of the pool `warehouse`, and waits while another task has it. `tidemill runs why RUN fetch` says so.
"""

import asyncio
import random
from datetime import UTC, date, datetime
from typing import Annotated, Literal

from msgspec import Meta

import tidemill as tm

RATES = {"EUR": 1.0, "USD": 1.08, "GBP": 0.86}


class Params(tm.Params):
    """The arguments of a report."""

    day: Annotated[date, Meta(description="the day that the report is about")]
    rows: Annotated[int, Meta(ge=1, le=200, description="how many sales to read")] = 12
    currency: Annotated[Literal["EUR", "USD", "GBP"], Meta(description="the currency of the report")] = "EUR"
    luck: Annotated[float, Meta(ge=0, le=1, description="the probability that the warehouse answers")] = 0.7
    publish: Annotated[bool, Meta(description="whether to publish the report")] = True


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
    schedule=tm.Cron(
        "0 6 * * *",
        timezone="Europe/Berlin",
        start=datetime(2026, 1, 1, tzinfo=UTC),
        catchup="all",
        limit=7,
        params=lambda slot: {"day": slot.date()},
    ),
    params=Params,
    tags=["finance"],
    max_active_runs=2,
)


@nightly.task(pool="warehouse", retry=tm.Retry(5, delay="1s", jitter=0.2, on=(ConnectionError,)), timeout="1m")
async def fetch(params: Params, ctx: tm.Context) -> list[Row]:
    """Query the warehouse, which is not always available."""
    chance = random.Random(f"{params.day}/{ctx.attempt}")
    ctx.log.info("asking the warehouse for %s rows of %s", params.rows, params.day)
    await asyncio.sleep(chance.uniform(1, 4))
    if chance.random() > params.luck:
        ctx.log.warning("no answer at try %s", ctx.attempt)
        raise ConnectionError("the warehouse does not answer")
    rows = [Row(f"product {number % 7}", round(chance.uniform(-5, 100), 2)) for number in range(params.rows)]
    ctx.log.info("fetched", rows=len(rows), products=len({row.product for row in rows}))
    return rows


@nightly.task(each="fetch")
async def clean(fetch: Row, params: Params, ctx: tm.Context) -> Row | None:
    """Drop returned goods and convert the rest; one task run per row, several at a time."""
    await asyncio.sleep(random.Random(ctx.token).uniform(0.2, 1.5))
    if fetch.amount <= 0:
        ctx.log.info("%s was returned", fetch.product)
        return None
    return Row(fetch.product, round(fetch.amount * RATES[params.currency], 2))


@nightly.task
def judge(clean: list[Row | None], ctx: tm.Context) -> Quiet | Busy:
    """Classify the day: the class of the return value selects the next task."""
    rows = [row for row in clean if row is not None]
    total = round(sum(row.amount for row in rows), 2)
    ctx.log.info("%s of %s rows are sales, %.2f in all", len(rows), len(clean), total)
    return Quiet(total) if total < 600 else Busy(total, max(rows, key=lambda row: row.amount).product)


@nightly.task
def short(judge: Quiet, params: Params) -> str:
    """Write one line."""
    return f"a quiet day: {judge.total:.2f} {params.currency}"


@nightly.task
def long(judge: Busy, params: Params) -> str:
    """Write the longer report."""
    return f"a busy day: {judge.total:.2f} {params.currency}, best of all {judge.best}"


@nightly.task
def publish(short: str | None, long: str | None, params: Params, ctx: tm.Context) -> str:
    """Publish the report of the branch that ran."""
    if not params.publish:
        raise tm.Skip("this report is not to be published")
    line = f"{params.day:%A, %d %B}: {short or long}"
    ctx.log.info("published: %s", line)
    return line


@nightly.task(after=[publish], rule="all_done")
def tidy() -> None:
    """Run in every case, whether or not the other tasks succeeded."""


if __name__ == "__main__":
    result = nightly.run(day=date(2026, 1, 5)).raise_for_status()
    print(result.outputs["publish"])
