"""The run reaper: ends runs whose end was missed.

A run ends in the transaction of its last task, so there should never be one. Should a defect leave one behind, with
nothing in it that anybody will ever report on, it is planned once more, which gives its true outcome; and if even that
says nothing, it is failed. A run in which anything is active is not touched, however old it is.
"""

import logging
from datetime import timedelta

from tidemill.engine.workflows.desk import Desk
from tidemill.engine.workflows.environment import Environment
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.draft import Draft
from tidemill.workflows.states import RunState

logger = logging.getLogger(__name__)


class RunReaper:
    """Looks for runs that nothing would end."""

    def __init__(self, environment: Environment, desk: Desk) -> None:
        self._store = environment.store
        self._desk = desk
        self._clock = environment.clock
        self._settings = environment.settings
        self._figures = environment.figures

    async def reap(self) -> None:
        """End orphaned runs, a bounded number at a time; trouble with one does not keep the others."""
        before = self._clock.now() - timedelta(seconds=self._settings.run_orphan_after)
        try:
            orphans = await self._store.runs.orphans(before, self._settings.reap_limit)
        except StoreError:
            self._figures.count("orphan_list_error")
            raise
        for run in orphans:
            try:
                await self._reap(run)
            except StoreError:
                self._figures.count("orphan_reap_error")
            except Exception:  # a candidate that raises is its own problem, not that of the next
                self._figures.count("orphan_panic")
                logger.exception(events.RUN_ORPHANED, extra={"run": run})

    async def _reap(self, run: str) -> None:
        self._desk.look_again(run)
        answer = self._desk.ask(run, _end, once=True)
        if answer is not None and await answer:
            self._figures.count("orphan_reaped")
            logger.warning(events.RUN_ORPHANED, extra={"run": run})


def _end(draft: Draft) -> bool:
    """Give a run its true outcome, or fail it if nothing can be decided about it; return whether it was ended."""
    if draft.run.state is not RunState.RUNNING or any(row.state.is_active for row in draft.rows.values()):
        return False
    draft.plan()
    if draft.run.state is RunState.RUNNING and not any(row.state.is_active for row in draft.rows.values()):
        draft.fail("orphaned: nothing in it can be decided any more")
    return draft.run.state.is_terminal
