"""`tidemill host`: host partitions of keyed reactors."""

import json
from typing import TYPE_CHECKING, Any

from tidemill.cli.arguments import LogFormatChoice, LogFormatOption, LogLevel, LogLevelOption
from tidemill.cli.commands.worker import LoadOption, NameOption, PackagesOption
from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.interrupts import HANDLED_SIGNALS
from tidemill.cli.output import Format, Output, print_text
from tidemill.cli.private_process import keep_secrets_private
from tidemill.cli.stores import StoreOption, resolve_address

if TYPE_CHECKING:
    from tidemill.host import HostNode


def host(
    store: StoreOption = None,
    name: NameOption = None,
    packages: PackagesOption = None,
    load: LoadOption = None,
    log_format: LogFormatOption = LogFormatChoice.JSON,
    log_level: LogLevelOption = LogLevel.INFO,
    output: Output = Format.TABLE,
) -> None:
    """Host partitions of keyed reactors, for the nodes on a store.

    It takes its share of the partitions as soon as it is ready. SIGTERM or Ctrl-C hands them over to other nodes.
    """
    from tidemill.host import HostNode
    from tidemill.telemetry.logs import writing_logs

    with writing_logs(log_format.value, log_level.number), exit_on_error():
        given: dict[str, Any] = {} if packages is None else {"packages": packages}
        node = HostNode(resolve_address(store), load=load or (), settings=given, name=name)
        keep_secrets_private()
        run_async(_run_host(node, output), node.settings.event_loop)


async def _run_host(node: "HostNode", output: Format) -> None:
    """Run the host until a signal."""
    import asyncio

    from tidemill.cli.service_manager import READY, STOPPING, feeding_watchdog, report_state

    loop, stop_requested = asyncio.get_running_loop(), asyncio.Event()
    for number in HANDLED_SIGNALS:
        loop.add_signal_handler(number, stop_requested.set)
    with feeding_watchdog():
        async with node:
            is_json = output is Format.JSON
            print_text(json.dumps({"host": node.name}) if is_json else f"Tidemill host {node.name} is ready")
            report_state(READY)
            await stop_requested.wait()
            report_state(STOPPING)
