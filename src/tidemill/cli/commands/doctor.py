"""`tidemill doctor`: whether a store can be relied on."""

import asyncio
from datetime import datetime
from itertools import groupby
from typing import Any

import msgspec
import typer

from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.output import Format, Output, print_text, show_json, show_paragraph
from tidemill.cli.stores import StoreOption, describe_schema, resolve_store
from tidemill.engine.audit_findings import format_timespan, problem_finding
from tidemill.engine.graphs.audit.report import StoreReport, audit_store
from tidemill.engine.workflows.client.audit import audit_runs
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.errors import DamagedStoreError
from tidemill.storage.graph_ports import SchemaState, Store

EMPTY_REPORT = StoreReport(
    reactors=0, accumulators=0, journal_entries=0, dead_letters=0, last_written=None, findings=[]
)


def doctor(store: StoreOption = None, output: Output = Format.TABLE) -> None:
    """Look for what is wrong with a store, and say what to do; changes nothing.

    Exit code 0 if nothing is wrong, 1 if something is, 2 if it could not look.
    """
    now = SystemClock().now()
    with exit_on_error():
        chosen = resolve_store(store)
        state, found = asyncio.run(_examine_store(chosen, now))
    if output is Format.JSON:
        show_json(_plain_report(chosen, state, found))
    else:
        _print_findings(chosen.title, found, now)
        is_known = state.found == state.known > 0
        print_text(f"{found.summary}: {_verdict(found)}" if is_known else _verdict(found))
    if found.problem_count:
        raise typer.Exit(1)


async def _examine_store(store: Store, now: datetime) -> tuple[SchemaState, StoreReport]:
    """Examine a store; of one that is damaged, or whose schema this code does not know, that is all there is to say."""
    try:
        return await _examine_readable_store(store, now)
    except DamagedStoreError as error:
        return SchemaState(0, 0), msgspec.structs.replace(
            EMPTY_REPORT, findings=[problem_finding("database", str(error))]
        )


async def _examine_readable_store(store: Store, now: datetime) -> tuple[SchemaState, StoreReport]:
    state = await store.read_schema_state()
    if state.found != state.known:
        return state, msgspec.structs.replace(
            EMPTY_REPORT, findings=[problem_finding("schema", describe_schema(store.title, state))]
        )
    await store.open_read_only()
    try:
        found, runs = await audit_store(store, now), await audit_runs(store, now)
    finally:
        await store.close()
    findings = sorted([*found.findings, *runs.findings], key=lambda one: (one.severity == "note", one.subject))
    return state, msgspec.structs.replace(found, findings=findings, active_runs=runs.active_runs)


def _print_findings(title: str, found: StoreReport, now: datetime) -> None:
    """Print findings by what they are about."""
    written = found.last_written
    print_text(title if written is None else f"{title}, last written {format_timespan(now - written)} ago")
    for subject, findings in groupby(found.findings, key=lambda one: one.subject):
        print_text(f"\n{subject}")
        for one in findings:
            show_paragraph(f"{one.severity}: {one.sentence}", is_error=one.severity == "wrong")
    if found.findings:
        print_text("")


def _verdict(found: StoreReport) -> str:
    if not found.problem_count:
        return "nothing wrong"
    return "1 thing is wrong" if found.problem_count == 1 else f"{found.problem_count:,} things are wrong"


def _plain_report(store: Store, state: SchemaState, found: StoreReport) -> dict[str, Any]:
    return {
        "store": store.title,
        "schema": state._asdict(),
        "healthy": not found.problem_count,
        **msgspec.to_builtins(found),
    }
