"""The metrics of the workflow engine."""

from collections import defaultdict
from collections.abc import Iterator

from tidemill.telemetry.metrics import Histogram, Sample
from tidemill.workflows.states import RunState, TaskState

WORKFLOW_METRICS = {
    "orphan_reaped": "runs without active tasks that the run reaper ended",
    "orphan_reap_error": "runs that the run reaper could not end because the store failed",
    "orphan_list_error": "passes of the run reaper that could not list their candidates",
    "orphan_panic": "candidates of the run reaper that raised",
    "dispatch_queue_depth": "claimed attempts that wait for their executor to accept them",
    "dispatch_at_capacity": "ticks and wake-ups that left a task scheduled because the dispatch queue was full",
    "dispatch_latency_seconds": "time from dispatch to acceptance by the executor",
    "dispatch_latency_seconds_count": "attempts accepted by their executor",
    "dispatch_errors_total": "attempts that their executor refused",
    "dispatch_worker_restarts_total": "dispatch workers that crashed and were restarted",
    "adopted_attempts_total": "remote attempts that this node has taken over from nodes that were gone",
    "agent_lost_tasks_total": "attempts declared lost by the task reaper",
    "agent_stuck_tasks": "attempts without heartbeats whose process lives, as known to the leader",
    "agent_lost_error": "candidates of the task reaper that could not be processed",
    "scheduler_ticks_total": "full passes of the scheduler",
    "scheduler_tick_seconds": "duration of the last full pass",
    "scheduler_tick_lag_seconds": "how late the last full pass began",
    "scheduler_phase_errors_total": "phases of the scheduler that failed, by phase",
    "scheduler_leader": "1 while this node leads",
    "claims_total": "attempts claimed by this node",
    "fenced_writes_total": "writes refused because another node leads",
    "late_reports_total": "reports refused because their attempt was no longer the current one",
    "run_errors_total": "times that a run was quarantined because of an error",
    "runs_total": "runs that ended, by state",
    "tasks_total": "task attempts that ended, by the state of their task",
    "runs_active": "runs that have not ended, as known to the leader",
    "schedule_errors_total": "failed attempts to start the run of a slot",
    "slots_dropped_total": "slots without a run, because of the schedule's catchup or because starting it failed",
    "cron_lateness_seconds": "how late the run of the last slot was created",
    "trigger_polls_total": "polls of triggers",
    "trigger_errors_total": "polls of triggers that failed",
    "subscription_runs_total": "runs that firings of reactors started, by workflow and reactor",
    "subscription_suppressed_total": "values that started no run because of cooldown or dedup, by workflow and reactor",
    "subscription_errors_total": "failed attempts to start the run of a firing, by workflow and reactor",
    "subscription_dead_letters_total": "starts of runs that became dead letters, by workflow and reactor",
    "heartbeat_errors_total": "heartbeats that the store did not accept",
    "runs_pruned_total": "runs deleted because they were older than the retention",
}


CounterKey = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a counter and its labels."""

CLAIMS: CounterKey = ("claims_total", ())
DISPATCHED_AT_ONCE: CounterKey = ("dispatched_at_once", ())
"""Attempts that their executor accepted at once: the histogram of latencies counts them as 0."""
TASKS_BY_STATE: dict[TaskState, CounterKey] = {state: ("tasks_total", (("state", state),)) for state in TaskState}
RUNS_BY_STATE: dict[RunState, CounterKey] = {state: ("runs_total", (("state", state),)) for state in RunState}
_FROM_ZERO = dict.fromkeys(
    [key for by_state in (TASKS_BY_STATE, RUNS_BY_STATE) for state, key in by_state.items() if state.is_terminal], 0.0
)
"""Counters that begin at 0: Prometheus sees no increase in a counter that first appears with 1, the first failure."""


class WorkflowMetrics:
    """The counters and gauges of one node."""

    def __init__(self) -> None:
        self.counters: defaultdict[CounterKey, float] = defaultdict(float, _FROM_ZERO)
        """By name and labels. Hot paths add to it directly, all others call `increment`."""
        self._gauges: dict[str, float] = {}
        self.dispatch_latency = Histogram()

    def increment(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self.counters[name, tuple(labels.items()) if labels else ()] += amount

    def set_gauge(self, name: str, value: float) -> None:
        """Set a gauge."""
        self._gauges[name] = value

    def samples(self) -> Iterator[Sample]:
        """Yield all counters, gauges and histograms as samples."""
        for key, value in self.counters.items():
            if key != DISPATCHED_AT_ONCE:
                name, labels = key
                yield Sample(name, value, labels)
        at_once = self.counters.get(DISPATCHED_AT_ONCE, 0)
        yield from self.dispatch_latency.samples("dispatch_latency_seconds", zeros=at_once)
        for name, value in self._gauges.items():
            yield Sample(name, value)
