"""Workflows for the tests of the pages about runs: each has what one of them looks at."""

import asyncio
import logging
import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

import msgspec

import tidemill as tm

GATE = Path(os.environ.get("PIPELINES_GATE", "gate"))
"""The tasks that wait do so until this file exists."""


class LoadParams(tm.Params):
    """The arguments of a load."""

    day: date
    rows: int = 3


load = tm.Workflow(
    "load",
    params=LoadParams,
    schedule=tm.Cron(
        "0 6 * * *", params=lambda slot: {"day": slot.date()}, catchup="none", start=datetime(2026, 1, 1, tzinfo=UTC)
    ),
    tags=["finance"],
    owner="finance team",
    description="Load the rows of a day, and publish their sum.",
)


@load.task
async def fetch(params: LoadParams, ctx: tm.Context) -> list[int]:
    """Log a line per row, slowly enough to be watched."""
    for row in range(params.rows):
        ctx.log.info("fetched row %s", row, source="warehouse")
        await asyncio.sleep(0.15)
    return list(range(params.rows))


@load.task(each="fetch")
def clean(fetch: int) -> int:
    """Clean a row."""
    return fetch * 2


@load.task
def publish(clean: list[int]) -> dict[str, int]:
    """Publish the sum."""
    return {"sum": sum(clean)}


handled = tm.Workflow("handled", description="Call handlers at the end.")


@handled.task
def fail_once() -> None:
    """Fail."""
    raise ValueError("no rows")


@handled.on_failure
def alert(report: tm.RunReport) -> str:
    """Send a message."""
    return str(report)


@handled.on_failure(retry=0)
def page(report: tm.RunReport) -> None:
    """Page the owner."""
    raise ConnectionError("no network")


broken = tm.Workflow("broken")


@broken.task
def extract(ctx: tm.Context) -> int:
    """Succeed: a retry reuses the result."""
    ctx.log.warning("the source is slow")
    print("connected to the source")
    logging.getLogger("source").error("a page is missing")
    return 7


@broken.task
def transform(extract: int, ctx: tm.Context) -> int:
    """Fail at the first attempt."""
    if ctx.attempt == 1:
        raise ValueError("the schema has changed")
    return extract * 2


@broken.task
def store(transform: int) -> int:
    """Store the result."""
    return transform


class Person(msgspec.Struct):
    """Someone who asks for a survey."""

    name: Annotated[str, msgspec.Meta(min_length=2)]
    age: int = 30


class SurveyParams(tm.Params):
    """More fields than a dialog shows at once."""

    day: date
    person: Person
    first: str = ""
    second: str = ""
    third: str = ""
    fourth: str = ""
    fifth: str = ""
    sixth: str = ""
    areas: list[Person] = msgspec.field(default_factory=list)


survey = tm.Workflow("survey", params=SurveyParams)


@survey.task
def ask(params: SurveyParams) -> str:
    """Ask."""
    return params.person.name


gated = tm.Workflow("gated", max_active_runs=1)


@gated.task
async def wait(ctx: tm.Context) -> None:
    """Log until the test opens the gate."""
    number = 0
    while not GATE.exists():
        ctx.log.info("still waiting %s", number)
        number += 1
        await asyncio.sleep(0.2)


@gated.task(after=[wait])
def leave() -> None:
    """Run once the gate is open."""


wide = tm.Workflow("wide")


@wide.task
def split() -> list[int]:
    """Return many elements."""
    return list(range(10_000))


@wide.task(each="split")
async def convert(split: int) -> int:
    """Convert one, without hurry: tests look at the list while it runs; some are broken."""
    if split in {7, 9_000}:
        raise ValueError(f"element {split} is broken")
    await asyncio.sleep(0.5)
    return split


class TalkParams(tm.Params):
    """More than two lines show."""

    topic: str = "weather"
    words: list[str] = msgspec.field(default_factory=lambda: [f"word{number}" for number in range(200)])


talk = tm.Workflow("talk", params=TalkParams)


@talk.task
def say(ctx: tm.Context) -> dict[str, list[int]]:
    """Log what a terminal would show in colours, and return a long value."""
    ctx.log.info("first")
    ctx.log.info("\x1b[1;31mred\x1b[0m and \x1b[32mgreen\x1b[0m")
    ctx.log.info("10 %\r55 %\r\x1b[36m100 %\x1b[0m")
    for number in range(60):
        ctx.log.info("line %s", number)
    return {"numbers": list(range(2000))}


@talk.task
def repeat(say: dict[str, list[int]]) -> int:
    """Return how much was said."""
    return len(say)


@talk.task
def translate(repeat: int) -> int:
    """Return it again."""
    return repeat


@talk.task
def shout(translate: int) -> int:
    """Fail with a long message."""
    raise ValueError("\n".join(f"reason {number} of many" for number in range(60)))


@talk.task
def close(shout: int) -> int:
    """Come last, at the right end of the graph."""
    return shout
