"""Run admission on the leader: which queued runs may begin."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from heapq import merge
from itertools import count, islice

from tidemill.workflows.records import RunRow
from tidemill.workflows.states import RunState

WorkflowKey = tuple[str, str]
"""A tenant and the name of a workflow."""
RunOrder = tuple[int, int, str]
"""The turn of a run: its sequence number, its arrival if it is not stored yet, and its id."""
UNSTORED = 2**63  # in place of the sequence number of a run that is not stored yet


class RunAdmission:
    """Decides which runs may begin: first come, first served, within the limits of their workflow and backfill.

    The slot of a run that has ended is free once its end is written. A queued run that is quarantined is passed over,
    and one whose backfill is at its limit holds up only the runs of that backfill.
    """

    def __init__(self) -> None:
        self.is_open = False
        """Whether runs may begin: not before all active runs are known."""
        self.backfill_limits: dict[str, int] = {}
        """By backfill: how many of its runs may run at a time."""
        self.paused: set[WorkflowKey] = set()
        self.quarantined: set[str] = set()
        """Queued runs that cannot be processed at present."""
        self._known: dict[str, tuple[RunOrder, RunRow]] = {}
        """The queued and running runs, each with its turn."""
        self._running: Counter[WorkflowKey] = Counter()
        self._running_by_backfill: Counter[str] = Counter()
        self._waiting: dict[WorkflowKey, dict[str | None, list[RunOrder]]] = {}
        """By workflow and backfill: the turns of the queued runs, in order."""
        self._arrivals = count()

    def is_paused(self, run: RunRow) -> bool:
        """Return whether the run's workflow is paused."""
        return (run.tenant, run.workflow) in self.paused

    def may_begin(self, run: RunRow) -> bool:
        """Return whether a run is queued, and its turn has come."""
        if run.state is not RunState.QUEUED or self._running[run.tenant, run.workflow] >= run.max_active:
            return False  # without a look at the queue: while many runs wait, this is nearly always so
        return run.id in self.next_runs(run.tenant, run.workflow)

    def put(self, run: RunRow) -> None:
        """Record the state of a run; the same again changes nothing."""
        known = self._known.get(run.id)
        if known is not None and known[1].state is run.state is RunState.RUNNING and known[1].backfill == run.backfill:
            self._known[run.id] = (run.sequence, 0, run.id) if run.sequence else known[0], run
            return
        turn = None if known is None else self._take_out(run.id)
        if run.state.is_terminal:
            return
        if run.sequence:
            turn = (run.sequence, 0, run.id)
        elif turn is None:  # it is being created: after all that are stored
            turn = (UNSTORED, next(self._arrivals), run.id)
        self._known[run.id] = turn, run
        if run.state is RunState.RUNNING:
            self._count(run, 1)
        else:
            queues = self._waiting.setdefault((run.tenant, run.workflow), {})
            insort(queues.setdefault(run.backfill, []), turn)

    def remove(self, run: str) -> None:
        """Forget a run that has ended."""
        self._take_out(run)
        self.quarantined.discard(run)

    def _take_out(self, id: str) -> RunOrder | None:
        """Forget the state of a run; return its turn if it was known."""
        turn, run = self._known.pop(id, (None, None))
        if turn is None or run is None:
            return None
        if run.state is RunState.RUNNING:
            self._count(run, -1)
            return turn
        queues = self._waiting[run.tenant, run.workflow]
        queue = queues[run.backfill]
        del queue[bisect_left(queue, turn)]
        if not queue:
            del queues[run.backfill]
        return turn

    def _count(self, run: RunRow, by: int) -> None:
        self._running[run.tenant, run.workflow] += by
        if run.backfill is not None:
            self._running_by_backfill[run.backfill] += by

    def running_count(self, tenant: str, workflow: str) -> int:
        """Return how many runs of a workflow are running."""
        return self._running[tenant, workflow]

    def next_runs(self, tenant: str, workflow: str) -> list[str]:
        """Return the queued runs of a workflow that may begin now, oldest first."""
        key = tenant, workflow
        if not self.is_open or not self._waiting.get(key) or key in self.paused:
            return []
        running, begins = self._running[key], list[str]()
        queues = [self._candidates(key, backfill) for backfill in self._waiting[key]]
        for _, _, run in merge(*queues):
            if running + len(begins) >= self._known[run][1].max_active:
                break
            begins.append(run)
        return begins

    def _candidates(self, key: WorkflowKey, backfill: str | None) -> Iterator[RunOrder]:
        """Return the turns of a workflow's queued runs within the limit of their backfill, in order."""
        waiting = iter(self._waiting[key][backfill])
        if self.quarantined:
            waiting = (turn for turn in waiting if turn[-1] not in self.quarantined)
        if backfill is None:
            return waiting
        free = self.backfill_limits.get(backfill, 1) - self._running_by_backfill[backfill]
        return islice(waiting, max(0, free))

    def waiting_workflows(self) -> list[WorkflowKey]:
        """Return the workflows that have queued runs."""
        return [key for key, queues in self._waiting.items() if queues]
