"""Receipts of a push in their stored form."""

from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.graphs.pushes import decode_receipts, encode_receipts
from tidemill.graphs.result import Rejection

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
    found = decode_receipts(encode_receipts(receipts))
    assert [(type(one), one) for one in found] == [(type(one), one) for one in receipts]


def test_a_batch_without_problems_takes_a_few_bytes() -> None:
    receipts = [tm.Receipt(True, number, "emitted") for number in range(1, 10_001)]
    assert len(encode_receipts(receipts)) < 32


def test_a_reason_that_no_store_can_hold_is_replaced() -> None:
    (found,) = decode_receipts(encode_receipts([tm.Receipt(False, 0, "rejected", "lone \ud800")]))
    assert found.reason == "lone \\ud800"


def test_a_summary_counts_and_lists_problems() -> None:
    """G-4."""
    outcomes = ["emitted", "dead_lettered", "emitted", "suppressed", "rejected"]
    receipts = tuple(
        tm.Receipt(outcome in ("emitted", "suppressed"), number, outcome, f"why {number}")  # type: ignore[arg-type]
        for number, outcome in enumerate(outcomes)
    )
    summary = tm.PushSummary(receipts)
    assert summary.counts == {"emitted": 2, "dead_lettered": 1, "suppressed": 1, "rejected": 1}
    assert summary.problems == [
        tm.PushProblem(1, "dead_lettered", "why 1"),
        tm.PushProblem(4, "rejected", "why 4"),
    ]
    assert (summary.first_sequence, summary.last_sequence) == (0, 2)
    assert (tm.PushSummary(()).first_sequence, tm.PushSummary(()).last_sequence) == (None, None)
