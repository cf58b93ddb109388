"""Receipts of a push in their stored form."""

from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.graphs.outcomes import Rejection
from tidemill.graphs.pushes import ReceiptTally, decode_runs, encode_runs

NUMBERS, REASONS = st.integers(0, 5), st.none() | st.sampled_from(["a", "b", ""])
OUTCOMES = st.sampled_from(["emitted", "suppressed", "buffered", "rejected", "dead_lettered"])
CODES = st.sampled_from(["queue_full", "not_stored"])
RECEIPTS = st.one_of(
    st.builds(tm.Receipt, st.booleans(), NUMBERS, OUTCOMES, REASONS),
    st.builds(Rejection, st.just(False), NUMBERS, st.just("rejected"), REASONS, CODES),
)


@given(st.lists(RECEIPTS, max_size=30))
def test_receipts_come_back_as_they_were(receipts: list[tm.Receipt]) -> None:
    """G-4: a repeated push gets the same answer."""
    runs = tm.PushSummary.of(receipts).runs
    assert decode_runs(encode_runs(runs)) == runs
    found = tm.PushSummary(runs).receipts
    assert [(type(one), one) for one in found] == [(type(one), one) for one in receipts]


def test_a_batch_without_problems_takes_a_few_bytes() -> None:
    receipts = [tm.Receipt(True, number, "emitted") for number in range(1, 10_001)]
    assert len(encode_runs(tm.PushSummary.of(receipts).runs)) < 32


def test_a_reason_that_no_store_can_hold_is_replaced() -> None:
    summary = tm.PushSummary.of([tm.Receipt(False, 0, "rejected", "lone \ud800")])
    (found,) = decode_runs(encode_runs(summary.runs))
    assert summary.receipts[0].reason == "lone \ud800"
    assert found.reason == "lone \\ud800"


def test_a_summary_counts_and_lists_problems() -> None:
    """G-4."""
    outcomes = ["emitted", "dead_lettered", "emitted", "suppressed", "rejected"]
    receipts = tuple(
        tm.Receipt(outcome in ("emitted", "suppressed"), number, outcome, f"why {number}")
        for number, outcome in enumerate(outcomes)
    )
    summary = tm.PushSummary.of(receipts)
    assert summary.counts == {"emitted": 2, "dead_lettered": 1, "suppressed": 1, "rejected": 1}
    assert summary.problems == [
        tm.PushProblem(1, "dead_lettered", "why 1"),
        tm.PushProblem(4, "rejected", "why 4"),
    ]
    assert (summary.first_sequence, summary.last_sequence) == (0, 2)
    assert (tm.PushSummary(()).first_sequence, tm.PushSummary(()).last_sequence) == (None, None)


@given(st.lists(RECEIPTS, max_size=30), st.data())
def test_receipts_that_are_added_in_parts_make_the_same_runs(receipts: list[tm.Receipt], data: st.DataObject) -> None:
    """A summary is what its receipts are, not how they were collected."""
    tally, start = ReceiptTally(), 0
    while start < len(receipts):
        end = data.draw(st.integers(start + 1, len(receipts)))
        tally.extend(tm.PushSummary.of(receipts[start:end]).runs)
        start = end
    summary = tm.PushSummary(tuple(tally.runs))
    assert (summary, tally.count) == (tm.PushSummary.of(receipts), len(receipts))
    assert [problem.index for problem in summary.problems] == [
        index for index, one in enumerate(receipts) if one.outcome in ("rejected", "dead_lettered")
    ]
    emitted = [one.sequence for one in receipts if one.outcome == "emitted"]
    assert (summary.first_sequence, summary.last_sequence) == ((emitted[0], emitted[-1]) if emitted else (None, None))


def test_a_tally_adds_the_numbers_of_boundaries_to_the_run_before() -> None:
    """One run, however many loops have emitted it; no receipt for none."""
    tally = ReceiptTally()
    tally.add_emitted(1, 0)
    tally.add_emitted(1, 3)
    tally.add(tm.Receipt(True, 4, "emitted"))
    tally.add_emitted(5, 2)
    tally.add_emitted(9, 1)
    assert [(run.sequence, run.count) for run in tally.runs] == [(1, 6), (9, 1)]
