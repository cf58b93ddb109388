"""An executor under test: requests go in, and its reports are recorded."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from tests.contract import executor_workflows
from tidemill.engine.workflows.executors.code import LoadedWorkflows
from tidemill.engine.workflows.executors.forkserver.pool import IMPORT_TIMEOUT
from tidemill.engine.workflows.executors.in_process import InProcess
from tidemill.engine.workflows.executors.interface import (
    STOP_GRACE_PERIOD,
    AttemptListener,
    AttemptRequest,
    Executor,
    Input,
)
from tidemill.engine.workflows.executors.runner import TaskRunner
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.graphs.outcomes import Receipt
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.telemetry.log_records import LogRecord
from tidemill.worker import WorkerProcesses
from tidemill.workflows.attempt_results import AttemptResult, Failed, Succeeded
from tidemill.workflows.node_calls import NodeCall, RecordCall, StartCall, StartedRun, StepsCall, StepValueCall
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, VersionKey
from tidemill.workflows.step_records import StepName, StepRecord, TaskRecords
from tidemill.workflows.waits import WaitRecord
from tidemill.workflows.workflow import Workflow

TIMEOUT = 20.0
"""Seconds to wait for something that should take milliseconds."""

LARGE = msgspec.msgpack.encode("x" * 5000)
"""The value of a step that the list of steps leaves out."""

Kind = TypeVar("Kind", bound=AttemptResult)


class _LoadedNow(Mapping[VersionKey, Workflow]):
    """Workflows by the version that they have now: tests replace them while an executor runs."""

    def __init__(self, workflows: Mapping[str, Workflow]) -> None:
        self._workflows = workflows

    def __getitem__(self, key: VersionKey) -> Workflow:
        workflow = self._workflows[key.workflow]
        if workflow.wired().spec.version != key.version:
            raise KeyError(key)
        return workflow

    def __iter__(self) -> Iterator[VersionKey]:
        for name, workflow in self._workflows.items():
            yield VersionKey("public", name, workflow.wired().spec.version)

    def __len__(self) -> int:
        return len(self._workflows)


class RecordingListener(AttemptListener):
    """Records every report."""

    def __init__(self) -> None:
        self.rejects_starts = False
        self.fails_starts = False
        self.failed_starts = 0
        self.started: list[AttemptKey] = []
        self.endings: list[tuple[AttemptKey, AttemptResult]] = []
        self.records: list[tuple[AttemptKey, LogRecord]] = []
        self.bytes = 0
        self._ended = asyncio.Event()

    async def record_start(self, key: AttemptKey) -> bool:
        await asyncio.sleep(0)
        if self.fails_starts:
            self.failed_starts += 1
            raise StoreError("the store is unavailable")
        if not self.rejects_starts:
            self.started.append(key)
        return not self.rejects_starts

    def on_log(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        self.bytes += sum(len(record.message) for record in records)
        self.records += [(key, record) for record in records]

    def on_ended(self, key: AttemptKey, ending: AttemptResult) -> None:
        self.endings.append((key, ending))
        self._ended.set()

    async def wait_for_ending(self, key: AttemptKey) -> AttemptResult:
        """Wait until an attempt has ended, and return its result."""
        async with asyncio.timeout(TIMEOUT):
            while key not in dict(self.endings):
                self._ended.clear()
                await self._ended.wait()
        return dict(self.endings)[key]

    def messages(self, stream: str = "log") -> list[str]:
        """Return the messages of a stream in order."""
        return [record.message for _, record in self.records if record.stream == stream]


class ExecutorHarness:
    """An executor with a clock, workflows and a recording listener."""

    def __init__(
        self,
        name: str,
        folder: Path,
        concurrency: int = 8,
        grace: float = STOP_GRACE_PERIOD,
        import_timeout: float = IMPORT_TIMEOUT,
        lease: float | None = None,
    ) -> None:
        self.clock = VirtualClock()
        self.listener = RecordingListener()
        self.folder = folder
        self.workflows: dict[str, Workflow] = {
            one.name: one for one in (executor_workflows.flow, executor_workflows.loose)
        }
        self._name = name
        self._concurrency = concurrency
        self._grace = grace
        self._import_timeout = import_timeout
        self._lease = lease
        self._numbers = 0
        self.calls: list[NodeCall] = []
        """The calls of tasks, in the order of their arrival."""
        self.steps: dict[StepName, StepRecord] = {}
        """What tasks have recorded."""
        self.waits: list[WaitRecord] = []
        """What tasks have asked."""
        self._has_queue_space = asyncio.Event()  # of the accumulator `full`
        self.executor = self.build(self.listener)

    def build(self, listener: AttemptListener) -> Executor:
        """Return a new executor for these workflows."""
        if self._name == "in_process":
            return InProcess(
                self.loaded,
                listener,
                self.clock,
                concurrency=self._concurrency,
                handle_call=self._handle_call,
                grace=self._grace,
            )
        kind = WorkerProcesses if self._name == "worker" else Subprocess
        return kind(
            self.loaded,
            listener,
            self.clock,
            concurrency=self._concurrency,
            handle_call=self._handle_call,
            grace=self._grace,
            import_timeout=self._import_timeout,
            lease=self._lease,
        )

    async def _handle_call(self, request: AttemptRequest, call: NodeCall) -> Any:
        """Answer a call of a task: record it, and refuse those to accumulators that are not there or broken."""
        self.calls.append(call)
        match call:
            case StartCall():
                return StartedRun(call.key_for(request.key))
            case StepsCall():
                steps = (replace(one, value=None) if one.value == LARGE else one for one in self.steps.values())
                return TaskRecords(tuple(steps), tuple(self.waits))
            case StepValueCall(name):
                return self.steps[name].value
            case RecordCall(record):
                if record.name.key == '"late"':
                    raise RequestError("the attempt has ended", code="attempt_ended", status=409)
                self.steps[record.name] = record
                return None
        return await self._push(call.accumulator)

    async def _push(self, accumulator: str) -> Receipt:
        match accumulator:
            case "unknown":
                raise RequestError(
                    "unknown accumulator", code="accumulator_not_found", status=404, accumulator="unknown"
                )
            case "defect":
                raise ZeroDivisionError("a defect")
            case "full":
                await self._has_queue_space.wait()
        return Receipt(True, len(self.calls), "emitted")

    @property
    def loaded(self) -> LoadedWorkflows:
        """The workflows by version, as they are now."""
        return _LoadedNow(self.workflows)

    def request(
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
        """Return a request for a task, with a new key."""
        self._numbers += 1
        run_params = {"day": "monday"} if params is None and workflow == "flow" else params or {}
        return AttemptRequest(
            key=AttemptKey(f"run{self._numbers}", task, element, number),
            tenant="public",
            workflow=workflow,
            version=self.workflows[workflow].wired().spec.version if workflow in self.workflows else "none",
            executor=self.executor.name,
            number=number,
            deferrals=deferrals,
            params=msgspec.msgpack.encode(run_params),
            inputs=inputs or {},
            slot=slot,
            timeout=timeout,
            has_begun=has_begun,
        )

    async def run(self, task: str, **options: Any) -> AttemptResult:
        """Run a task and return its result."""
        request = self.request(task, **options)
        await self.executor.submit(request)
        return await self.listener.wait_for_ending(request.key)

    async def value(self, task: str, **options: Any) -> Any:
        """Run a task that succeeds, and return its value as a downstream task gets it."""
        ending = await self.run(task, **options)
        assert isinstance(ending, Succeeded), ending
        workflow = self.workflows[options.get("workflow", "flow")]
        return TaskRunner(workflow).decode_value(task, ending.value)

    async def failure(self, task: str, **options: Any) -> Failed:
        """Run a task that fails."""
        ending = await self.run(task, **options)
        assert isinstance(ending, Failed), type(ending)
        return ending

    def files(self, name: str = "it") -> dict[str, str]:
        """Return the params of long tasks: the files that they write and wait for."""
        return {one: str(self.folder / f"{name}.{one}") for one in ("started", "gate", "ended", "pids")}

    async def start(self, task: str, name: str = "it", **options: Any) -> AttemptRequest:
        """Start a long task, and return its request when it runs."""
        request = self.request(task, workflow="loose", params=self.files(name), **options)
        await self.executor.submit(request)
        await until(Path(self.files(name)["started"]).exists)
        return request

    def release(self, name: str = "it") -> None:
        """Let a long task end."""
        Path(self.files(name)["gate"]).touch()

    def release_all(self) -> None:
        """Let all long tasks end."""
        self._has_queue_space.set()
        for name in ("it", "other", "third"):
            self.release(name)

    async def advance(self, seconds: float) -> None:
        """Move the clock once something sleeps on it."""
        await until(lambda: self.clock.next_wakeup() is not None)
        self.clock.advance_to(self.clock.monotonic() + seconds)
        await asyncio.sleep(0)


async def until(condition: Callable[[], Any], seconds: float = TIMEOUT) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - another process does not set events
            await asyncio.sleep(0.002)


@asynccontextmanager
async def open_harness(name: str, folder: Path, **options: Any) -> AsyncIterator[ExecutorHarness]:
    """An open executor; long tasks are released before it closes."""
    harness = ExecutorHarness(name, folder, **options)
    await harness.executor.open()
    try:
        yield harness
    finally:
        harness.release_all()
        await harness.executor.close(TIMEOUT)
