"""`tidemill doctor`: whether a store can be relied on."""

import asyncio
from datetime import datetime
from itertools import groupby
from typing import Any

import msgspec
import typer

from tidemill.cli.exits import refusing
from tidemill.cli.output import Format, Output, say, show_json, show_paragraph
from tidemill.cli.stores import Address, describe, store_at
from tidemill.engine.findings import span, wrong
from tidemill.engine.graphs.checkpoints.audit.examination import Examination, examine
from tidemill.engine.workflows.audit import examine_runs
from tidemill.engine.workflows.owners import HostLiveness
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.errors import DamagedStoreError
from tidemill.storage.ports import SchemaState, Store

NOTHING = Examination(reactors=0, accumulators=0, journal_entries=0, dead_letters=0, last_written=None, findings=[])


def doctor(store: Address = None, output: Output = Format.TABLE) -> None:
    """Look for what is wrong with a store, and say what to do; changes nothing.

    Exit code 0 if nothing is wrong, 1 if something is, 2 if it could not look.
    """
    now = SystemClock().now()
    with refusing():
        chosen = store_at(store)
        state, found = asyncio.run(_look(chosen, now))
    if output is Format.JSON:
        show_json(_plain(chosen, state, found))
    else:
        _tell(chosen.title, found, now)
        is_known = state.found == state.known > 0
        say(f"{found.holdings}: {_verdict(found)}" if is_known else _verdict(found))
    if found.wrong:
        raise typer.Exit(1)


async def _look(store: Store, now: datetime) -> tuple[SchemaState, Examination]:
    """Examine a store; of one that is damaged, or whose schema this code does not know, that is all there is to say."""
    try:
        return await _look_inside(store, now)
    except DamagedStoreError as error:
        return SchemaState(0, 0), msgspec.structs.replace(NOTHING, findings=[wrong("database", str(error))])


async def _look_inside(store: Store, now: datetime) -> tuple[SchemaState, Examination]:
    state = await store.schema()
    if state.found != state.known:
        return state, msgspec.structs.replace(NOTHING, findings=[wrong("schema", describe(store.title, state))])
    await store.look()
    try:
        found, runs = await examine(store, now), await examine_runs(store, now, HostLiveness())
    finally:
        await store.close()
    findings = sorted([*found.findings, *runs.findings], key=lambda one: (one.severity == "note", one.subject))
    return state, msgspec.structs.replace(found, findings=findings, active_runs=runs.active_runs)


def _tell(title: str, found: Examination, now: datetime) -> None:
    """Print findings by what they are about."""
    written = found.last_written
    say(title if written is None else f"{title}, last written {span(now - written)} ago")
    for subject, findings in groupby(found.findings, key=lambda one: one.subject):
        say(f"\n{subject}")
        for one in findings:
            show_paragraph(f"{one.severity}: {one.sentence}", is_bad=one.severity == "wrong")
    if found.findings:
        say("")


def _verdict(found: Examination) -> str:
    if not found.wrong:
        return "nothing wrong"
    return "1 thing is wrong" if found.wrong == 1 else f"{found.wrong:,} things are wrong"


def _plain(store: Store, state: SchemaState, found: Examination) -> dict[str, Any]:
    return {
        "store": store.title,
        "schema": state._asdict(),
        "healthy": not found.wrong,
        **msgspec.to_builtins(found),
    }
