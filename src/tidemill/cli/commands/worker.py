"""`tidemill worker`: run attempts of tasks with the executor `worker`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.arguments import LogFormatChoice, LogFormatOption, LogLevel, LogLevelOption
from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.interrupts import HANDLED_SIGNALS
from tidemill.cli.output import Format, Output, print_text
from tidemill.cli.private_process import keep_secrets_private
from tidemill.cli.stores import StoreOption, resolve_address
from tidemill.kernel.durations import parse_duration

if TYPE_CHECKING:
    import asyncio

    from tidemill.worker import WorkerNode


LabelsOption = Annotated[
    str, typer.Option(metavar="WORD,WORD", help="What it offers: it runs only tasks whose labels are among these.")
]
NameOption = Annotated[
    str | None, typer.Option(help="The name under which it is listed. Default: host and pid.", show_default=False)
]
PackagesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="A folder of packages, in addition to those published in the store.", show_default=False
    ),
]
LoadOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="PATH", help="A Python file, package folder or archive. May be repeated."),
]
DrainTimeoutOption = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="How long running tasks may take to end after SIGTERM. Default: no limit.",
        show_default=False,
    ),
]


def worker(
    store: StoreOption = None,
    concurrency: Annotated[int, typer.Option(min=1, help="The number of tasks that may run at a time.")] = 8,
    labels: LabelsOption = "",
    name: NameOption = None,
    packages: PackagesOption = None,
    load: LoadOption = None,
    drain_timeout: DrainTimeoutOption = None,
    log_format: LogFormatOption = LogFormatChoice.JSON,
    log_level: LogLevelOption = LogLevel.INFO,
    output: Output = Format.TABLE,
) -> None:
    """Run tasks with executor="worker" for the nodes on a store, each in a separate process.

    It claims tasks whose labels it has, and whose code it has loaded in the version of their run. SIGTERM or Ctrl-C
    lets running tasks end and claims no more. A second one, or the end of --drain-timeout, stops them; another worker
    runs them again.
    """
    from tidemill.telemetry.logs import writing_logs
    from tidemill.worker import WorkerNode

    with writing_logs(log_format.value, log_level.number), exit_on_error():
        given: dict[str, Any] = {} if packages is None else {"packages": packages}
        node = WorkerNode(
            resolve_address(store),
            load=load or (),
            settings=given,
            concurrency=concurrency,
            labels=filter(None, (one.strip() for one in labels.split(","))),
            name=name,
        )
        keep_secrets_private()
        run_async(_run_worker(node, output, _parse_timeout(drain_timeout)), node.settings.event_loop)


def _parse_timeout(text: str | None) -> float | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"--drain-timeout: {error}") from error


async def _run_worker(node: "WorkerNode", output: Format, drain_timeout: float | None) -> None:
    """Run the worker until the first signal, let its tasks end, and stop those that are left at the second."""
    import asyncio

    from tidemill.cli.service_manager import READY, STOPPING, feeding_watchdog, report_state

    loop, drain_requested, stop_requested = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def handle_signal() -> None:
        (stop_requested if drain_requested.is_set() else drain_requested).set()

    for number in HANDLED_SIGNALS:  # through the loop: no author code runs in this process
        loop.add_signal_handler(number, handle_signal)
    with feeding_watchdog():
        async with node:
            is_json = output is Format.JSON
            print_text(json.dumps({"worker": node.name}) if is_json else f"Tidemill worker {node.name} is ready")
            report_state(READY)
            await drain_requested.wait()
            report_state(STOPPING)
            await _drain(node, stop_requested, drain_timeout)


async def _drain(node: "WorkerNode", stop_requested: "asyncio.Event", timeout: float | None) -> None:
    """Let the running tasks end, until a stop is requested or the timeout is over."""
    import asyncio

    async with asyncio.TaskGroup() as group:
        waits = [
            group.create_task(node.drain(), name="worker: drain"),
            group.create_task(stop_requested.wait(), name="worker: second signal"),
        ]
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
