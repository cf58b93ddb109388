"""The comparison with other libraries: contestants in processes of their own, which must all do the same work."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers import graph_comparison, workflow_comparison
from benchmarks.peers.contestants import Contestant, ContestantError, running
from benchmarks.peers.environments import pins_of, version_of
from benchmarks.peers.graph_comparison import EVALUATED, PACED, Entry, check_work
from benchmarks.peers.run_work import LENGTH, WIDTH
from benchmarks.peers.workflow_comparison import FIVE, summarise

EVENTS = 500
OWN = ("bare", "tidemill")


@pytest.fixture(scope="module")
def contestants() -> Iterator[dict[str, Contestant]]:
    """The programs that need no other library."""
    with running({name: (name,) for name in OWN}, {}) as found:
        yield found


@pytest.mark.parametrize("entry", [entry for entry in EVALUATED if entry.program in OWN], ids=lambda entry: entry.name)
def test_each_way_evaluates_every_event_with_the_same_decisions(
    contestants: dict[str, Contestant], entry: Entry
) -> None:
    """Every round begins anew, so the second one does the same work as the first."""
    for _ in range(2):
        check_work(entry, EVENTS, contestants[entry.program].do(entry.work, EVENTS))


@pytest.mark.parametrize("entry", [entry for entry in PACED if entry.program in OWN], ids=lambda entry: entry.name)
def test_paced_events_all_arrive(contestants: dict[str, Contestant], entry: Entry) -> None:
    """Two events come before all feeds have spoken."""
    found = contestants[entry.program].do(entry.work, 100)

    assert found["evaluations"] == 98
    assert 0 < found["p50"] <= found["p99"]


@pytest.mark.parametrize("change", [{"evaluations": EVENTS - 3}, {"checksum": 0.0}])
def test_other_work_is_refused(contestants: dict[str, Contestant], change: dict[str, float]) -> None:
    """A contestant that leaves out an event, or decides otherwise, gets no figure."""
    found = contestants["bare"].do("loop", EVENTS) | change

    with pytest.raises(ContestantError, match="bare did other work than the bare loop"):
        check_work(Entry("bare", "bare", "loop"), EVENTS, found)


def test_a_contestant_that_ends_is_reported_with_its_last_words() -> None:
    """The log of the process says why."""
    with pytest.raises(ContestantError, match=r"missing has ended:(.|\n)*No module named"):
        Contestant("missing", sys.executable, "missing", ()).__enter__()


def test_a_peer_that_does_not_start_is_left_out() -> None:
    """The others are compared."""
    with running({"bare": ("bare",), "missing": ("missing",)}, {"missing": Path(sys.executable)}) as found:
        assert list(found) == ["bare"]


def test_workflow_engines_run_every_task(tmp_path: Path) -> None:
    """Each piece of work runs all of its tasks, and gives a figure."""
    with running({"tidemill": (workflow_comparison.TIDEMILL, f"sqlite:///{tmp_path}/runs.db")}, {}) as found:
        figures = {work: found["tidemill"].do(work, 1) for work in sorted(found["tidemill"].works)}

    assert {work: one.get("tasks") for work, one in figures.items()} == {
        "five": FIVE,
        "chain": LENGTH,
        "fan": WIDTH + 2,
        "start": None,
    }
    row = summarise("Tidemill", {work: [one] for work, one in figures.items()})
    assert set(row) == {"name", "five", "chain", "fan", "p50", "p99"}


@pytest.mark.parametrize("name", [*graph_comparison.PEERS, *workflow_comparison.PEERS])
def test_each_peer_is_pinned_and_has_a_program(name: str) -> None:
    """`make bench PEERS=1` measures the same versions everywhere."""
    lines = [line for line in pins_of(name).read_text().splitlines() if not line.startswith("#")]

    assert all("==" in line for line in lines)
    assert version_of(name)
    assert pins_of(name).with_name(f"{name}_peer.py").exists()
