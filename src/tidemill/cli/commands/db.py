"""`tidemill db`: check and upgrade the schema of a store, back it up and restore it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import EXIT_FAILED, exit_on_error
from tidemill.cli.output import Format, Output, print_progress, print_text, show_json
from tidemill.cli.stores import StoreOption, describe_schema, resolve_store

if TYPE_CHECKING:
    from tidemill.storage.backup import BackupManifest
    from tidemill.storage.migrations import SchemaState
    from tidemill.storage.store import Store

app = typer.Typer(help="Check, upgrade, back up and restore a store.", no_args_is_help=True)


@app.command()
def upgrade(store: StoreOption = None, output: Output = Format.TABLE) -> None:
    """Upgrade the schema of a store to the newest version; creates missing tables, and the file of a SQLite store."""
    with exit_on_error():
        chosen = resolve_store(store)
        found, known = run_async(_upgrade(chosen))
    if output is Format.JSON:
        show_json({"store": chosen.title, "before": found, "now": known})
    elif found == known:
        print_text(f"{chosen.title} is at schema version {known}: nothing to do")
    else:
        print_text(f"{chosen.title} upgraded from schema version {found} to {known}")


async def _upgrade(store: "Store") -> "SchemaState":
    before = await store.read_schema_state()
    await store.open()
    await store.close()
    return before


@app.command()
def check(store: StoreOption = None, output: Output = Format.TABLE) -> None:
    """Show the schema version of a store; changes nothing. Exit code 1 if this Tidemill needs another one."""
    with exit_on_error():
        chosen = resolve_store(store)
        state = run_async(chosen.read_schema_state())
    if output is Format.JSON:
        show_json({"store": chosen.title, **state._asdict(), "current": state.found == state.known})
    else:
        print_text(describe_schema(chosen.title, state))
    if state.found != state.known:
        raise typer.Exit(1)


_BackupArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


@app.command()
def backup(file: _BackupArgument, store: StoreOption = None, output: Output = Format.TABLE) -> None:
    """Write all rows of a store to a new file, as of one moment, while servers use the store.

    Secrets are in the file as they are in the store: encrypted. The keys that open them are not in it.
    """
    from tidemill.storage.backup import format_rows

    with exit_on_error():
        chosen = resolve_store(store)
        saved = run_async(_back_up(chosen, file))
    if output is Format.JSON:
        show_json({"file": str(file), "bytes": file.stat().st_size, **_plain_manifest(saved)})
    else:
        print_text(f"{file}: {format_rows(saved.rows)} of {chosen.title}, {file.stat().st_size:,} bytes")
        print_text("The file opens no secrets without the master keys: keep these in another place")


async def _back_up(store: "Store", file: Path) -> "BackupManifest":
    from tidemill.kernel.clock import SystemClock
    from tidemill.storage.backup import write_backup

    async with store.open_snapshot() as snapshot:
        return await write_backup(snapshot, file, SystemClock().now(), print_progress)


@app.command()
def restore(
    file: _BackupArgument,
    store: StoreOption = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete what the store holds; otherwise it has to be empty.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Store all rows of a backup in an empty store, compare them with the file, and check the store as doctor does.

    Changes nothing if it fails. Exit code 1 if the check finds problems.
    """
    from tidemill.cli.commands.doctor import examine_store, print_report
    from tidemill.kernel.clock import SystemClock
    from tidemill.storage.backup import format_rows

    now = SystemClock().now()
    with exit_on_error():
        chosen = resolve_store(store)
        saved = run_async(_restore(chosen, file, replace=replace))
        state, report = run_async(examine_store(chosen, now))
    if output is Format.JSON:
        problems = [one.sentence for one in report.findings if one.severity == "wrong"]
        show_json(
            {"store": chosen.title, **_plain_manifest(saved), "healthy": not report.problem_count, "problems": problems}
        )
    else:
        taken_at = f"{saved.taken_at:%Y-%m-%d %H:%M:%S} UTC"
        print_text(f"{chosen.title} has what {file} holds ({format_rows(saved.rows)}), as of {taken_at}")
        print_report(chosen.title, state, report, now)
    if report.problem_count:
        raise typer.Exit(EXIT_FAILED)


async def _restore(store: "Store", path: Path, *, replace: bool) -> "BackupManifest":
    from tidemill.storage.backup import BackupFile, restore_backup

    file = BackupFile(path)
    file.check_fits(store.kind, (await store.read_schema_state()).known)
    async with store.open_replacement(file.manifest.schema_version, replace=replace) as target:
        await restore_backup(file, target, print_progress)
    return file.manifest


def _plain_manifest(saved: "BackupManifest") -> dict[str, Any]:
    return {
        "schema_version": saved.schema_version,
        "taken_at": saved.taken_at.isoformat(),
        "rows": saved.rows,
        "tables": {one.name: one.rows for one in saved.tables if one.rows},
    }
