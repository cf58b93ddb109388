"""A remote executor under test: its units report to a real server, which passes the reports on to the listener.

A launcher joins the contract of executors by a line in LAUNCHERS. Launchers that need more than this machine has, such
as a Ray cluster, join only if TIDEMILL_TEST_LAUNCHERS names them; `-k NAME` then runs only their tests.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.contract.executor_harness import TIMEOUT, ExecutorHarness, until
from tests.kubernetes.pod_launcher import open_pod_launcher
from tests.ray.launchers import open_ray_launcher
from tests.remote.local_launcher import LocalLauncher
from tidemill.engine.workflows.executors.interface import AttemptListener, AttemptRequest, Executor
from tidemill.engine.workflows.executors.remote.executor import RemoteExecutor
from tidemill.engine.workflows.executors.remote.interface import AttemptLauncher
from tidemill.engine.workflows.executors.remote.orders import Order
from tidemill.engine.workflows.remote_reports import AttemptEndedError, AttemptStartedError, RemoteReports
from tidemill.kernel.clock import Clock, SystemClock
from tidemill.node import Node
from tidemill.node_arguments import NodeProfile
from tidemill.server.app import make_app
from tidemill.server.authentication import NoAuthentication
from tidemill.server.serving import serving
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.attempt_results import AttemptResult
from tidemill.workflows.node_calls import NodeCall
from tidemill.workflows.records import AttemptKey

OpenLauncher = Callable[[Path], AbstractAsyncContextManager[AttemptLauncher]]
"""Opens what a launcher needs, such as a cluster, and yields a launcher with eight slots."""


@asynccontextmanager
async def open_local_launcher(folder: Path) -> AsyncIterator[AttemptLauncher]:
    """A launcher whose units are processes of this machine."""
    launcher = LocalLauncher(folder / "units")
    try:
        yield launcher
    finally:
        launcher.end()


OPTIONAL_LAUNCHERS: Mapping[str, OpenLauncher] = {"ray": open_ray_launcher}
"""Those that join only if they are named."""

_NAMED = os.environ.get("TIDEMILL_TEST_LAUNCHERS", "").split(",")

LAUNCHERS: Mapping[str, OpenLauncher] = {
    "remote": open_local_launcher,
    "kubernetes": open_pod_launcher,
    **{name: opener for name, opener in OPTIONAL_LAUNCHERS.items() if name in _NAMED},
}
"""By the name of the executor in the contract suite."""


class _ReportsToListener(RemoteReports):
    """Passes the reports of attempts on to the listener of a test, which has no runs."""

    def __init__(self, listener: AttemptListener, node: Node) -> None:
        self._listener = listener
        self._orders = node.store.attempt_orders
        self._ended: set[AttemptKey] = set()
        self.executor: Executor | None = None

    async def check_current(self, key: AttemptKey) -> None:
        if key in self._ended:
            raise AttemptEndedError(key)

    async def start(self, key: AttemptKey, process: str) -> None:
        await self.check_current(key)
        if not await self._orders.begin(key, process):
            raise AttemptStartedError(key)
        if not await self._listener.record_start(key):
            raise AttemptEndedError(key)

    async def renew(self, key: AttemptKey) -> None:
        await self.check_current(key)

    async def add_logs(self, key: AttemptKey, number: int, records: Sequence[LogRecord]) -> None:
        await self.check_current(key)
        self._listener.on_log(key, records)

    async def end(self, order: Order, result: AttemptResult) -> None:
        key = order.request.key
        await self.check_current(key)
        self._ended.add(key)
        assert self.executor is not None
        if key in self.executor.running():
            self._listener.on_ended(key, result)
            self.executor.on_reported(key)


class _HarnessNode(Node):
    """A node that serves attempts of a test: its clock and its answers are those of the harness."""

    def __init__(self, clock: Clock) -> None:
        self.answer: Callable[[AttemptRequest, NodeCall], Any] | None = None
        super().__init__(_profile=NodeProfile(clock=clock))

    async def handle_call(self, request: AttemptRequest, call: NodeCall) -> Any:
        assert self.answer is not None
        return await self.answer(request, call)


class RemoteHarness(ExecutorHarness):
    """A remote executor with a server for its units."""

    def __init__(self, folder: Path, launcher: AttemptLauncher, grace: float) -> None:
        self._launcher = launcher
        self.url: str | None = None
        self.real_clock = SystemClock()
        super().__init__("remote", folder, grace=grace)

    def build(self, listener: AttemptListener) -> Executor:
        self.node = _HarnessNode(self.clock)
        self.node.answer = self._handle_call
        self._reports = self.node._workflows.remote_reports = _ReportsToListener(listener, self.node)
        self._reports.executor = executor = RemoteExecutor(
            self._launcher,
            self.node.store,
            self.loaded,
            listener,
            self.real_clock,
            self.node.settings,
            owner="harness",
            server_url=lambda: self.url,
            mask=self.node.access.secrets.mask,
            grace=self._grace,
        )
        return executor


@asynccontextmanager
async def open_remote_harness(name: str, folder: Path, grace: float) -> AsyncIterator[RemoteHarness]:
    """An open remote executor; long tasks are released before it closes."""
    async with LAUNCHERS[name](folder) as launcher:
        harness = RemoteHarness(folder, launcher, grace)
        app = make_app(harness.node, NoAuthentication(attempts=harness.node.access.attempts))
        async with harness.node, serving(app, "127.0.0.1", 0) as harness.url:
            await harness.executor.open()
            await until(lambda: harness.executor.free_slots() > 0)
            try:
                yield harness
            finally:
                harness.release_all()
                await harness.executor.close(TIMEOUT)
