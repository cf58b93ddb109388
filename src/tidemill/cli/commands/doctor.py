"""`tidemill doctor`: check the integrity of a store."""

from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import EXIT_FAILED, exit_on_error
from tidemill.cli.output import Format, Output, print_text, show_json, show_paragraph
from tidemill.cli.stores import StoreOption, describe_schema, resolve_store
from tidemill.kernel.errors import DamagedStoreError

if TYPE_CHECKING:
    from tidemill.engine.graphs.audit.report import StoreReport
    from tidemill.storage.migrations import SchemaState
    from tidemill.storage.store import Store


def doctor(store: StoreOption = None, output: Output = Format.TABLE) -> None:
    """Check a store for problems, and say what to do about each; changes nothing.

    Exit code 0 if there are no problems, 1 if there are, 2 if the store could not be read.
    """
    from tidemill.kernel.clock import SystemClock

    now = SystemClock().now()
    with exit_on_error():
        chosen = resolve_store(store)
        state, report = run_async(examine_store(chosen, now))
    if output is Format.JSON:
        show_json(_plain_report(chosen, state, report))
    else:
        print_report(chosen.title, state, report, now)
    if report.problem_count:
        raise typer.Exit(EXIT_FAILED)


async def examine_store(store: "Store", now: datetime) -> "tuple[SchemaState, StoreReport]":
    """Audit a store; a damaged file or an unknown schema is then the only finding."""
    from tidemill.storage.migrations import SchemaState

    try:
        return await _examine_readable_store(store, now)
    except DamagedStoreError as error:
        return SchemaState(0, 0), _unreadable_report("database", str(error))


def _unreadable_report(subject: str, problem: str) -> "StoreReport":
    from tidemill.engine.audit_findings import problem_finding
    from tidemill.engine.graphs.audit.report import StoreReport

    return StoreReport(
        reactors=0,
        accumulators=0,
        journal_entries=0,
        dead_letters=0,
        last_written=None,
        findings=[problem_finding(subject, problem)],
    )


async def _examine_readable_store(store: "Store", now: datetime) -> "tuple[SchemaState, StoreReport]":
    from tidemill.engine.forwarding.links import audit_links
    from tidemill.engine.graphs.audit.report import audit_store
    from tidemill.engine.workflows.client.audit import audit_runs

    state = await store.read_schema_state()
    if state.found != state.known:
        return state, _unreadable_report("schema", describe_schema(store.title, state))
    await store.open_read_only()
    try:
        found, runs = await audit_store(store, now), await audit_runs(store, now)
        links = await audit_links(store)
    finally:
        await store.close()
    findings = sorted([*found.findings, *runs.findings, *links], key=lambda one: (one.severity == "note", one.subject))
    return state, msgspec.structs.replace(found, findings=findings, active_runs=runs.active_runs)


def _print_findings(title: str, found: "StoreReport", now: datetime) -> None:
    """Print the findings, grouped by subject."""
    from tidemill.engine.audit_findings import format_timespan

    written = found.last_written
    print_text(title if written is None else f"{title}, last written {format_timespan(now - written)} ago")
    for subject, findings in groupby(found.findings, key=lambda one: one.subject):
        print_text(f"\n{subject}")
        for one in findings:
            show_paragraph(f"{one.severity}: {one.sentence}", is_error=one.severity == "wrong")
    if found.findings:
        print_text("")


def print_report(title: str, state: "SchemaState", report: "StoreReport", now: datetime) -> None:
    """Print what was found in a store, and the verdict."""
    _print_findings(title, report, now)
    is_known = state.found == state.known > 0
    print_text(f"{report.summary}: {_verdict(report)}" if is_known else _verdict(report))


def _verdict(found: "StoreReport") -> str:
    if not found.problem_count:
        return "nothing wrong"
    return "1 thing is wrong" if found.problem_count == 1 else f"{found.problem_count:,} things are wrong"


def _plain_report(store: "Store", state: "SchemaState", found: "StoreReport") -> dict[str, Any]:
    return {
        "store": store.title,
        "schema": state._asdict(),
        "healthy": not found.problem_count,
        **msgspec.to_builtins(found),
    }
