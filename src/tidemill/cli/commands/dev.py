"""`tidemill dev`: run the packages of a folder, and reload them when they are saved."""

from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.dev_lock import hold_store_lock
from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import EXIT_INTERRUPTED, exit_on_error
from tidemill.cli.interrupts import Interrupts
from tidemill.cli.node_options import ConcurrencyOption, ExecutorOption, PoolOption, parse_pools
from tidemill.cli.output import print_error
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.kernel.settings import Settings
from tidemill.kernel.urls import mask_password

if TYPE_CHECKING:
    from tidemill.cli.dev_activity import DevActivity
    from tidemill.cli.dev_view import DevView
    from tidemill.node import Node
    from tidemill.packages.reconcile.reconciler import Reconciler
    from tidemill.packages.status import PackageStatus

STORE_FOLDER = ".tidemill"
"""The folder of the default store; hidden, so that it is not part of a package."""

FIRST_LOAD_TIMEOUT = 4.0
"""Seconds to wait for the first package before the table of packages is shown without any."""

NEXT_LOAD_TIMEOUT = 2.0
"""Seconds to wait for the next package, after one has been loaded or has failed: it may hang."""


class UnfinishedChoice(StrEnum):
    """The policies for begun runs whose code has changed."""

    PIN = "pin"
    UPGRADE = "upgrade"
    CANCEL = "cancel"


def dev(
    path: Annotated[Path, typer.Argument(help="A folder of packages and Python files, or a single one.")] = Path("."),
    store: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help=f"The store. Default: {STORE_FOLDER}/dev.db in the folder.", show_default=False
        ),
    ] = None,
    executor: ExecutorOption = "in_process",
    concurrency: ConcurrencyOption = 8,
    pool: PoolOption = None,
    unfinished: Annotated[
        UnfinishedChoice,
        typer.Option(help="What becomes of begun runs whose code has changed, unless their workflow says it."),
    ] = UnfinishedChoice.UPGRADE,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port of the API; 0 takes a free one.")] = 0,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the documentation of the API in a browser.")
    ] = False,
) -> None:
    """Run the packages of a folder, and reload them whenever a file is saved.

    The first line says where the API answers; it is open to this machine only, and needs no key.
    If a package cannot be loaded, its problems are shown with file and line, and the last good version keeps running.
    Ctrl-C stops the node; active runs continue at the next start, with the changed code if there is any and it still
    has all tasks that have ended.
    """
    from tidemill.node import Node

    interrupts = Interrupts(on_second=lambda: print_error("stopped without waiting for running tasks"))
    with exit_on_error():
        root, pools = _resolve_root(path), parse_pools(pool)
        settings = Settings.read({"packages": None, "unfinished": str(unfinished)})  # only this folder
        address = store or _default_store_address(root)
        node = Node(
            address,
            settings=settings,
            executor=executor,
            concurrency=concurrency,
            pools=pools,
        )
        with hold_store_lock(address), interrupts.handling_signals():
            run_async(_run_node(node, root, _display_address(address), interrupts, port, open_browser=open_browser))
    # To stop it with Ctrl-C is how this command ends: nothing was interrupted that does not continue.
    raise typer.Exit(0 if interrupts.exit_code in (None, EXIT_INTERRUPTED) else interrupts.exit_code)


def _resolve_root(path: Path) -> Path:
    from tidemill.packages.format.archive import ARCHIVE_SUFFIX

    root = path.absolute()
    if not root.exists():
        raise RequestError(f"there is no folder {path}", code="no_file", status=404)
    if not root.is_dir() and root.suffix not in (".py", ARCHIVE_SUFFIX):
        message = f"{path} is neither a folder, nor a Python file, nor an archive ({ARCHIVE_SUFFIX})"
        raise RequestError(message, code="no_file", status=404)
    return root


def _default_store_address(root: Path) -> str:
    """Return the address of the default store; create its folder, which Git ignores."""
    home = (root if root.is_dir() else root.parent) / STORE_FOLDER
    try:
        home.mkdir(exist_ok=True)
        (home / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        message = f"{home} cannot be created ({error.strerror}): name a store with --store sqlite:///FILE"
        raise OperationError(message) from error
    return f"sqlite:///{home / 'dev.db'}"


def _display_address(address: str) -> str:
    """Return the address of a store as it can be copied: relative to the current folder, without a password."""
    from tidemill.cli.formatting import relative_path

    scheme, separator, path = address.partition(":///")
    return mask_password(f"{scheme}{separator}{relative_path(path)}" if scheme == "sqlite" else address)


async def _run_node(
    node: "Node", root: Path, store: str, interrupts: Interrupts, port: int, *, open_browser: bool
) -> None:
    """Run and serve the node until it is interrupted."""
    import asyncio
    import webbrowser

    from tidemill.cli.dev_activity import DevActivity, forwarding_logs
    from tidemill.cli.dev_view import DevView
    from tidemill.kernel.clock import SystemClock
    from tidemill.server.app import make_app
    from tidemill.server.authentication import NoAuthentication
    from tidemill.server.serving import LOOPBACK, serving

    loop, stop_requested = asyncio.get_running_loop(), asyncio.Event()
    interrupts.on_first(lambda: loop.call_soon_threadsafe(stop_requested.set))
    view = DevView(node, root, SystemClock(), on_output_closed=stop_requested.set, store=store)
    activity = DevActivity(node, view, SystemClock(), store)
    with forwarding_logs(loop, activity.handle_record):
        async with node, serving(make_app(node, NoAuthentication()), LOOPBACK, port) as url:
            view.print_banner(url)
            if open_browser:
                webbrowser.open(f"{url}/api/docs")
            await activity.read_unfinished_runs()
            reconciler = await node.watch_folder(root, view.on_status, is_developer_code=True)
            async with asyncio.TaskGroup() as group:
                task = group.create_task(_show_activity(reconciler, view, activity), name="dev: activity")
                await stop_requested.wait()
                task.cancel()
            view.print_event("stopping; Ctrl-C again stops at once")
            activity.mute_warnings()


async def _show_activity(reconciler: "Reconciler", view: "DevView", activity: "DevActivity") -> None:
    """Show the packages when all have been loaded or have failed, then everything that happens.

    Slow packages are shown later, one by one: the table waits for them only while others make progress.
    """
    import asyncio

    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_LOAD_TIMEOUT) as limit:
            loop = asyncio.get_running_loop()

            def wait_for_next(status: "PackageStatus") -> None:
                if status.state != "preparing" and not limit.expired():
                    limit.reschedule(loop.time() + NEXT_LOAD_TIMEOUT)

            view.on_progress(wait_for_next)
            await reconciler.wait_until_settled()
    view.show_packages(reconciler.status())
    await activity.run()
