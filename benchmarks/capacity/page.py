"""Writes the tables of docs/explanation/scale.md: unit costs, and each load by arithmetic and by simulation."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from benchmarks.capacity.arithmetic import StreamLoad, StreamPlan, database_cores, event_cost, plan_stream, plan_tasks
from benchmarks.capacity.costs import UnitCosts, read_costs
from benchmarks.capacity.examples import MILLION_EVENTS, SEEDS, SIMULATED_SECONDS, TEN_MILLION_TASKS
from benchmarks.capacity.stream_simulation import simulate_stream
from benchmarks.capacity.task_simulation import simulate_tasks
from benchmarks.written_tables import fill_blocks, render_table
from tidemill.kernel.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "scale.md"
GIGABYTE = 1e9
FEWER = (1.0, 0.8, 0.6, 0.5)
"""The shares of the planned hosts that are simulated: what happens with fewer than planned."""
LATE = float("inf")
"""When a backlog is processed that was not within the simulated time."""


def write_tables() -> None:
    """Write the tables of the kept costs into the page, between their markers."""
    PAGE.write_text(fill_tables(PAGE.read_text(), read_costs()))


def fill_tables(text: str, costs: UnitCosts) -> str:
    """Return the text of the page with its tables made from these costs."""
    tables = {"unit costs": _unit_costs, "events": _events, "hosts": _hosts, "tasks": _tasks}
    return fill_blocks(text, {name: partial(render, costs) for name, render in tables.items()})


def _unit_costs(costs: UnitCosts) -> str:
    rows = [
        ["an event in process, through a graph of five nodes", _us(costs.event), ""],
        [
            "the same, committed before it is acknowledged",
            _us(costs.event_committed),
            _us(costs.event_committed_database),
        ],
        ["an event of one of 1,000 keys from Kafka, with running state", _us(costs.event_from_kafka), ""],
        ["a changed key that a checkpoint writes", _us(costs.key_stored), _us(costs.key_stored_database)],
        ["an event in a WebSocket frame of 256, through a graph of one node", _us(costs.event_from_websocket), ""],
        ["a task run on a worker: the leader", _us(costs.task_leader), _us(costs.task_database)],
        ["a task run on a worker: the worker", _us(costs.task_worker), "(the same)"],
    ]
    table = render_table(["what", "processor time of the process", "of PostgreSQL"], rows)
    lines = [
        f"A finished task run leaves {costs.task_bytes:,.0f} bytes in PostgreSQL.",
        f"An active key with small values takes {costs.key_bytes:,.0f} bytes of memory, an idle one "
        f"{costs.idle_key_bytes:.0f}.",
        f"Measured on {costs.measured_on}: {costs.machine}.",
    ]
    return table + "\n" + "\n".join(lines) + "\n"


def _events(costs: UnitCosts) -> str:
    load = MILLION_EVENTS
    default = replace(load, checkpoint_interval=Settings().checkpoint_interval)
    spread = replace(load, keys=round(load.rate * load.checkpoint_interval))
    rows = [
        _kafka_row('from Kafka, `durability="interval"`', load, costs),
        _kafka_row(f"the same, a checkpoint every {default.checkpoint_interval * 1e3:.0f} ms", default, costs),
        _kafka_row("the same, each event of another key", spread, costs),
        _kafka_row('from Kafka, `durability="boundary"`', load, costs, is_committed=True),
        _stream_row(f"over WebSocket to {load.partitions} reactors without `key=`", load, costs.event_from_websocket),
    ]
    return render_table(
        ["way", "cost of an event", "events/s of a host, at most", "hosts", "cores of PostgreSQL"], rows
    )


def _kafka_row(way: str, load: StreamLoad, costs: UnitCosts, *, is_committed: bool = False) -> list[str]:
    cost = event_cost(load, costs, is_committed=is_committed)
    database = database_cores(load, costs, is_committed=is_committed)
    return _stream_row(way, load, cost, f"{database:.1f}" if database >= 1 else f"{database:.2f}")


def _stream_row(way: str, load: StreamLoad, cost: float, database: str = "-") -> list[str]:
    try:
        hosts = str(plan_stream(load, cost).hosts)
    except ValueError:
        hosts = f"more than {load.partitions}"
    return [way, _us(cost), f"{1 / cost:,.0f}", hosts, database]


def _hosts(costs: UnitCosts) -> str:
    load, planned = MILLION_EVENTS, plan_stream(MILLION_EVENTS, event_cost(MILLION_EVENTS, costs))
    rows = []
    for share in FEWER:
        plan = StreamPlan(cost=planned.cost, hosts=round(planned.hosts * share))
        outcomes = [
            simulate_stream(load, plan, seconds=SIMULATED_SECONDS, takeover=costs.takeover, seed=seed)
            for seed in range(SEEDS)
        ]
        busiest = [f"{value:.0%}" for value in _median_and_worst([one.busiest for one in outcomes])]
        waits = [f"{value * 1e3:,.0f} ms" for value in _median_and_worst([one.p99_wait for one in outcomes])]
        ends = [LATE if one.caught_up_after is None else one.caught_up_after for one in outcomes]
        rows.append([f"{plan.hosts} ({share:.0%})", *busiest, *waits, *map(_after, _median_and_worst(ends))])
    head = ["hosts", "busiest host", "worst", "p99 of waiting", "worst", "a dead host is caught up after", "worst"]
    source = f"Medians, and the worst of {SEEDS} simulated minutes that differ in their random numbers."
    return f"{render_table(head, rows)}\n{source}\n"


def _median_and_worst(values: Sequence[float]) -> tuple[float, float]:
    """Return a value that at least half of all seeds reach, and the one that all do."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[-1]


def _after(seconds: float) -> str:
    return f"not in {SIMULATED_SECONDS:.0f} s" if seconds == LATE else f"{seconds:.1f} s"


def _tasks(costs: UnitCosts) -> str:
    load = TEN_MILLION_TASKS
    plan = plan_tasks(load, costs)
    outcome = simulate_tasks(load, plan, costs)
    rows = [
        ["the leader, in the busiest hour", f"{plan.leader_share:.0%} of a core", f"{outcome.leader_share:.0%}"],
        ["the burst is planned after", f"{plan.burst_seconds:.0f} s", f"{outcome.burst_seconds:.0f} s"],
        [
            "the last task of the burst begins after",
            f"{plan.burst_seconds + load.patience:.0f} s at most",
            f"{outcome.latest_start:.0f} s",
        ],
        ["slots of workers", f"{plan.slots:,}", f"{outcome.most_running:,} used"],
        ["workers without the tasks' own code, in the busiest hour", _cores(plan.worker_cores), ""],
        ["the same, during the burst", *_both(plan.worker_cores_in_burst, outcome.most_planned * costs.task_worker)],
        ["PostgreSQL, in the busiest hour", _cores(plan.database_cores), ""],
        [
            "the same, during the burst",
            *_both(plan.database_cores_in_burst, outcome.most_planned * costs.task_database),
        ],
        ["growth of the database", f"{plan.bytes_per_day / GIGABYTE:.0f} GB a day", ""],
    ]
    return render_table(["what", "arithmetic", "simulation"], rows)


def _both(*cores: float) -> list[str]:
    return [_cores(one) for one in cores]


def _cores(number: float) -> str:
    return f"{number:.1f} cores"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.3g} us" if seconds < 1e-3 else f"{seconds * 1e3:.2g} ms"
