"""Trigger rules: every rule over every multiset of up to four upstream states.

Twice: against a table for one upstream, and against the conditions of Airflow's scheduler for any number. Those are
written here as Airflow thinks of them: what settles a task without running it, and what must hold for it to run.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement, permutations

import pytest

from tidemill.workflows.rules import RULES, Verdict
from tidemill.workflows.states import TaskState

RUN, WAIT, SKIP, FAIL = Verdict.RUN, Verdict.WAIT, Verdict.SKIP, Verdict.FAIL
ACTIVE = [one for one in TaskState if not one.is_terminal]
ENDED = [one for one in TaskState if one.is_terminal]

#                                success failed skipped upstream_failed cancelled, and every state that has not ended
ALONE = {
    "all_success":                 (RUN, FAIL, SKIP, FAIL, FAIL, WAIT),
    "all_failed":                  (SKIP, RUN, SKIP, RUN, RUN, WAIT),
    "all_done":                    (RUN, RUN, RUN, RUN, RUN, WAIT),
    "one_success":                 (RUN, FAIL, SKIP, FAIL, FAIL, WAIT),
    "one_failed":                  (SKIP, RUN, SKIP, RUN, RUN, WAIT),
    "one_done":                    (RUN, RUN, SKIP, SKIP, RUN, WAIT),
    "none_failed":                 (RUN, FAIL, RUN, FAIL, FAIL, WAIT),
    "none_failed_min_one_success": (RUN, FAIL, SKIP, FAIL, FAIL, WAIT),
    "none_skipped":                (RUN, RUN, SKIP, RUN, RUN, WAIT),
    "all_skipped":                 (SKIP, SKIP, RUN, SKIP, SKIP, WAIT),
    "always":                      (RUN, RUN, RUN, RUN, RUN, RUN),
}  # fmt: skip


class Upstreams:
    """Airflow's counts. A cancelled task is a failed one there."""

    def __init__(self, states: Sequence[TaskState]) -> None:
        count = Counter("failed" if one == "cancelled" else one.value for one in states)
        self.all = len(states)
        self.success, self.skipped = count["success"], count["skipped"]
        self.failed, self.upstream_failed = count["failed"], count["upstream_failed"]
        self.any_failed = self.failed + self.upstream_failed
        self.done = self.success + self.skipped + self.any_failed
        self.complete = self.done == self.all


Condition = Callable[[Upstreams], object]

FAILS: dict[str, Condition] = {
    "all_success": lambda up: up.any_failed,
    "one_success": lambda up: up.complete and not up.success and up.skipped < up.all,
    "none_failed": lambda up: up.any_failed,
    "none_failed_min_one_success": lambda up: up.any_failed,
}
SKIPS: dict[str, Condition] = {
    "all_success": lambda up: up.skipped,
    "all_failed": lambda up: up.success or up.skipped,
    "one_success": lambda up: up.skipped == up.all,
    "one_failed": lambda up: up.complete and not up.any_failed,
    "one_done": lambda up: up.complete and not (up.failed or up.success),
    "none_failed_min_one_success": lambda up: up.skipped == up.all,
    "none_skipped": lambda up: up.skipped,
    "all_skipped": lambda up: up.success or up.any_failed,
}
HOLDS: dict[str, Condition] = {
    "all_success": lambda up: up.success == up.all,
    "all_failed": lambda up: up.any_failed == up.all,
    "all_done": lambda up: up.complete,
    "one_success": lambda up: up.success,
    "one_failed": lambda up: up.any_failed,
    "one_done": lambda up: up.success or up.failed,
    "none_failed": lambda up: up.success + up.skipped == up.all,
    "none_failed_min_one_success": lambda up: up.success + up.skipped == up.all,
    "none_skipped": lambda up: up.complete and not up.skipped,
    "all_skipped": lambda up: up.skipped == up.all,
    "always": lambda up: True,
}


def never(up: Upstreams) -> object:
    """Return that a rule has no such condition."""
    return False


def airflow(rule: str, states: Sequence[TaskState]) -> Verdict:
    """Return what Airflow's scheduler would do with a task."""
    up = Upstreams(states)
    if FAILS.get(rule, never)(up):
        return FAIL
    if SKIPS.get(rule, never)(up):
        return SKIP
    return RUN if HOLDS[rule](up) else WAIT


def test_the_rules_are_those_of_airflow() -> None:
    """Tasks: eleven trigger rules; those that tidy up are two of them."""
    assert set(RULES) == set(ALONE) == set(HOLDS)
    assert {name for name, rule in RULES.items() if rule.is_cleanup} == {"all_done", "always"}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_over_one_upstream_is_as_the_table_says(rule: str) -> None:
    """leoflow 9: rule x state, written out."""
    expected = dict(zip(("success", "failed", "skipped", "upstream_failed", "cancelled"), ALONE[rule], strict=False))
    found = {one.value: RULES[rule].evaluate([one]) for one in TaskState}
    assert found == expected | {one.value: ALONE[rule][-1] for one in ACTIVE}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_airflows_over_every_multiset(rule: str, size: int) -> None:
    """leoflow 9: rule x multiset of upstream states -> run, skip, upstream_failed or wait."""
    for states in combinations_with_replacement(TaskState, size):
        assert RULES[rule].evaluate(states) is airflow(rule, states), (rule, states)


@pytest.mark.parametrize("rule", RULES)
def test_the_order_of_the_upstreams_does_not_matter(rule: str) -> None:
    """leoflow 11: a verdict depends on what stands before, not on how it is listed."""
    for states in combinations_with_replacement(TaskState, 3):
        assert len({RULES[rule].evaluate(listed) for listed in permutations(states)}) == 1


@pytest.mark.parametrize("rule", RULES)
def test_a_root_may_run_under_any_rule(rule: str) -> None:
    """leoflow 11: root tasks are scheduled on the first tick."""
    assert RULES[rule].evaluate([]) is RUN


@pytest.mark.parametrize("other", ACTIVE)
@pytest.mark.parametrize(
    ("rule", "state"),
    [
        ("one_success", "success"),
        *(("one_failed", state) for state in ("failed", "upstream_failed", "cancelled")),
        *(("one_done", state) for state in ("success", "failed", "cancelled")),
    ],
)
def test_some_rules_fire_while_others_still_run(rule: str, state: str, other: TaskState) -> None:
    """leoflow 10: one_success, one_failed and one_done do not wait for the rest."""
    assert RULES[rule].evaluate([other, TaskState(state), other]) is RUN


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule not in ("one_success", "one_failed", "one_done", "always")]
)
def test_the_other_rules_run_nothing_before_all_have_ended(rule: str) -> None:
    """leoflow 10, cloacina 107: dependents wait for terminal states."""
    for states in combinations_with_replacement(ENDED, 3):
        assert RULES[rule].evaluate([*states, TaskState.RUNNING]) is not RUN


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_waits_for_what_has_ended(rule: str) -> None:
    """No run gets stuck: once every upstream has ended there is a verdict."""
    for size in (1, 2, 3, 4):
        assert all(RULES[rule].evaluate(states) is not WAIT for states in combinations_with_replacement(ENDED, size))


@pytest.mark.parametrize("rule", RULES)
def test_a_verdict_stays_what_it_is_when_the_rest_ends(rule: str) -> None:
    """leoflow 11: when the planner looks does not matter, but for all_success: a failure after its skip is too late."""
    for size in (1, 2, 3):
        for states in combinations_with_replacement(ENDED, size):
            early = RULES[rule].evaluate([*states, TaskState.RUNNING])
            late = {RULES[rule].evaluate([*states, last]) for last in ENDED}
            too_late = {FAIL} if rule == "all_success" and early is SKIP else set()
            assert early is WAIT or late - too_late == {early}, (rule, states)


@pytest.mark.parametrize("rule", RULES)
def test_a_retry_or_a_deferral_is_not_an_end(rule: str) -> None:
    """leoflow 12, cloacina 110: a task that will be tried again is judged like one that runs."""
    for states in combinations_with_replacement(ENDED, 2):
        while_running = RULES[rule].evaluate([*states, TaskState.RUNNING])
        assert RULES[rule].evaluate([*states, TaskState.UP_FOR_RETRY]) is while_running
        assert RULES[rule].evaluate([*states, TaskState.DEFERRED]) is while_running
