"""`make bench-check`: which changes of a ratio count as a loss."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.check import conclude, describe, with_ratios
from benchmarks.comparison import TOLERANCE, Standing, best_of, compare
from benchmarks.machine import Machine
from benchmarks.result_files import Result, Verdict

MACHINE = Machine(
    processor="any",
    cores=2,
    python="3.11",
    system="Linux",
    sqlite="3.40",
    file_system="ext4",
    measured_on="2026-01-01",
    commit="abc",
)


def make_results(**values: float) -> dict[str, Result]:
    """Return the results of one benchmark, with ratios that must be high."""
    return {"paths": make_result([make_verdict(name, value) for name, value in values.items()])}


def make_result(verdicts: list[Verdict]) -> Result:
    """Return a result with these verdicts."""
    return Result(benchmark="paths", seconds=1.0, machine=MACHINE, verdicts=verdicts)


def make_verdict(name: str, value: float, *, at_least: bool = True, is_ratio: bool = True) -> Verdict:
    """Return a verdict whose bound does not matter."""
    return Verdict(id=name, what=name, value=value, bound=0.0, at_least=at_least, is_ratio=is_ratio, reached=True)


@pytest.mark.parametrize(
    ("at_least", "kept", "now", "standing"),
    [
        (True, 0.8, 0.73, Standing.HELD),
        (True, 0.8, 0.71, Standing.LOST),
        (True, 0.8, 1.6, Standing.HELD),
        (False, 2.0, 2.19, Standing.HELD),
        (False, 2.0, 2.21, Standing.LOST),
        (False, 2.0, 0.5, Standing.HELD),
    ],
)
def test_a_tenth_is_lost_in_the_direction_of_the_bound(
    at_least: bool, kept: float, now: float, standing: Standing
) -> None:
    """A share of the bare loop must not fall, a multiple of a baseline must not rise."""
    before = {"paths": make_result([make_verdict("ratio", kept, at_least=at_least)])}
    after = {"paths": make_result([make_verdict("ratio", now, at_least=at_least)])}

    (found,) = compare(before, after)

    assert found.standing is standing
    assert found.fails == (standing is Standing.LOST)


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.booleans())
def test_a_loss_one_way_is_a_gain_the_other_way(kept: float, now: float, at_least: bool) -> None:
    """No pair of values is lost in both directions of comparison."""
    first = {"paths": make_result([make_verdict("ratio", kept, at_least=at_least)])}
    second = {"paths": make_result([make_verdict("ratio", now, at_least=at_least)])}

    standings = [compare(first, second)[0].standing, compare(second, first)[0].standing]

    assert standings.count(Standing.LOST) <= 1
    if max(kept, now) / min(kept, now) > 1 / (1 - TOLERANCE):
        assert standings.count(Standing.LOST) == 1


def test_a_ratio_that_is_no_longer_measured_fails() -> None:
    """A renamed or removed ratio cannot be lost without notice."""
    (found,) = compare(make_results(old=0.8), {})

    assert found.standing is Standing.MISSING
    assert found.fails
    assert describe(found) == "old is no longer measured (kept: 0.8)"


def test_a_new_ratio_has_nothing_to_lose() -> None:
    """A new ratio is shown, and does not fail the check."""
    found = {one.what: one for one in compare(make_results(old=0.8), make_results(old=0.8, new=0.1))}

    assert found["new"].standing is Standing.NEW
    assert not found["new"].fails


def test_times_are_not_compared() -> None:
    """A time depends on the machine."""
    kept = {"paths": make_result([make_verdict("us", 10, at_least=False, is_ratio=False)])}
    now = {"paths": make_result([make_verdict("us", 99, at_least=False, is_ratio=False)])}

    assert compare(kept, now) == []
    assert with_ratios(kept) == {}


def test_the_best_of_several_runs_counts() -> None:
    """What the code reached once, it can do: the rest was noise. Results that ran once stay."""
    first = make_results(high=0.8, low=0.1) | {"other": make_result([])}
    first["paths"].verdicts.append(make_verdict("times", 3.0, at_least=False))
    second = make_results(high=0.7, low=0.2)
    second["paths"].verdicts.append(make_verdict("times", 4.0, at_least=False))

    best = best_of(first, second)

    assert {one["id"]: one["value"] for one in best["paths"].verdicts} == {"high": 0.8, "low": 0.2, "times": 3.0}
    assert "other" in best


def test_the_conclusion_names_the_loss_and_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    """The output says what was lost, by how much, and how to keep new figures."""
    status = conclude(compare(make_results(share=0.8), make_results(share=0.6)), [])

    assert status == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "paths: share lost 25%: 0.6 now, 0.8 kept." in said
    assert "make bench" in said


def test_a_failed_benchmark_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    """A benchmark that crashes is not a benchmark that held."""
    assert conclude([], ["keys"]) == 1
    assert "The benchmark keys failed." in capsys.readouterr().out
    assert conclude(compare(make_results(share=0.8), make_results(share=0.8)), []) == 0
