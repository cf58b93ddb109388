"""Which queued runs may begin: as many of a workflow, and of a backfill, as may run at a time; first come, first
served."""

from collections import Counter
from itertools import islice

from tidemill.workflows.records import RunRow
from tidemill.workflows.states import RunState

Key = tuple[str, str]


class Admissions:
    """How many runs of each workflow run, and which wait for their turn."""

    def __init__(self) -> None:
        self._running: Counter[Key] = Counter()
        self._filling: Counter[str] = Counter()
        self._waiting: dict[Key, dict[str, None]] = {}
        self.limits: dict[str, int] = {}
        """How many runs of a backfill may run at a time."""
        self.paused: set[Key] = set()

    def is_paused(self, run: RunRow) -> bool:
        """Return whether the run's workflow is paused."""
        return (run.tenant, run.workflow) in self.paused

    def may_begin(self, run: RunRow) -> bool:
        """Return whether a queued run may begin now."""
        key = run.tenant, run.workflow
        if run.state is not RunState.QUEUED or key in self.paused or self._running[key] >= run.max_active:
            return False
        return run.backfill is None or self._filling[run.backfill] < self.limits.get(run.backfill, 1)

    def note(self, before: RunRow | None, after: RunRow | None) -> None:
        """Take note of how a run stands now; None before it is known, or after it is forgotten."""
        if before is not None and before.state is RunState.RUNNING:
            self._count(before, -1)
        if after is not None and after.state is RunState.RUNNING:
            self._count(after, 1)
        run = after or before
        if run is None:
            return
        queue = self._waiting.setdefault((run.tenant, run.workflow), {})
        if after is not None and after.state is RunState.QUEUED:
            queue[run.id] = None
        else:
            queue.pop(run.id, None)

    def _count(self, run: RunRow, by: int) -> None:
        self._running[run.tenant, run.workflow] += by
        if run.backfill is not None:
            self._filling[run.backfill] += by

    def running(self, tenant: str, workflow: str) -> int:
        """Return how many runs of a workflow run."""
        return self._running[tenant, workflow]

    def waiting(self, tenant: str, workflow: str, limit: int) -> list[str]:
        """Return the first queued runs of a workflow, as they came."""
        return list(islice(self._waiting.get((tenant, workflow), ()), limit))
