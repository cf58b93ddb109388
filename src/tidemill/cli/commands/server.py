"""`tidemill server`: serve a store over HTTP and WebSocket."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.arguments import (
    ConcurrencyOption,
    ExecutorOption,
    LogFormatChoice,
    LogFormatOption,
    LogLevel,
    LogLevelOption,
    PoolOption,
    parse_pools,
)
from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.interrupts import Interrupts
from tidemill.cli.output import Format, Output, print_error, print_text, ready_line
from tidemill.cli.private_process import keep_secrets_private
from tidemill.cli.stores import StoreOption, resolve_address
from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import DEFAULT_CONCURRENCY
from tidemill.kernel.settings import Settings

if TYPE_CHECKING:
    from litestar.types import ASGIApp

    from tidemill.server.serving import ServerNode


def server(
    store: StoreOption = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8080,
    packages: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A folder of packages to load and to watch.", show_default=False),
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Accept requests from this machine without a key.")
    ] = False,
    executor: ExecutorOption = "in_process",
    concurrency: ConcurrencyOption = None,
    pool: PoolOption = None,
    log_format: LogFormatOption = LogFormatChoice.JSON,
    log_level: LogLevelOption = LogLevel.INFO,
    output: Output = Format.TABLE,
) -> None:
    """Serve a store over HTTP and WebSocket: the API, workflows, graphs, and the packages published in the store.

    The first line says where the server answers. Requests need a key: `tidemill key create --store ADDRESS --role
    admin` makes the first one. Start as many servers on one PostgreSQL as you like. SIGTERM and Ctrl-C stop accepting
    requests, finish those that run, and stop the node; active runs continue on another server, or at the next start.
    """
    from tidemill.server.app import make_server_app
    from tidemill.server.authentication import is_loopback
    from tidemill.server.serving import ServerNode
    from tidemill.telemetry.logs import writing_logs

    interrupts = Interrupts(on_second=lambda: print_error("stopped without waiting for running tasks"))
    with writing_logs(log_format.value, log_level.number), exit_on_error():
        if no_auth and not is_loopback(host):
            message = f"--no-auth needs a loopback host such as 127.0.0.1: on {host}, everyone could use the server"
            raise RequestError(message, code="no_authentication")
        node = ServerNode(
            resolve_address(store),
            settings=Settings.read({"load_published": True, **({"packages": str(packages)} if packages else {})}),
            executor=executor,
            concurrency=concurrency or DEFAULT_CONCURRENCY,
            pools=parse_pools(pool),
        )
        keep_secrets_private()
        app = make_server_app(node, has_authentication=not no_auth)
        with interrupts.handling_signals():
            run_async(_serve(node, app, host, port, interrupts, output), node.settings.event_loop)
    raise typer.Exit(0)  # a signal is how this command ends


async def _serve(
    node: "ServerNode", app: "ASGIApp", host: str, port: int, interrupts: Interrupts, output: Format
) -> None:
    """Serve the node until a signal comes."""
    import asyncio

    from tidemill.cli.service_manager import READY, STOPPING, feeding_watchdog, report_state
    from tidemill.server.connections import connections_of
    from tidemill.server.serving import bind, own_url, reachable_url, serving_on, url_of

    loop, stop_requested = asyncio.get_running_loop(), asyncio.Event()
    interrupts.on_first(lambda: loop.call_soon_threadsafe(stop_requested.set))
    with feeding_watchdog(), bind(host, port) as listener:
        # before the node opens: it may launch units at once, and tells them the address
        node.suggest_server_url(reachable_url(url_of(listener)))
        async with node, serving_on(app, listener, connections_of(node)) as url:
            await node.take_links_at(own_url(url))
            print_text(json.dumps({"url": url}) if output is Format.JSON else ready_line(url))
            report_state(READY)
            await stop_requested.wait()
            report_state(STOPPING)
