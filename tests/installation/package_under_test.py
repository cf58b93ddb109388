"""The packages that the installation runs: their functions note what they do in files beside the store.

`mill` has a ledger and all workflows, `annex` a keyed reactor, so that it can be withdrawn without a schedule. Both
reactors keep, for each producer, which of its numbers they have applied. Producers number their events from 1, so a
number that does not grow was applied twice, or out of order.
"""

from pathlib import Path
from typing import Literal

import msgspec

ACCOUNTS = tuple(f"account-{number}" for number in range(12))
"""The keys of the keyed reactor."""
DECIDED = 10
"""Every number that this divides is a decision of the ledger."""
ALARMED = 7
"""Every number that this divides is an alarm of the ledger, about one of two topics."""
COOLDOWN = 4.0
"""Seconds within which one topic gets one run."""
SLOT_SECONDS = 1.0
"""Seconds between two slots of the schedule."""

PackageName = Literal["mill", "annex"]

MANIFEST = '[package]\nname = "{name}"\nversion = "1.0.{number}"\nmodules = ["{name}"]\n'
LEDGER = '''
import json
import os
import time

import tidemill as tm

EDITION = {number}
FOLDER = {folder!r}


def note(file: str, **fields: object) -> None:
    """Append a line in one write, which no other process cuts in two."""
    line = json.dumps(dict(fields, pid=os.getpid(), at=time.monotonic())) + "\\n"
    opened = os.open(FOLDER + "/" + file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(opened, line.encode())
    finally:
        os.close(opened)


class Page(tm.Boundary):
    ranges: list[tuple[int, int]] = []
    late: list[int] = []


class Entry(tm.Boundary):
    producer: str
    number: int
    account: str = ""


class Ledger(tm.Boundary):
    pages: dict[str, Page] = {{}}
    newest: Entry | None = None


def written(ledger: Ledger, event: Entry) -> Ledger:
    page = ledger.pages.get(event.producer, Page())
    first, last = page.ranges[-1] if page.ranges else (event.number, event.number - 1)
    if event.number <= last:
        page = Page(ranges=page.ranges, late=[*page.late, event.number])
    elif event.number == last + 1:
        page = Page(ranges=[*page.ranges[:-1], (first, event.number)], late=page.late)
    else:
        page = Page(ranges=[*page.ranges, (event.number, event.number)], late=page.late)
    return Ledger(pages=dict(ledger.pages, **{{event.producer: page}}), newest=event)
'''
MILL = """
@tm.passthrough(state=Ledger)
def entries(event: Entry, state: Ledger) -> Ledger:
    return written(state, event)


ledger = tm.Reactor("ledger", [entries], strategy="sequential", durability="boundary")


class Decision(tm.Boundary):
    producer: str
    number: int


class Alarm(tm.Boundary):
    topic: str


book = tm.Graph("book", reactor=ledger)


@book.node
def fire_ledger(entries: Ledger) -> None:
    note("firings", reactor="ledger", producer=entries.newest.producer, number=entries.newest.number)


@book.node
def decide(entries: Ledger) -> Decision | None:
    newest = entries.newest
    return Decision(newest.producer, newest.number) if newest.number % {decided} == 0 else None


@book.node
def alarm(entries: Ledger) -> Alarm | None:
    number = entries.newest.number
    return Alarm(f"topic-{{number % 2}}") if number % {alarmed} == 0 else None


class Order(tm.Params):
    token: str


job = tm.Workflow("job", params=Order, max_active_runs=1000, unfinished="upgrade")


def attempt(ctx: tm.Context, seconds: float) -> int:
    note("attempts", what="begin", token=ctx.token)
    time.sleep(seconds)
    note("attempts", what="end", token=ctx.token)
    return EDITION


@job.task(executor="subprocess")
def prepare(params: Order, ctx: tm.Context) -> int:
    return attempt(ctx, 0.1)


@job.task(executor="worker")
def finish(prepare: int, ctx: tm.Context) -> int:
    return attempt(ctx, 0.2)


follow = tm.Workflow(
    "follow", params=Decision, triggers=[tm.on_output(book.decide)], max_active_runs=1000, unfinished="upgrade"
)


@follow.task
def react(params: Decision) -> int:
    return EDITION


page = tm.Workflow(
    "page",
    params=Alarm,
    triggers=[tm.on_output(book.alarm, dedup="output.topic", cooldown={cooldown})],
    max_active_runs=1000,
    unfinished="upgrade",
)


@page.task
def call_operator(params: Alarm) -> int:
    return EDITION


tick = tm.Workflow(
    "tick",
    schedule=tm.Every({slot_seconds}, catchup="all", limit=100_000),
    max_active_runs=1000,
    unfinished="upgrade",
)


@tick.task
def strike() -> int:
    return EDITION
"""
ANNEX = """
@tm.passthrough(state=Ledger)
def movements(event: Entry, state: Ledger) -> Ledger:
    return written(state, event)


accounts = tm.Reactor(
    "accounts", [movements], strategy="sequential", durability="boundary", key="account", partitions=8
)
statement = tm.Graph("statement", reactor=accounts)


@statement.node
def fire_account(movements: Ledger) -> None:
    newest = movements.newest
    note("firings", reactor="accounts", account=newest.account, producer=newest.producer, number=newest.number)
"""
MODULES: dict[PackageName, str] = {"mill": LEDGER + MILL, "annex": LEDGER + ANNEX}


class AttemptNote(msgspec.Struct, frozen=True):
    """A task's line at its beginning or its end."""

    what: str
    token: str
    """`run/task#attempt`"""
    pid: int
    at: float


class FiringNote(msgspec.Struct, frozen=True):
    """A firing's line: the event that it fired with."""

    reactor: str
    producer: str
    number: int
    account: str = ""


def write_package(folder: Path, notes: Path, name: PackageName, number: int) -> Path:
    """Write an edition of a package into a folder of its own; its functions note what they do below `notes`."""
    package = folder / f"{name}-{number}"
    (package / name).mkdir(parents=True)
    (package / "package.toml").write_text(MANIFEST.format(name=name, number=number))
    source = MODULES[name].format(
        number=number,
        folder=str(notes),
        decided=DECIDED,
        alarmed=ALARMED,
        cooldown=COOLDOWN,
        slot_seconds=SLOT_SECONDS,
    )
    (package / name / "__init__.py").write_text(source)
    return package
