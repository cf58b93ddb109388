"""Runs the packages of a folder on a separate node, which only this machine can reach, until Ctrl-C."""

import asyncio
import webbrowser
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tidemill.cli.dev_activity import DevActivity, forwarding_logs
from tidemill.cli.dev_lock import hold_store_lock
from tidemill.cli.dev_view import DevView
from tidemill.cli.event_loop import run_async
from tidemill.cli.formatting import relative_path
from tidemill.cli.interrupts import Interrupts
from tidemill.cli.output import print_error
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.urls import mask_password
from tidemill.node import Node
from tidemill.packages.reconcile.reconciler import Reconciler
from tidemill.packages.status import PackageStatus
from tidemill.server.app import make_server_app
from tidemill.server.connections import Connections, connections_of
from tidemill.server.serving import LOOPBACK, bind, bind_preferring, serving_on

if TYPE_CHECKING:
    from litestar.types import ASGIApp

PREFERRED_PORT = 8080
"""The port of a node if none was given and no other program has it, so that bookmarks and open pages keep working."""

FIRST_LOAD_TIMEOUT = 4.0
"""Seconds to wait for the first package before the table of packages is shown without any."""

NEXT_LOAD_TIMEOUT = 2.0
"""Seconds to wait for the next package, after one has been loaded or has failed: it may hang."""


def run_folder(
    node: Node, root: Path, address: str, port: int | None, *, open_browser: bool, notes: Sequence[str] = ()
) -> int | None:
    """Run the packages of a folder on a node with the store at this address; return the exit code of the first signal.

    The code is None if the node ended without a signal: what read its output has closed the pipe. Without a port, the
    node has PREFERRED_PORT or, if that is taken, a free one. `notes` stand below the link.
    """
    interrupts = Interrupts(on_second=lambda: print_error("stopped without waiting for running tasks"))
    with hold_store_lock(address), interrupts.handling_signals():
        shown = _display_address(address)
        work = _run_node(node, root, shown, interrupts, port, open_browser=open_browser, notes=notes)
        run_async(work, node.settings.event_loop)
    return interrupts.exit_code


def _display_address(address: str) -> str:
    """Return the address of a store as it can be copied: relative to the current folder, without a password."""
    scheme, separator, path = address.partition(":///")
    return mask_password(f"{scheme}{separator}{relative_path(path)}" if scheme == "sqlite" else address)


async def _run_node(
    node: Node,
    root: Path,
    store: str,
    interrupts: Interrupts,
    port: int | None,
    *,
    open_browser: bool,
    notes: Sequence[str],
) -> None:
    """Run and serve the node until it is interrupted."""
    loop, stop_requested = asyncio.get_running_loop(), asyncio.Event()
    interrupts.on_first(lambda: loop.call_soon_threadsafe(stop_requested.set))
    view = DevView(node, root, SystemClock(), on_output_closed=stop_requested.set, store=store)
    activity = DevActivity(node, view, SystemClock(), store)
    with forwarding_logs(loop, activity.handle_record):
        app, connections = make_server_app(node, has_authentication=False), connections_of(node)
        async with node, _serving(app, port, connections) as url:
            node.history.start()
            view.print_banner(url)
            if port is None and urlsplit(url).port != PREFERRED_PORT:
                view.print_event(
                    f"another program has port {PREFERRED_PORT}, so this node has a free one; --port sets it"
                )
            for note in notes:
                view.print_event(note)
            if open_browser:  # on a thread: it may wait some seconds for a browser to start
                loop.run_in_executor(None, webbrowser.open, url)
            await activity.read_unfinished_runs()
            activity.hold_back()
            reconciler = await node.watch_folder(root, view.on_status, is_developer_code=True)
            async with asyncio.TaskGroup() as group:
                task = group.create_task(_show_activity(reconciler, view, activity), name="dev: activity")
                await stop_requested.wait()
                task.cancel()
            activity.release()
            view.print_event("stopping; Ctrl-C again stops at once")
            activity.mute_warnings()


@asynccontextmanager
async def _serving(app: "ASGIApp", port: int | None, connections: Connections) -> AsyncIterator[str]:
    with bind_preferring(LOOPBACK, PREFERRED_PORT) if port is None else bind(LOOPBACK, port) as listener:
        async with serving_on(app, listener, connections) as url:
            yield url


async def _show_activity(reconciler: Reconciler, view: DevView, activity: DevActivity) -> None:
    """Show the packages when all have been loaded or have failed, then everything that happens.

    Slow packages are shown later, one by one: the table waits for them only while others make progress.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_LOAD_TIMEOUT) as limit:
            loop = asyncio.get_running_loop()

            def wait_for_next(status: PackageStatus) -> None:
                if status.state != "preparing" and not limit.expired():
                    limit.reschedule(loop.time() + NEXT_LOAD_TIMEOUT)

            view.on_progress(wait_for_next)
            await reconciler.wait_until_settled()
    view.show_packages(reconciler.status())
    await activity.run()
