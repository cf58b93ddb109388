"""Steps of tasks that run: writes and reads what an attempt records, wherever it runs."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.engine.workflows.runtime import StoreRetry, WorkflowRuntime
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.storage.tables.steps import StepRow
from tidemill.workflows.node_calls import OwnCall, RecordCall, StepValueCall
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.step_records import StepName, StepRecord, TaskRecords

T = TypeVar("T")


class StepRecords:
    """Answers the calls of running tasks about their steps."""

    def __init__(self, runtime: WorkflowRuntime) -> None:
        self._runtime = runtime
        self._steps = runtime.store.steps
        self._retry = StoreRetry(runtime.clock)

    async def answer(self, request: AttemptRequest, call: OwnCall) -> Any:
        """Answer a call of an attempt. While the store fails, an attempt of this node waits; others repeat the call."""
        executor = self._runtime.executors.get(request.executor)
        if executor is not None and executor.outlives_node:
            return await self._answer(request, call)
        return await self._until_stored(lambda: self._answer(request, call))

    async def _until_stored(self, call: Callable[[], Awaitable[T]]) -> T:
        failures = 0
        while True:
            try:
                return await call()
            except StoreError:
                failures += 1
                await self._retry.wait(failures)

    async def _answer(self, request: AttemptRequest, call: OwnCall) -> Any:
        match call:
            case RecordCall(record, seconds):
                return await self._add(request, record, seconds)
            case StepValueCall(name):
                return await self._read_value(request.key, name)
        rows = await self._steps.list_of(*request.key.task_key)
        waits = await self._runtime.store.waits.of_task(request.key.task_key)
        self._runtime.metrics.increment("steps_reused_total", sum(row.state == "success" for row in rows))
        return TaskRecords(tuple(row.to_record() for row in rows), tuple(wait.to_record() for wait in waits))

    async def _add(self, request: AttemptRequest, record: StepRecord, seconds: float) -> bytes | None:
        """Write a record; return the stored value of the step if it has one already, else None."""
        now, key = self._runtime.clock.now(), request.key
        row = StepRow.of_record(request.tenant, key, record, (now - timedelta(seconds=seconds), now))
        if await self._steps.add(row):
            self._runtime.metrics.increment("steps_total")
            return None
        found = await self._steps.get(key.task_key, record.name)
        if found is None or found.value is None or found.attempt != key.attempt:
            raise RequestError(
                f"attempt {key} records no more steps: it was cancelled, has ended, or counts as lost",
                code="attempt_ended",
                status=409,
            )
        return found.value

    async def _read_value(self, key: AttemptKey, name: StepName) -> bytes:
        found = await self._steps.get(key.task_key, name)
        if found is None or found.value is None:
            message = f"{name.shown} of {key} is not recorded: its task was cleared"
            raise RequestError(message, code="attempt_ended", status=409)
        return found.value
