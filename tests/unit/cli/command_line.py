"""Runs the command line in this process, and writes files for it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidemill.cli.main import main

REPORT = """
from datetime import date

import tidemill as tm


class Params(tm.Params):
    day: date
    rows: int = 3
    full_scan: bool = False
    tags: list[str] = []


report = tm.Workflow(
    "daily_report", params=Params, schedule=tm.Cron("0 6 * * *", params=lambda slot: {"day": slot.date()})
)


@report.task
def extract(params: Params, ctx: tm.Context) -> list[int]:
    ctx.log.info("reading %s", params.day)
    print("printed by the task")
    return list(range(params.rows))


@report.task(each="extract")
def clean(extract: int) -> int:
    if extract == 13:
        raise ValueError("no thirteen")
    return extract * 10


@report.task
def publish(clean: list[int], params: Params) -> str:
    return f"{sum(clean)} on {params.day:%d.%m.%Y} {params.full_scan} {params.tags}"
"""

FREE = """
import tidemill as tm

free = tm.Workflow("free")

@free.task
def tell(ctx: tm.Context) -> list:
    return [ctx["number"], ctx["word"], ctx["flag"], ctx["store"]]

other = tm.Workflow("other_name")

@other.task
def nothing() -> None:
    pass
"""


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line in this process and return its exit code."""
    monkeypatch.setattr("sys.argv", ["tidemill", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@contextmanager
def in_zone(name: str) -> Iterator[None]:
    """Let the clock of this machine hang somewhere for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        yield
    time.tzset()
