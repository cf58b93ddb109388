"""Capacity: the arithmetic of docs/explanation/scale.md holds in the simulation, and the page shows both."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from benchmarks.capacity import page, stream_simulation
from benchmarks.capacity.arithmetic import (
    UTILISATION,
    StreamLoad,
    StreamPlan,
    TaskLoad,
    database_cores,
    event_cost,
    plan_stream,
    plan_tasks,
)
from benchmarks.capacity.costs import read_costs
from benchmarks.capacity.examples import MILLION_EVENTS, SEEDS, SIMULATED_SECONDS
from benchmarks.capacity.page import PAGE, fill_tables
from benchmarks.capacity.stream_simulation import simulate_stream
from benchmarks.capacity.task_simulation import simulate_tasks
from benchmarks.written_tables import BLOCK

RESERVE = 0.95 - UTILISATION  # of a core: what bursts and uneven keys may use of it


def test_the_page_shows_the_kept_costs() -> None:
    """Q-3: the page has the figures of benchmarks/results/; a page that was not written again is found."""
    text = PAGE.read_text()

    assert fill_tables(text, read_costs()) == text, "run `python -m benchmarks.page`"


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_the_page_can_be_written_whatever_was_measured(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A faster or slower machine changes the tables; what the text says does not depend on them."""
    monkeypatch.setattr(page, "SEEDS", 1)
    costs = read_costs()
    times = {name: getattr(costs, name) * factor for name in costs.__struct_fields__ if _is_time(name)}

    text = fill_tables(PAGE.read_text(), replace(costs, **times))

    assert BLOCK.sub("", text) == BLOCK.sub("", PAGE.read_text())
    assert all(figure in text for figure in (f"{times['event_from_kafka'] * 1e6:.3g} us", "| cores of PostgreSQL |"))


def _is_time(name: str) -> bool:
    return name.startswith(("event", "key_stored", "task")) and name != "task_bytes"


@pytest.mark.parametrize("seed", range(20))
def test_planned_hosts_keep_up_and_survive_a_death(seed: int) -> None:
    """With the planned hosts no host is full; the backlog of a dead one is processed soon after the take-over."""
    rng = Random(seed)
    load = StreamLoad(rate=10 ** rng.uniform(3, 6.3), partitions=128, hottest_key=rng.uniform(0, 0.005))
    plan = plan_stream(load, cost=rng.uniform(2e-6, 2e-5))

    outcome = simulate_stream(load, plan, seconds=5.0, takeover=1.0, seed=seed)

    assert outcome.busiest < UTILISATION + RESERVE
    assert plan.hosts == 1 or outcome.caught_up_after is not None


@pytest.mark.parametrize("seed", range(5))
def test_half_the_planned_hosts_do_not_keep_up(seed: int) -> None:
    """The arithmetic does not ask for twice of what is needed."""
    load = StreamLoad(rate=500_000, partitions=128, hottest_key=0.001)
    plan = plan_stream(load, 2e-5)

    half = simulate_stream(load, StreamPlan(cost=plan.cost, hosts=plan.hosts // 2), seconds=5.0, seed=seed)

    assert half.busiest > 1.0


def test_the_plan_of_the_page_survives_a_death_with_every_seed() -> None:
    """One seed may be lucky: the plan must hold with all of them, and half of its hosts with none."""
    costs = read_costs()
    plan = plan_stream(MILLION_EVENTS, event_cost(MILLION_EVENTS, costs))
    half = replace(plan, hosts=plan.hosts // 2)

    planned, halved = (
        [
            simulate_stream(MILLION_EVENTS, one, seconds=SIMULATED_SECONDS, takeover=costs.takeover, seed=seed)
            for seed in range(SEEDS)
        ]
        for one in (plan, half)
    )

    assert all(one.caught_up_after is not None for one in planned)
    assert not any(one.caught_up_after for one in halved)


def test_a_wait_is_not_made_by_the_length_of_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts with spare capacity have no backlog, and finer slices show the same waits."""
    load = StreamLoad(rate=200_000, partitions=64, hottest_key=0.0)
    full, spare = (StreamPlan(cost=2e-5, hosts=hosts) for hosts in (3, 8))

    def waits() -> list[float]:
        return [simulate_stream(load, plan, seconds=60.0).p99_wait for plan in (full, spare)]

    coarse = waits()
    monkeypatch.setattr(stream_simulation, "SLICES_PER_SECOND", 100)
    monkeypatch.setattr(stream_simulation, "SLICE", 0.01)
    fine = waits()

    assert coarse[1] == 0.0
    assert fine[1] < 0.001
    assert coarse[0] > 10.0
    assert fine[0] == pytest.approx(coarse[0], rel=0.2)


def test_checkpoints_write_each_changed_key_once() -> None:
    """The database follows the keys and the interval, and never writes more keys than there are events."""
    costs, load = (
        read_costs(),
        StreamLoad(rate=1e6, partitions=8, hottest_key=0.0, keys=20_000, checkpoint_interval=1.0),
    )

    assert load.keys_stored == 20_000
    assert replace(load, checkpoint_interval=0.2).keys_stored == 100_000
    assert replace(load, rate=5_000.0).keys_stored == 5_000
    assert database_cores(load, costs) == pytest.approx(20_000 * costs.key_stored_database)
    assert database_cores(load, costs, is_committed=True) > load.rate * costs.event_committed_database
    assert event_cost(load, costs) == pytest.approx(costs.event_from_kafka + costs.key_stored / 50)


def test_no_part_of_the_cost_of_an_event_is_counted_twice() -> None:
    """A committed event is ingested and fires as well, which the cost of an event from Kafka contains already."""
    costs, load = read_costs(), MILLION_EVENTS

    added = event_cost(load, costs, is_committed=True) - event_cost(load, costs)

    assert added == pytest.approx(costs.event_committed - costs.event)


def test_a_hot_key_cannot_be_spread() -> None:
    """A key is processed on one core: more hosts do not help, and the plan says so."""
    load = StreamLoad(rate=1_000_000, partitions=1_000, hottest_key=0.1)

    with pytest.raises(ValueError, match=r"a key with 10\.00% of them"):
        plan_stream(load, 1e-5)


@settings(max_examples=15, deadline=None)
@given(
    per_day=st.floats(1e4, 2e7),
    on_the_hour=st.floats(0.0, 0.5),
    duration=st.floats(5.0, 120.0),
    seed=st.integers(0, 1000),
)
def test_planned_slots_run_a_burst_in_time(per_day: float, on_the_hour: float, duration: float, seed: int) -> None:
    """The leader plans a burst as fast as computed, and the last of its tasks begins within the patience after that."""
    costs = read_costs()
    load = TaskLoad(per_day=per_day, busiest_hour=0.1, on_the_hour=on_the_hour, duration=duration, patience=300.0)
    plan = plan_tasks(load, costs)

    outcome = simulate_tasks(load, plan, costs, seed=seed)

    assert outcome.burst_seconds <= plan.burst_seconds + 2
    assert outcome.latest_start <= load.patience + plan.burst_seconds
    assert outcome.leader_share == pytest.approx(plan.leader_share, rel=0.1, abs=0.001)
    assert outcome.most_running <= plan.slots


def test_slots_that_the_leader_cannot_fill_are_not_planned() -> None:
    """More slots than starts per second times the duration of a task stay empty."""
    costs = read_costs()
    load = TaskLoad(per_day=1e7, busiest_hour=0.1, on_the_hour=0.5, duration=30.0, patience=0.0)

    assert plan_tasks(load, costs).slots == math.ceil(load.duration / costs.task_leader)
    assert plan_tasks(replace(load, patience=1e9), costs).slots < load.duration / costs.task_leader


def test_the_burst_needs_more_than_the_average_of_its_hour() -> None:
    """While the leader plans as fast as it can, workers and database do more than on average."""
    costs = read_costs()
    load = TaskLoad(per_day=1e7, busiest_hour=0.1, on_the_hour=0.2, duration=30.0, patience=300.0)
    plan = plan_tasks(load, costs)

    assert plan.database_cores_in_burst == pytest.approx(costs.task_database / costs.task_leader)
    assert plan.database_cores_in_burst > plan.database_cores
    assert plan.worker_cores_in_burst > plan.worker_cores
    assert simulate_tasks(load, plan, costs).most_planned == pytest.approx(1 / costs.task_leader)
