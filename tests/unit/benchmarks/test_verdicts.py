"""Verdicts of benchmarks: what must be a ratio is one, and both of its sides do the same work."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.bare_driver import ROWS_PER_COMMIT, BareDriver
from benchmarks.bench_cli import in_turns, to_exit
from benchmarks.bench_event_path import light, light_by_hand
from benchmarks.bench_limits import flood
from benchmarks.bench_long_way import CEILING, FOLLOWED_CEILING, KINDS, report
from benchmarks.bench_pushes import Durable, report_durable
from benchmarks.bench_workflows import idleness
from benchmarks.market_maker import ACCUMULATE, make_event


def test_every_kind_of_reactor_has_a_ceiling() -> None:
    """A kind without a bound could become slower without notice."""
    kinds = [make() for make in KINDS]

    found = report([(kind, {"bare": [1.0], "tidemill": [2.0]}) for kind in kinds])

    assert [one["what"] for one in found] == [f"{kind.name}, times the bare loop" for kind in kinds]
    assert {one["bound"] for one in found} == {CEILING, FOLLOWED_CEILING}
    assert all(one["is_ratio"] and one["reached"] for one in found)
    assert not any(one["reached"] for one in report([(kind, {"bare": [1.0], "tidemill": [6.0]}) for kind in kinds]))


def test_durable_pushes_are_compared_with_the_bare_driver(tmp_path: Path) -> None:
    """The share is a ratio of CPU times: neither another machine nor another process changes it."""
    with closing(BareDriver(tmp_path)) as driver:
        driver.cpu, driver.wall = [1e-6] * 5, [1e-6] * 5
        fast, slow = (Durable([cost] * 5, [cost] * 5, driver) for cost in (4e-6, 40e-6))

        held, lost = (report_durable(in_memory, fast)[-1] for in_memory in (fast, slow))

    assert (held["value"], held["reached"], held["is_ratio"]) == (pytest.approx(0.25), True, True)
    assert (lost["value"], lost["reached"]) == (pytest.approx(0.025), False)


def test_the_bare_driver_commits_rows_in_groups(tmp_path: Path) -> None:
    """It counts what a row costs, in each of its rounds."""
    with closing(BareDriver(tmp_path)) as driver:
        driver.run(3 * ROWS_PER_COMMIT)
        driver.run(1)

        (rows,) = driver.connection.execute("SELECT count(*) FROM raw").fetchone()

    assert rows == 4 * ROWS_PER_COMMIT
    assert len(driver.wall) == len(driver.cpu) == 2
    assert min(driver.wall) > 0


def test_the_lighter_nodes_do_the_same_work_by_hand() -> None:
    """The bare loop calls what the graph calls, with the same result."""
    for first in range(0, 400, 10):
        events = (make_event(first + number, first) for number in range(3))  # one of each feed
        book, price, held = (ACCUMULATE[source](event) for source, event in events)

        result = light(orderbook=book, pricing=price, exposure=held)

        assert result.outputs == {"is_open": light_by_hand(book, price, held)}


def test_a_flood_has_a_share_of_a_bare_slot() -> None:
    """Both sides take the same number of events in turns."""
    found = asyncio.run(flood(0.01))

    assert found.accepted > 0
    assert 0 < found.share < 1


def test_the_memory_of_an_idle_node_is_that_of_a_fresh_process(tmp_path: Path) -> None:
    """Q: an idle node has under 80 MB, whatever the benchmark did before in its own process."""
    ballast = bytearray(200_000_000)
    share, memory = idleness(tmp_path, 0.1)

    assert len(ballast) > memory["bound"] * 1e6
    assert memory["what"] == "idle node, MB"
    assert 10 < memory["value"] < memory["bound"] == 80
    assert share["what"] == "idle node, % of a core"


def test_the_first_start_of_a_process_does_not_count() -> None:
    """It compiles, which happens once in the life of an installation."""
    found = in_turns({"pass": lambda: to_exit("-c", "pass")}, rounds=2)["pass"]

    assert len(found.wall) == len(found.cpu) == 2
    assert min(found.cpu) > 0
    assert found.milliseconds > 0
