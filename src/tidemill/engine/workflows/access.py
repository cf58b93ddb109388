"""Runs as a handle sees them: found, waited for, explained, wherever they are planned."""

import asyncio
from collections.abc import Callable

from tidemill.engine.workflows.board import Outcome
from tidemill.engine.workflows.desk import Desk
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.notices import Notices
from tidemill.engine.workflows.operations import Operations, pool_use
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.run_ports import WorkflowStore
from tidemill.workflows.records import RunRecord, TaskRow
from tidemill.workflows.states import RunState
from tidemill.workflows.why import Facts


class RunAccess:
    """What a node offers to whoever has the id of a run."""

    def __init__(
        self,
        environment: Environment,
        operations: Operations,
        notices: Notices,
        desk: Callable[[], Desk | None],
    ) -> None:
        self.operations = operations
        self.notices = notices
        self._environment = environment
        self._desk = desk

    @property
    def store(self) -> WorkflowStore:
        """Where runs are kept."""
        return self._environment.store

    async def ended(self, run: str) -> Outcome:
        """Return a run when it has ended: from memory if that happens here meanwhile, else from the store."""
        while True:
            desk, end = self._desk(), self.notices.end(run)
            if desk is not None and run in desk.board:
                await end.wait()  # the desk sees its end, wherever that comes from, and its own
                if end.outcome is not None:
                    return end.outcome
                continue
            news = self.notices.next(run)
            record = await self.operations.record(run)
            if record.run.state.is_terminal:
                return Outcome(record, None)
            await self.news(news)

    async def news(self, news: asyncio.Event) -> None:
        """Wait for news; where others may change a run, nobody need tell, so look every tick all the same."""
        if self._environment.is_alone and self._desk() is not None:
            await news.wait()
            return
        async with asyncio.TaskGroup() as group:
            tick = self._environment.clock.sleep(self._environment.settings.tick_interval)
            waits = [group.create_task(news.wait(), name="news"), group.create_task(tick, name="news: tick")]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for one in waits:
                one.cancel()

    async def rows_of(self, run: str, task: str) -> list[TaskRow]:
        """Return the task runs of a task; RequestError if there are none."""
        record = await self.operations.record(run)
        rows = [row for row in record.tasks if row.task == task]
        if not rows:
            hint = did_you_mean(task, {row.task for row in record.tasks})
            message = f"workflow '{record.run.workflow}' has no task '{task}'{hint}"
            raise RequestError(message, code="unknown_task", status=404, tasks=[task])
        return rows

    async def why(self, run: str, task: str) -> list[str]:
        """Return why a task has not run."""
        desk = self._desk()
        if desk is None:
            return await self.operations.why(run, task)
        return await self.operations.why(run, task, lambda record, name: self._facts(desk, record, name))

    def _facts(self, desk: Desk, record: RunRecord, task: str) -> Facts:
        run, admissions, places = record.run, desk.allotment.admissions, desk.allotment.places
        active = desk.board.get(run.id)
        executor = next((row.executor for row in record.tasks if row.task == task.partition("[")[0]), "")
        records = [RunRecord(one.run, list(one.rows.values())) for one in desk.board.values()]
        return Facts(
            now=self._environment.clock.now(),
            paused=admissions.is_paused(run),
            active_runs=admissions.running(run.tenant, run.workflow) - (run.state is RunState.RUNNING),
            pool_use=pool_use(records, self._environment.pools),
            capacity=max(0, places.free(executor)) if places.knows(executor) else None,
            set_aside=active.set_aside if active is not None else None,
            loaded=self.operations.versions(record),
            polled=desk.polls.intervals(run.id),
        )
