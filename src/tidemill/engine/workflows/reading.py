"""From the store to the board: runs that are new to a leader, and those that somebody else has changed."""

import logging
from collections.abc import Callable

from tidemill.engine.workflows.allotment import Allotment
from tidemill.engine.workflows.board import ActiveRun
from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.timers import Timers
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.records import RunRecord, RunRow
from tidemill.workflows.spec import WorkflowSpec

logger = logging.getLogger(__name__)

PAGE = 100  # runs that are read at a time
PAGES = 5  # that are read before others have their turn


class Reading:
    """Makes a board hold what the store holds."""

    def __init__(
        self,
        environment: Environment,
        board: dict[str, ActiveRun],
        library: Library,
        crew: Crew,
        allotment: Allotment,
        timers: Timers,
        *,
        nudge: Callable[[str], None],
        look_again: Callable[[str], None],
    ) -> None:
        self._runs = environment.store.runs
        self._board = board
        self._library = library
        self._crew = crew
        self._allotment = allotment
        self._timers = timers
        self._nudge = nudge
        self._look_again = look_again

    async def refresh(self) -> bool:
        """Make the board hold exactly the runs that are active, reading those that are new or have changed.

        Return whether it does: many new ones are read a few at a time, so that others have their turns in between.
        """
        board = self._board
        known = set(board)  # what is made while the store answers is not in its answer, and yet there
        revisions = dict(await self._runs.active())
        for run in known - revisions.keys():
            if run in board and not board[run].is_working:
                self._look_again(run)  # it has ended elsewhere: what of it runs here is stopped
        fresh = [run for run in revisions if run not in board]
        for first in range(0, min(len(fresh), PAGES * PAGE), PAGE):
            for record in await self._runs.load(fresh[first : first + PAGE]):
                await self._put_on(record)
        for run, revision in revisions.items():
            active = board.get(run)
            if active is not None and active.run.revision < revision and not active.is_working:
                self._look_again(run)
        return len(fresh) <= PAGES * PAGE

    async def _put_on(self, record: RunRecord) -> None:
        run = record.run
        if run.id in self._board or run.state.is_terminal:
            return
        spec = await self._spec_or_nothing(run)
        await self._allotment.learn_limit(run)
        active = self._board[run.id] = ActiveRun(record, spec)
        self._allotment.admissions.note(None, run)
        self._allotment.count_pools(active, {}, active.rows)
        if not spec.tasks:
            active.set_aside = "its version cannot be read"
        self._offer(active)
        self._nudge(run.id)

    async def _spec_or_nothing(self, run: RunRow) -> WorkflowSpec:
        try:
            return await self._library.spec(run.version_key)
        except StoreError:
            raise
        except Exception as error:  # a spec that cannot be read is the problem of its runs alone
            logger.error(events.RUN_SET_ASIDE, extra={"run": run.id, "reason": str(error)})
            return WorkflowSpec(name=run.workflow, tasks=())

    async def read_again(self, active: ActiveRun) -> bool:
        """Take a run as others have left it; False if it has ended, or is gone."""
        self._allotment.take_back(active)
        record = next(iter(await self._runs.load([active.run.id])), None)
        if record is None:
            return False
        self._allotment.admissions.note(active.run, record.run)
        if record.run.state.is_terminal:
            active.run = record.run
            return False
        before = active.rows
        active.adopt(record)
        self._crew.stop_unwanted(active.run.id, active.rows)
        self._allotment.count_pools(active, before, active.rows)
        active.outputs.clear()
        version = record.run.version_key
        if not active.spec.tasks or version != active.version:  # it had ended meanwhile, and goes on with another
            active.pin(version, await self._library.spec(version))
        self._offer(active)
        return True

    def _offer(self, active: ActiveRun) -> None:
        """Let what waits for a place, or for a time, wait for it here."""
        self._allotment.offer(active, active.waiting())
        self._timers.remember(active.run.id, active.rows.values())
