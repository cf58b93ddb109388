"""A bench to put executors on: orders in, reports out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tests.contract import executor_flows
from tidemill.engine.workflows.executors.in_process import InProcess
from tidemill.engine.workflows.executors.interface import (
    STOP_GRACE_PERIOD,
    AttemptListener,
    AttemptRequest,
    Input,
    LogRecord,
    SingleInput,
)
from tidemill.engine.workflows.executors.runner import TaskRunner
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import OperationError
from tidemill.workflows.attempt_results import AttemptResult, Failed, Succeeded
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.workflow import Workflow

PATIENCE = 20.0
"""Seconds for something that should take milliseconds."""

Kind = TypeVar("Kind", bound=AttemptResult)


class Ledger(AttemptListener):
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.refuses = False
        self.fails = False
        self.begun: list[AttemptKey] = []
        self.endings: list[tuple[AttemptKey, AttemptResult]] = []
        self.records: list[tuple[AttemptKey, LogRecord]] = []
        self.bytes = 0
        self._news = asyncio.Event()

    async def record_start(self, key: AttemptKey) -> bool:
        await asyncio.sleep(0)
        if self.fails:
            raise OperationError("the store is away")
        if not self.refuses:
            self.begun.append(key)
        return not self.refuses

    def on_log(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        self.bytes += sum(len(record.message) for record in records)
        self.records += [(key, record) for record in records]

    def on_ended(self, key: AttemptKey, ending: AttemptResult) -> None:
        self.endings.append((key, ending))
        self._news.set()

    async def ending(self, key: AttemptKey) -> AttemptResult:
        """Return how an attempt ended, once it has."""
        async with asyncio.timeout(PATIENCE):
            while key not in dict(self.endings):
                self._news.clear()
                await self._news.wait()
        return dict(self.endings)[key]

    def said(self, stream: str = "log") -> list[str]:
        """Return the messages on a stream, in order."""
        return [record.message for _, record in self.records if record.stream == stream]


class Bench:
    """An executor with everything around it."""

    def __init__(self, name: str, folder: Path, concurrency: int = 8, grace: float = STOP_GRACE_PERIOD) -> None:
        self.clock = VirtualClock()
        self.ledger = Ledger()
        self.folder = folder
        self.workflows: dict[str, Workflow] = {one.name: one for one in (executor_flows.flow, executor_flows.loose)}
        self.executor: InProcess | Subprocess
        if name == "in_process":
            self.executor = InProcess(
                self.lookup, self.ledger, self.clock, concurrency=concurrency, push=_push, grace=grace
            )
        else:
            self.executor = Subprocess(self.lookup, self.ledger, self.clock, concurrency=concurrency, grace=grace)
        self._numbers = 0

    def lookup(self, tenant: str, workflow: str, version: str) -> Workflow:
        """Return a workflow by name, if it still has that version."""
        found = self.workflows.get(workflow)
        if found is None or found.wired().spec.version != version:
            raise OperationError(f"version {version} of workflow '{workflow}' is not loaded here")
        return found

    def order(
        self,
        task: str,
        *,
        workflow: str = "flow",
        params: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Input] | None = None,
        element: int = UNMAPPED,
        number: int = 1,
        deferrals: int = 0,
        timeout: float | None = None,
        has_begun: bool = False,
        slot: datetime | None = None,
    ) -> AttemptRequest:
        """Return an order for a task, under a key of its own."""
        self._numbers += 1
        given = {"day": "monday"} if params is None and workflow == "flow" else params or {}
        return AttemptRequest(
            key=AttemptKey(f"run{self._numbers}", task, element, number),
            tenant="public",
            workflow=workflow,
            version=self.workflows[workflow].wired().spec.version if workflow in self.workflows else "none",
            executor=self.executor.name,
            number=number,
            deferrals=deferrals,
            params=msgspec.msgpack.encode(given),
            inputs=inputs or {},
            slot=slot,
            timeout=timeout,
            has_begun=has_begun,
        )

    async def run(self, task: str, **options: Any) -> AttemptResult:
        """Run a task and return how it ended."""
        order = self.order(task, **options)
        await self.executor.submit(order)
        return await self.ledger.ending(order.key)

    async def value(self, task: str, **options: Any) -> Any:
        """Run a task that succeeds, and return its value as the next task gets it."""
        ending = await self.run(task, **options)
        assert isinstance(ending, Succeeded), ending
        workflow = self.workflows[options.get("workflow", "flow")]
        return TaskRunner(workflow)._codec_for(task).decode_input(SingleInput(ending.value))

    async def failure(self, task: str, **options: Any) -> Failed:
        """Run a task that fails."""
        ending = await self.run(task, **options)
        assert isinstance(ending, Failed), type(ending)
        return ending

    def files(self, name: str = "it") -> dict[str, str]:
        """Return the params of tasks that take long: files by which they tell and are told."""
        return {one: str(self.folder / f"{name}.{one}") for one in ("begun", "gate", "ended", "pids")}

    async def start(self, task: str, name: str = "it", **options: Any) -> AttemptRequest:
        """Start a task that takes long, and return when it runs."""
        order = self.order(task, workflow="loose", params=self.files(name), **options)
        await self.executor.submit(order)
        await until(Path(self.files(name)["begun"]).exists)
        return order

    def let_go(self, name: str = "it") -> None:
        """Let a task that takes long end."""
        Path(self.files(name)["gate"]).touch()

    async def forward(self, seconds: float) -> None:
        """Move time, once somebody waits for it."""
        await until(lambda: self.clock.next_wakeup() is not None)
        self.clock.advance_to(self.clock.monotonic() + seconds)
        await asyncio.sleep(0)


async def _push(accumulator: str, event: Any) -> str:
    return f"{accumulator}={event}"


async def until(condition: Callable[[], Any], patience: float = PATIENCE) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(patience):
        while not condition():  # noqa: ASYNC110 - another process does not set events
            await asyncio.sleep(0.002)


@asynccontextmanager
async def bench_of(name: str, folder: Path, **options: Any) -> AsyncIterator[Bench]:
    """An open executor; whatever still blocks is let go before it is closed."""
    bench = Bench(name, folder, **options)
    await bench.executor.open()
    try:
        yield bench
    finally:
        for name in ("it", "other", "third"):
            bench.let_go(name)
        await bench.executor.close(PATIENCE)
