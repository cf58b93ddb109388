"""What the workflow engine counts."""

from collections import defaultdict
from collections.abc import Iterator

from tidemill.telemetry.metrics import Sample

WORKFLOW_METRICS = {
    "orphan_reaped": "runs that nothing would have ended any more, ended by the run reaper",
    "orphan_reap_error": "runs that the run reaper could not end because the store failed",
    "orphan_list_error": "passes of the run reaper that could not list their candidates",
    "orphan_panic": "candidates of the run reaper that raised",
    "dispatch_queue_depth": "claimed attempts that wait for their executor to take them",
    "dispatch_at_capacity": "ticks and wake-ups that left something scheduled because the dispatch queue was full",
    "dispatch_latency_seconds": "time from claim to acceptance by the executor, summed",
    "dispatch_latency_seconds_count": "attempts handed to their executor",
    "dispatch_errors_total": "attempts that their executor refused",
    "dispatch_worker_restarts_total": "dispatch workers that crashed and were started again",
    "agent_lost_tasks_total": "attempts declared lost by the task reaper",
    "agent_lost_error": "candidates of the task reaper that could not be dealt with",
    "scheduler_ticks_total": "full passes of the scheduler's loop",
    "scheduler_tick_seconds": "duration of the last full pass",
    "scheduler_tick_lag_seconds": "how late the last full pass began",
    "scheduler_phase_errors_total": "phases of the loop that failed, by phase",
    "scheduler_leader": "1 while this node plans",
    "claims_total": "attempts claimed by this node",
    "fenced_writes_total": "writes refused because somebody else was in office",
    "late_reports_total": "reports refused because their attempt was no longer the current one",
    "run_errors_total": "times that a run was set aside because something went wrong with it",
    "runs_total": "runs that ended, by state",
    "tasks_total": "task runs that ended a try, by state",
    "runs_active": "runs that have not ended, as known to the leader",
    "schedule_errors_total": "tries to make the run of a slot that failed",
    "slots_dropped_total": "slots that got no run, because of the schedule's catchup or because it could not be made",
    "cron_lateness_seconds": "how late the run of the last slot was created",
    "trigger_polls_total": "polls of triggers",
    "trigger_errors_total": "polls of triggers that failed",
    "subscription_runs_total": "runs that firings of reactors started, by workflow and reactor",
    "subscription_errors_total": "tries to start the run of a firing that failed, by workflow and reactor",
    "subscription_dead_letters_total": "firings given up because no try could start their run",
    "heartbeat_errors_total": "heartbeats that the store did not take",
    "runs_pruned_total": "runs deleted because they were older than the retention",
}


class WorkflowMetrics:
    """The counts and readings of one node."""

    def __init__(self) -> None:
        self._counters: defaultdict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)
        self._gauges: dict[str, float] = {}

    def increment(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count something up."""
        self._counters[name, tuple(labels.items()) if labels else ()] += amount

    def set_gauge(self, name: str, value: float) -> None:
        """Set a reading."""
        self._gauges[name] = value

    def samples(self) -> Iterator[Sample]:
        """Yield everything as samples."""
        for (name, labels), value in self._counters.items():
            yield Sample(name, value, labels)
        for name, value in self._gauges.items():
            yield Sample(name, value)
