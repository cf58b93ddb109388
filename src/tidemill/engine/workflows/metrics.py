"""The metrics of the workflow engine."""

from collections import defaultdict
from collections.abc import Iterator

from tidemill.engine.workflows.work_series import WorkSeries
from tidemill.telemetry.metrics import Histogram, Metric, Sample

_OF_SUBSCRIPTIONS = ("workflow", "reactor", "tenant")
_OF_RUNS = ("tenant", "workflow")
_OF_TASKS = ("tenant", "workflow", "task")
WORKFLOW_METRICS = (
    Metric("orphan_reaped", "counter", "runs without active tasks that the run reaper ended"),
    Metric("orphan_reap_error", "counter", "runs that the run reaper could not end because the store failed"),
    Metric("orphan_list_error", "counter", "passes of the run reaper that could not list their candidates"),
    Metric("orphan_panic", "counter", "candidates of the run reaper that raised"),
    Metric("dispatch_queue_depth", "gauge", "claimed attempts that wait for their executor to accept them"),
    Metric(
        "dispatch_at_capacity",
        "counter",
        "ticks and wake-ups that left a task scheduled because the dispatch queue was full",
    ),
    Metric("dispatch_latency_seconds", "histogram", "time from dispatch to acceptance by the executor"),
    Metric("dispatch_errors_total", "counter", "attempts that their executor refused"),
    Metric("dispatch_worker_restarts_total", "counter", "dispatch workers that crashed and were restarted"),
    Metric(
        "adopted_attempts_total", "counter", "remote attempts that this node has taken over from nodes that were gone"
    ),
    Metric("agent_lost_tasks_total", "counter", "attempts declared lost by the task reaper"),
    Metric("agent_stuck_tasks", "gauge", "attempts without heartbeats whose process lives, as known to the leader"),
    Metric("agent_lost_error", "counter", "candidates of the task reaper that could not be processed"),
    Metric("scheduler_ticks_total", "counter", "full passes of the scheduler"),
    Metric("scheduler_tick_seconds", "gauge", "duration of the last full pass"),
    Metric("scheduler_tick_lag_seconds", "gauge", "how late the last full pass began"),
    Metric("scheduler_phase_errors_total", "counter", "phases of the scheduler that failed, by phase", ("phase",)),
    Metric("scheduler_leader", "gauge", "1 while this node leads"),
    Metric("claims_total", "counter", "attempts claimed by this node"),
    Metric("fenced_writes_total", "counter", "writes refused because another node leads"),
    Metric("late_reports_total", "counter", "reports refused because their attempt was no longer the current one"),
    Metric("run_errors_total", "counter", "times that a run was quarantined because of an error"),
    Metric("runs_total", "counter", "runs that ended, by workflow and state", (*_OF_RUNS, "state")),
    Metric("run_duration_seconds", "histogram", "time from the start of a run to its end, by workflow", _OF_RUNS),
    Metric("run_last_success_timestamp_seconds", "gauge", "when a run of a workflow last ended in success", _OF_RUNS),
    Metric(
        "tasks_total",
        "counter",
        "tries that ended, and tasks that ended without one, by workflow, task and resulting state",
        (*_OF_TASKS, "state"),
    ),
    Metric("task_duration_seconds", "histogram", "time that a try took, by workflow and task", _OF_TASKS),
    Metric("runs_active", "gauge", "runs that have not ended, as known to the leader"),
    Metric("runs_waiting_for_code", "gauge", "runs whose code no node has, as known to the leader"),
    Metric("schedule_errors_total", "counter", "failed attempts to start the run of a slot"),
    Metric(
        "slots_dropped_total",
        "counter",
        "slots without a run, because of the schedule's catchup or because starting it failed",
    ),
    Metric("cron_lateness_seconds", "gauge", "how late the run of the last slot was created"),
    Metric("trigger_polls_total", "counter", "polls of triggers"),
    Metric("trigger_errors_total", "counter", "polls of triggers that failed"),
    Metric(
        "subscription_runs_total",
        "counter",
        "runs that firings of reactors started, by workflow and reactor",
        _OF_SUBSCRIPTIONS,
    ),
    Metric(
        "subscription_suppressed_total",
        "counter",
        "values that started no run because of cooldown or dedup, by workflow and reactor",
        _OF_SUBSCRIPTIONS,
    ),
    Metric(
        "subscription_errors_total",
        "counter",
        "failed attempts to start the run of a firing, by workflow and reactor",
        _OF_SUBSCRIPTIONS,
    ),
    Metric(
        "subscription_dead_letters_total",
        "counter",
        "starts of runs that became dead letters, by workflow and reactor",
        _OF_SUBSCRIPTIONS,
    ),
    Metric("answers_total", "counter", "answers to waits that this node has written, by source", ("source",)),
    Metric("steps_total", "counter", "steps of tasks that this node has recorded"),
    Metric("steps_reused_total", "counter", "recorded steps that repeated attempts were given"),
    Metric("heartbeat_errors_total", "counter", "heartbeats that the store did not accept"),
    Metric("loop_blocked_total", "counter", "times that code blocked the event loop for `blocked_loop_warning`"),
    Metric("loop_blocked_seconds_total", "counter", "seconds for which it blocked the event loop at these times"),
    Metric("runs_pruned_total", "counter", "runs deleted because they were older than the retention"),
)


GAUGES_OVER_TIME = (
    "runs_active",
    "dispatch_queue_depth",
    "scheduler_tick_seconds",
    "scheduler_tick_lag_seconds",
)
"""Gauges whose history a node keeps."""

CounterKey = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a counter and its labels."""

CLAIMS: CounterKey = ("claims_total", ())
DISPATCHED_AT_ONCE: CounterKey = ("dispatched_at_once", ())
"""Attempts that their executor accepted at once: the histogram of latencies counts them as 0."""


class WorkflowMetrics:
    """The counters and gauges of one node."""

    def __init__(self, series: int) -> None:
        self.work = WorkSeries(series)
        """Runs and tasks by name: at most `series` of each."""
        self.counters: defaultdict[CounterKey, float] = defaultdict(float)
        """By name and labels. Hot paths add to it directly, all others call `increment`."""
        self._gauges: dict[str, float] = {}
        self.dispatch_latency = Histogram()

    def increment(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self.counters[name, tuple(labels.items()) if labels else ()] += amount

    def set_gauge(self, name: str, value: float) -> None:
        """Set a gauge."""
        self._gauges[name] = value

    def gauge(self, name: str) -> float | None:
        """Return the value of a gauge; None if it was not set."""
        return self._gauges.get(name)

    def samples(self) -> Iterator[Sample]:
        """Yield all counters, gauges and histograms as samples."""
        yield from self.work.samples()
        for key, value in self.counters.items():
            if key != DISPATCHED_AT_ONCE:
                name, labels = key
                yield Sample(name, value, labels)
        at_once = self.counters.get(DISPATCHED_AT_ONCE, 0)
        yield from self.dispatch_latency.samples("dispatch_latency_seconds", zeros=at_once)
        for name, value in self._gauges.items():
            yield Sample(name, value)
