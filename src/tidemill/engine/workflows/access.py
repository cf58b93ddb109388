"""Runs as a handle sees them: found, waited for, explained, wherever they are planned."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from tidemill.engine.workflows.board import Outcome
from tidemill.engine.workflows.desk import Desk
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.notices import Notices
from tidemill.engine.workflows.operations import Operations, pool_use
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.storage.run_ports import WorkflowStore
from tidemill.workflows.naming import named, unknown_task
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
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Take note that the node is closed: whoever waits here, or asks from now on, is told so."""
        self._closed.set()
        self.notices.tell_all()

    @contextmanager
    def while_running(self) -> Iterator[None]:
        """Let the node be asked something; RequestError if it is closed, also if it is so before it has answered."""
        self._refuse_if_closed()
        try:
            yield
        except StoreError:
            self._refuse_if_closed()
            raise

    def _refuse_if_closed(self) -> None:
        if self._closed.is_set():
            raise RequestError("the node is not running any more", code="not_running", status=409)

    @property
    def store(self) -> WorkflowStore:
        """Where runs are kept."""
        return self._environment.store

    async def ended(self, run: str) -> Outcome:
        """Return a run when it has ended: from memory if that happens here meanwhile, else from the store."""
        while True:
            self._refuse_if_closed()
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

    async def pause(self, seconds: float) -> None:
        """Return after so many seconds of the node's own time."""
        await _first_of(self._environment.clock.sleep(seconds), self._closed.wait())
        self._refuse_if_closed()

    async def news(self, news: asyncio.Event) -> None:
        """Wait for news; where others may change a run, nobody need tell, so look every tick all the same."""
        if self._environment.is_alone and self._desk() is not None:
            await news.wait()
        else:
            await _first_of(news.wait(), self._environment.clock.sleep(self._environment.settings.tick_interval))
        self._refuse_if_closed()

    async def rows_of(self, run: str, task: str) -> list[TaskRow]:
        """Return the task runs of a task; RequestError if there are none."""
        record = await self.operations.record(run)
        rows = record.by_task()
        if task not in rows:
            raise unknown_task(record.run.workflow, [task], rows)
        return rows[task]

    async def why(self, run: str, task: str) -> list[str]:
        """Return why a task has not run."""
        desk = self._desk()
        if desk is None:
            return await self.operations.why(run, task)
        return await self.operations.why(run, task, lambda record, name: self._facts(desk, record, name))

    def _facts(self, desk: Desk, record: RunRecord, task: str) -> Facts:
        run, admissions, places = record.run, desk.allotment.admissions, desk.allotment.places
        active = desk.board.get(run.id)
        name, _ = named(record, task)
        executor = record.by_task()[name][0].executor
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
            unanswered=desk.polls.unanswered(run.id),
        )


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait for one thing or another."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one, name="news") for one in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in tasks:
            one.cancel()
