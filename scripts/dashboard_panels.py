"""The panels of the Grafana dashboard: what each shows, and how it is computed."""

from typing import Literal, NamedTuple

SERVER = 'job=~"$job",instance=~"$instance"'
TENANT = f'{SERVER},tenant=~"$tenant"'
REACTOR = f'{TENANT},reactor=~"$reactor"'
INTERVAL = "$__rate_interval"


class Query(NamedTuple):
    """A query, and the name of each of its lines."""

    expression: str
    legend: str = ""


class Panel(NamedTuple):
    """One panel."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: Literal["stat", "timeseries", "state-timeline", "table"] = "timeseries"
    width: int = 8
    is_bad: bool = False
    """Whether everything above zero is a problem."""


def rate(metric: str, selector: str, by: str) -> str:
    """Return how much a counter rises per second, by some labels."""
    return f"sum by ({by}) (rate(tidemill_{metric}{{{selector}}}[{INTERVAL}]))"


def rise(metric: str, selector: str, duration: str = "1h") -> str:
    """Return how much a counter has risen; 0 if it has never been counted."""
    return f"sum(increase(tidemill_{metric}{{{selector}}}[{duration}])) or vector(0)"


def of_leader(metric: str) -> str:
    """Return a metric of the leader: other servers keep the values from when they last led."""
    return f"max by (job) (tidemill_{metric}{{{SERVER}}} * on (job, instance) tidemill_scheduler_leader{{{SERVER}}})"


def quantile(share: str, metric: str, by: str) -> str:
    """Return a quantile of a histogram, by some labels."""
    buckets = f"sum by ({', '.join(filter(None, ('le', by)))}) (rate(tidemill_{metric}_bucket{{{SERVER}}}[{INTERVAL}]))"
    return f"histogram_quantile({share}, {buckets})"


def stat(title: str, description: str, expression: str, *, unit: str = "short", is_bad: bool = False) -> Panel:
    """Return a panel with one number."""
    return Panel(title, description, (Query(expression),), unit, "stat", width=4, is_bad=is_bad)


def lines(title: str, description: str, *queries: tuple[str, str], unit: str = "short") -> Panel:
    """Return a panel with lines over time."""
    return Panel(title, description, tuple(Query(*one) for one in queries), unit)


OVERVIEW = (
    stat("Servers", "Servers that answer Prometheus.", f"count(tidemill_build_info{{{SERVER}}})"),
    stat("Leaders", "Exactly one server leads.", f"sum(tidemill_scheduler_leader{{{SERVER}}})"),
    stat("Active runs", "Runs that have not ended.", of_leader("runs_active")),
    stat(
        "Events",
        "Accepted events per second.",
        f"sum(rate(tidemill_accumulator_events_total{{{TENANT}}}[{INTERVAL}]))",
        unit="cps",
    ),
    stat(
        "Firings",
        "Firings per second.",
        f"sum(rate(tidemill_reactor_fires_total{{{REACTOR}}}[{INTERVAL}]))",
        unit="cps",
    ),
    stat(
        "Requests",
        "Answered requests per second.",
        f"sum(rate(tidemill_http_requests_total{{{SERVER}}}[{INTERVAL}]))",
        unit="reqps",
    ),
    stat(
        "Failed runs, 1 h",
        "Runs that failed within an hour.",
        rise("runs_total", f'{SERVER},state="failed"'),
        is_bad=True,
    ),
    stat(
        "Reactors not live",
        "Reactors that are starting, warming, degraded or failed.",
        f"count(max by (tenant, reactor) (tidemill_reactor_health{{{REACTOR}}}) == 0) or vector(0)",
        is_bad=True,
    ),
    stat(
        "Dead letters, 1 h",
        "Events, firings and starts of runs that failed for good within an hour.",
        rise("dead_letters_total", TENANT),
        is_bad=True,
    ),
    stat(
        "Lost attempts, 1 h",
        "Attempts whose process or host was lost within an hour; they run again.",
        rise("agent_lost_tasks_total", SERVER),
        is_bad=True,
    ),
    stat(
        "Failed packages",
        "Packages whose desired version could not be loaded.",
        f"max(tidemill_packages_failed{{{SERVER}}})",
        is_bad=True,
    ),
    stat(
        "Server errors, 1 h",
        "Requests that were answered with a status of 500 or more within an hour.",
        rise("http_requests_total", f'{SERVER},status=~"5.."'),
        is_bad=True,
    ),
)

RUNS = (
    lines(
        "Ended runs",
        "Runs that ended, per second, by workflow and state.",
        (rate("runs_total", TENANT, "tenant, workflow, state"), "{{tenant}}/{{workflow}} {{state}}"),
        unit="cps",
    ),
    lines(
        "Failed runs, 1 h",
        "Runs that failed within an hour, by workflow.",
        (
            f'sum by (tenant, workflow) (increase(tidemill_runs_total{{{TENANT},state="failed"}}[1h])) > 0',
            "{{tenant}}/{{workflow}}",
        ),
    ),
    lines(
        "Duration of runs, 95th percentile",
        "By workflow.",
        (quantile("0.95", "run_duration_seconds", "tenant, workflow"), "{{tenant}}/{{workflow}}"),
        unit="s",
    ),
    lines(
        "Time since the last success",
        "Of each workflow that has had one since its server was started.",
        (
            f"time() - max by (tenant, workflow) (tidemill_run_last_success_timestamp_seconds{{{TENANT}}})",
            "{{tenant}}/{{workflow}}",
        ),
        unit="s",
    ),
    lines(
        "Ended tasks",
        "Tries that ended, and tasks without one, per second, by the resulting state.",
        (rate("tasks_total", TENANT, "state"), "{{state}}"),
        unit="cps",
    ),
    lines(
        "Slowest tasks, 95th percentile",
        "The ten tasks whose tries take longest.",
        (
            f"topk(10, {quantile('0.95', 'task_duration_seconds', 'tenant, workflow, task')})",
            "{{workflow}}/{{task}}",
        ),
        unit="s",
    ),
    lines(
        "Active runs",
        "Runs that have not ended, at the leader's last check.",
        (of_leader("runs_active"), "{{job}}"),
    ),
    lines(
        "Lateness of slots",
        "How late the run of the last slot was created.",
        (of_leader("cron_lateness_seconds"), "{{job}}"),
        unit="s",
    ),
    lines(
        "Schedules and triggers",
        "Slots without a run, slots and polls that failed.",
        (rate("slots_dropped_total", SERVER, "job"), "slots dropped"),
        (rate("schedule_errors_total", SERVER, "job"), "slots failed"),
        (rate("trigger_errors_total", SERVER, "job"), "polls failed"),
        unit="cps",
    ),
    lines(
        "Runs started by firings",
        "Runs that firings of reactors started, by workflow.",
        (rate("subscription_runs_total", REACTOR, "tenant, workflow"), "{{tenant}}/{{workflow}}"),
        (rate("subscription_errors_total", REACTOR, "tenant, workflow"), "{{tenant}}/{{workflow}} failed"),
        unit="cps",
    ),
)

SCHEDULER = (
    Panel(
        "Leader",
        "Which server leads.",
        (Query(f"tidemill_scheduler_leader{{{SERVER}}}", "{{instance}}"),),
        kind="state-timeline",
    ),
    lines(
        "Ticks",
        "Duration of the last full pass of the scheduler, and how late it began.",
        (of_leader("scheduler_tick_seconds"), "duration"),
        (of_leader("scheduler_tick_lag_seconds"), "lag"),
        unit="s",
    ),
    lines(
        "Errors of the scheduler",
        "Failed phases, quarantined runs, and writes of a server that no longer led.",
        (rate("scheduler_phase_errors_total", SERVER, "phase"), "{{phase}}"),
        (rate("run_errors_total", SERVER, "job"), "runs quarantined"),
        (rate("fenced_writes_total", SERVER, "job"), "fenced writes"),
        unit="cps",
    ),
    lines(
        "Claimed attempts",
        "Attempts that each server claims, per second.",
        (rate("claims_total", SERVER, "instance"), "{{instance}}"),
        unit="cps",
    ),
    lines(
        "Dispatch latency",
        "Time from claim to acceptance by the executor.",
        (quantile("0.5", "dispatch_latency_seconds", ""), "median"),
        (quantile("0.99", "dispatch_latency_seconds", ""), "99th percentile"),
        unit="s",
    ),
    lines(
        "Dispatch queue",
        "Claimed attempts that wait for their executor.",
        (f"sum by (instance) (tidemill_dispatch_queue_depth{{{SERVER}}})", "{{instance}}"),
    ),
    lines(
        "Lost and stuck attempts",
        "Attempts without heartbeats: lost ones run again, stuck ones still have a process.",
        (rate("agent_lost_tasks_total", SERVER, "job"), "lost"),
        (rate("heartbeat_errors_total", SERVER, "job"), "heartbeats failed"),
        (of_leader("agent_stuck_tasks"), "stuck"),
    ),
)

REACTORS = (
    lines(
        "Firings",
        "Firings per second, by reactor.",
        (rate("reactor_fires_total", REACTOR, "tenant, reactor"), "{{tenant}}/{{reactor}}"),
        unit="cps",
    ),
    lines(
        "Firing time, 99th percentile",
        "Of the newest firings.",
        (
            f'max by (tenant, reactor) (tidemill_reactor_firing_seconds{{{REACTOR},quantile="0.99"}})',
            "{{tenant}}/{{reactor}}",
        ),
        unit="s",
    ),
    Panel(
        "Live",
        "1 while a reactor is live.",
        (Query(f"max by (tenant, reactor) (tidemill_reactor_health{{{REACTOR}}})", "{{tenant}}/{{reactor}}"),),
        kind="state-timeline",
    ),
    lines(
        "Failed firings",
        "Firings in which some graph failed at the first attempt.",
        (rate("reactor_fire_failures_total", REACTOR, "tenant, reactor"), "{{tenant}}/{{reactor}}"),
        unit="cps",
    ),
    lines(
        "Restarts",
        "Restarts by supervisor or operator.",
        (rate("reactor_restarts_total", REACTOR, "tenant, reactor"), "{{tenant}}/{{reactor}}"),
        unit="cps",
    ),
    lines(
        "Failed writes of state",
        "Checkpoints that could not be written: the store is away, or too slow.",
        (rate("checkpoint_failures_total", REACTOR, "tenant, reactor"), "{{tenant}}/{{reactor}}"),
        unit="cps",
    ),
    lines(
        "Keys",
        "Keys of keyed reactors: those in memory, and those in the store.",
        (f"sum by (tenant, reactor) (tidemill_reactor_keys_active{{{REACTOR}}})", "{{tenant}}/{{reactor}} in memory"),
        (f"sum by (tenant, reactor) (tidemill_reactor_keys_stored{{{REACTOR}}})", "{{tenant}}/{{reactor}} stored"),
    ),
)

ACCUMULATORS = (
    lines(
        "Events",
        "Accepted events per second, by accumulator.",
        (rate("accumulator_events_total", TENANT, "tenant, accumulator"), "{{tenant}}/{{accumulator}}"),
        unit="cps",
    ),
    lines(
        "Time of a push",
        "Average time of pushes that were awaited.",
        (
            f"{rate('push_seconds_sum', TENANT, 'tenant, accumulator')} / "
            f"{rate('push_seconds_count', TENANT, 'tenant, accumulator')}",
            "{{tenant}}/{{accumulator}}",
        ),
        unit="s",
    ),
    lines(
        "Drops",
        "Boundaries and events that were not delivered, by reason.",
        (rate("boundaries_dropped_total", TENANT, "tenant, reason"), "{{tenant}}: {{reason}}"),
        unit="cps",
    ),
    lines(
        "Dead letters",
        "Events and firings that failed for good.",
        (rate("dead_letters_total", TENANT, "tenant, reactor, accumulator"), "{{tenant}}/{{reactor}}{{accumulator}}"),
        unit="cps",
    ),
    lines(
        "Restarts",
        "Restarts by supervisor or operator.",
        (rate("accumulator_restarts_total", TENANT, "tenant, accumulator"), "{{tenant}}/{{accumulator}}"),
        unit="cps",
    ),
    lines(
        "Gaps",
        "Gaps in the events of sources.",
        (rate("accumulator_gaps_total", TENANT, "tenant, accumulator"), "{{tenant}}/{{accumulator}}"),
        unit="cps",
    ),
    lines(
        "Misplaced events",
        "Events in a partition of a Kafka topic that does not hold their keys: the producer uses another partitioner.",
        (rate("accumulator_misplaced_total", TENANT, "tenant, accumulator"), "{{tenant}}/{{accumulator}}"),
        unit="cps",
    ),
)

REQUESTS = (
    lines(
        "Requests",
        "Answered requests per second, by status.",
        (rate("http_requests_total", SERVER, "status"), "{{status}}"),
        unit="reqps",
    ),
    lines(
        "Time of a request",
        "Within which half, and 99 of 100 requests are answered.",
        (quantile("0.5", "http_request_duration_seconds", ""), "median"),
        (quantile("0.99", "http_request_duration_seconds", ""), "99th percentile"),
        unit="s",
    ),
    lines(
        "Slowest routes",
        "Within which 99 of 100 requests are answered, the ten slowest routes.",
        (f"topk(10, {quantile('0.99', 'http_request_duration_seconds', 'method, route')})", "{{method}} {{route}}"),
        unit="s",
    ),
    lines(
        "WebSocket connections",
        "Open connections, by route.",
        (f"sum by (route) (tidemill_websocket_connections{{{SERVER}}})", "{{route}}"),
    ),
    lines(
        "WebSocket frames",
        "Frames per second, by route and direction.",
        (rate("websocket_frames_total", SERVER, "route, direction"), "{{route}} {{direction}}"),
        unit="cps",
    ),
    lines(
        "Readers of the event feed",
        "Pages and programs that follow what happens.",
        (f"sum by (instance) (tidemill_event_feed_readers{{{SERVER}}})", "{{instance}}"),
    ),
)

SERVERS = (
    Panel(
        "Builds",
        "The version of Tidemill and of Python on each server.",
        (Query(f"max by (instance, version, python) (tidemill_build_info{{{SERVER}}})"),),
        kind="table",
    ),
    lines(
        "Uptime",
        "Time since each server was started.",
        (f"max by (instance) (tidemill_uptime_seconds{{{SERVER}}})", "{{instance}}"),
        unit="s",
    ),
    lines(
        "Packages",
        "Loaded and waiting packages, and failures to load or remove one.",
        (f"max by (instance) (tidemill_packages_loaded{{{SERVER}}})", "{{instance}} loaded"),
        (f"max by (instance) (tidemill_packages_waiting{{{SERVER}}})", "{{instance}} waiting"),
        (f"max by (instance) (tidemill_packages_failed{{{SERVER}}})", "{{instance}} failed"),
    ),
)

ROWS: dict[str, tuple[Panel, ...]] = {
    "Overview": OVERVIEW,
    "Runs": RUNS,
    "Scheduler": SCHEDULER,
    "Reactors": REACTORS,
    "Accumulators": ACCUMULATORS,
    "Requests": REQUESTS,
    "Servers": SERVERS,
}
"""The rows of the dashboard, by title."""
