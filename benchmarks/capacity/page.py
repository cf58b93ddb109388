"""Writes the tables of docs/explanation/scale.md: unit costs, and each load by arithmetic and by simulation.

python -m benchmarks.capacity.page
"""

from functools import partial
from pathlib import Path

from benchmarks.capacity.arithmetic import StreamPlan, database_cores, event_cost, plan_stream, plan_tasks
from benchmarks.capacity.costs import UnitCosts, read_costs
from benchmarks.capacity.examples import MILLION_EVENTS, SIMULATED_SECONDS, TEN_MILLION_TASKS
from benchmarks.capacity.stream_simulation import simulate_stream
from benchmarks.capacity.task_simulation import simulate_tasks
from benchmarks.written_tables import fill_blocks, render_table

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "scale.md"
GIGABYTE = 1e9
FEWER = (1.0, 0.8, 0.6, 0.5)
"""The shares of the planned hosts that are simulated: what happens with fewer than planned."""


def write_tables(costs: UnitCosts, page: Path = PAGE) -> None:
    """Write the tables into the page, between their markers."""
    page.write_text(fill_tables(page.read_text(), costs))


def fill_tables(text: str, costs: UnitCosts) -> str:
    """Return the text of the page with its tables made from these costs."""
    tables = {"unit costs": _unit_costs, "events": _events, "hosts": _hosts, "tasks": _tasks}
    return fill_blocks(text, {name: partial(render, costs) for name, render in tables.items()})


def _unit_costs(costs: UnitCosts) -> str:
    rows = [
        ["an event in process, through a graph of five nodes", _us(costs.event), ""],
        ["an event of one of 1,000 keys from Kafka, with running state", _us(costs.event_from_kafka), ""],
        ["an event in a WebSocket frame of 256", _us(costs.event_from_websocket), ""],
        [
            "an event committed before it is acknowledged",
            _us(costs.event_committed),
            _us(costs.event_committed_database),
        ],
        ["a changed key that a checkpoint writes", _us(costs.key_stored), _us(costs.key_stored_database)],
        ["a task run on a worker: the leader", _us(costs.task_leader), _us(costs.task_database)],
        ["a task run on a worker: the worker", _us(costs.task_worker), "(the same)"],
    ]
    table = render_table(["what", "processor time of the process", "of PostgreSQL"], rows)
    stored = f"A finished task run leaves {costs.task_bytes:,.0f} bytes in PostgreSQL."
    return f"{table}\n{stored}\nMeasured on {costs.measured_on}: {costs.machine}.\n"


def _events(costs: UnitCosts) -> str:
    load = MILLION_EVENTS
    ways = {
        'from Kafka, `durability="interval"`': (event_cost(load, costs), database_cores(load, costs)),
        "over WebSocket, without keys": (costs.event_from_websocket, 0.0),
        'from Kafka, `durability="boundary"`': (
            event_cost(load, costs, is_committed=True),
            database_cores(load, costs, is_committed=True),
        ),
    }
    rows = [
        [
            name,
            _us(cost),
            f"{1 / cost:,.0f}",
            f"{plan_stream(load, cost).hosts}",
            f"{database:.2g}" if database else "-",
        ]
        for name, (cost, database) in ways.items()
    ]
    return render_table(
        ["way", "cost of an event", "events/s of a host, at most", "hosts", "cores of PostgreSQL"], rows
    )


def _hosts(costs: UnitCosts) -> str:
    load, planned = MILLION_EVENTS, plan_stream(MILLION_EVENTS, event_cost(MILLION_EVENTS, costs))
    rows = []
    for share in FEWER:
        plan = StreamPlan(cost=planned.cost, hosts=round(planned.hosts * share))
        outcome = simulate_stream(load, plan, seconds=SIMULATED_SECONDS, takeover=costs.takeover)
        after = "never" if outcome.caught_up_after is None else f"{outcome.caught_up_after:.1f} s"
        rows.append([str(plan.hosts), f"{outcome.busiest:.0%}", f"{outcome.p99_wait * 1e3:,.0f} ms", after])
    return render_table(["hosts", "busiest host", "p99 of waiting", "a dead host is caught up after"], rows)


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
        ["workers beside the tasks' own code", f"{plan.worker_cores:.1f} cores", ""],
        ["PostgreSQL", f"{plan.database_cores:.1f} cores", ""],
        ["growth of the database", f"{plan.bytes_per_day / GIGABYTE:.0f} GB a day", ""],
    ]
    return render_table(["what", "arithmetic", "simulation"], rows)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.3g} us" if seconds < 1e-3 else f"{seconds * 1e3:.2g} ms"


def main() -> None:
    """Write the tables from the kept costs."""
    write_tables(read_costs())


if __name__ == "__main__":
    main()
