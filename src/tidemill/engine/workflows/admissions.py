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
        self._waiting: dict[Key, dict[str | None, dict[str, int]]] = {}
        """By workflow and backfill: queued runs as they came, each with how many of its workflow may run."""
        self.limits: dict[str, int] = {}
        """How many runs of a backfill may run at a time."""
        self.paused: set[Key] = set()

    def is_paused(self, run: RunRow) -> bool:
        """Return whether the run's workflow is paused."""
        return (run.tenant, run.workflow) in self.paused

    def may_begin(self, run: RunRow) -> bool:
        """Return whether a queued run may begin now."""
        if run.state is not RunState.QUEUED:
            return False
        key = run.tenant, run.workflow
        if key in self.paused or self._running[key] >= run.max_active:
            return False
        return run.backfill is None or self._filling[run.backfill] < self.limits.get(run.backfill, 1)

    def note(self, before: RunRow | None, after: RunRow | None) -> None:
        """Take note of how a run stands now; None before it is known, or after it is forgotten."""
        if before is not None and after is not None and before.state is after.state:
            return
        if before is not None and before.state is RunState.RUNNING:
            self._count(before, -1)
        if after is not None and after.state is RunState.RUNNING:
            self._count(after, 1)
        run = after or before
        if run is None:
            return
        queues = self._waiting.setdefault((run.tenant, run.workflow), {})
        if after is not None and after.state is RunState.QUEUED:
            queues.setdefault(run.backfill, {})[run.id] = run.max_active
            return
        queue = queues.get(run.backfill, {})
        queue.pop(run.id, None)
        if not queue:
            queues.pop(run.backfill, None)

    def _count(self, run: RunRow, by: int) -> None:
        self._running[run.tenant, run.workflow] += by
        if run.backfill is not None:
            self._filling[run.backfill] += by

    def running(self, tenant: str, workflow: str) -> int:
        """Return how many runs of a workflow run."""
        return self._running[tenant, workflow]

    def next_ones(self, tenant: str, workflow: str) -> list[str]:
        """Return the queued runs of a workflow for which there is room, as they came."""
        queues = self._waiting.get((tenant, workflow), {})
        allowed = max((next(iter(queue.values())) for queue in queues.values()), default=0)
        room = max(0, allowed - self._running[tenant, workflow])
        found: list[str] = []
        for backfill, queue in queues.items():
            free = room if backfill is None else min(room, self.limits.get(backfill, 1) - self._filling[backfill])
            found += islice(queue, max(0, free))
        return sorted(found)[:room]
