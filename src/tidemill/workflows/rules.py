"""Trigger rules: each turns the states of a task's upstream tasks into a verdict on the task.

A stored spec names its rule. Everything else that depends on the rule is an attribute of the `Rule` of that name.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

import msgspec

from tidemill.workflows.states import TaskState


class Verdict(Enum):
    """The decision of a rule on one task."""

    RUN = "run"
    WAIT = "wait"
    SKIP = "skip"
    FAIL = "fail"


class _UpstreamCounts(msgspec.Struct, frozen=True):
    """Counts the upstream tasks that succeeded, failed or were skipped; the others have not ended."""

    total: int
    succeeded: int
    failed: int
    skipped: int
    unreached: int
    """The number of failed tasks that never ran because one of their own upstream tasks had failed."""

    @property
    def all_done(self) -> bool:
        return self.succeeded + self.failed + self.skipped == self.total


def _is_skipped(state: TaskState) -> bool:
    return state is TaskState.SKIPPED


class Rule(msgspec.Struct, frozen=True):
    """A trigger rule."""

    name: str
    """The public name, as authors write it and as specs store it."""
    decide: Callable[[_UpstreamCounts], Verdict]
    requires_success: bool = False
    """Whether every upstream task must succeed, so that every value exists."""
    waits: bool = True
    """Whether the rule needs at least one upstream task to end before it can decide."""
    is_cleanup: bool = False
    """Whether its tasks clean up: then they do not decide the outcome of their run."""
    is_skip_cause: Callable[[TaskState], bool] = _is_skipped
    """Tells of an upstream task's state whether it is a reason for a skip, for the recorded reason."""

    def evaluate(self, upstream: Sequence[TaskState]) -> Verdict:
        """Return the verdict on a task with these upstream states; a task without upstream tasks may run."""
        if not upstream:
            return Verdict.RUN
        failed = sum(state.has_failed for state in upstream)
        succeeded = sum(state is TaskState.SUCCESS for state in upstream)
        skipped = sum(state is TaskState.SKIPPED for state in upstream)
        unreached = sum(state is TaskState.UPSTREAM_FAILED for state in upstream)
        return self.decide(_UpstreamCounts(len(upstream), succeeded, failed, skipped, unreached))


def _all_success(counts: _UpstreamCounts) -> Verdict:
    if counts.failed:
        return Verdict.FAIL
    if counts.skipped:
        return Verdict.SKIP
    return _run_if(counts.succeeded == counts.total)


def _all_failed(counts: _UpstreamCounts) -> Verdict:
    if counts.succeeded or counts.skipped:
        return Verdict.SKIP
    return _run_if(counts.failed == counts.total)


def _one_success(counts: _UpstreamCounts) -> Verdict:
    if counts.succeeded:
        return Verdict.RUN
    if not counts.all_done:
        return Verdict.WAIT
    return Verdict.FAIL if counts.failed else Verdict.SKIP


def _one_failed(counts: _UpstreamCounts) -> Verdict:
    if counts.failed:
        return Verdict.RUN
    return Verdict.SKIP if counts.all_done else Verdict.WAIT


def _one_done(counts: _UpstreamCounts) -> Verdict:
    if counts.succeeded or counts.failed > counts.unreached:
        return Verdict.RUN
    return Verdict.SKIP if counts.all_done else Verdict.WAIT


def _none_failed(counts: _UpstreamCounts) -> Verdict:
    return Verdict.FAIL if counts.failed else _run_if(counts.all_done)


def _none_failed_min_one_success(counts: _UpstreamCounts) -> Verdict:
    if counts.failed:
        return Verdict.FAIL
    if counts.all_done and not counts.succeeded:
        return Verdict.SKIP
    return _run_if(counts.all_done)


def _none_skipped(counts: _UpstreamCounts) -> Verdict:
    return Verdict.SKIP if counts.skipped else _run_if(counts.all_done)


def _all_skipped(counts: _UpstreamCounts) -> Verdict:
    if counts.succeeded or counts.failed:
        return Verdict.SKIP
    return _run_if(counts.skipped == counts.total)


def _run_if(is_met: bool) -> Verdict:
    return Verdict.RUN if is_met else Verdict.WAIT


def _all_done(counts: _UpstreamCounts) -> Verdict:
    return _run_if(counts.all_done)


def _always(_: _UpstreamCounts) -> Verdict:
    return Verdict.RUN


def _is_terminal(state: TaskState) -> bool:
    return state.is_terminal


ALL_SUCCESS = Rule("all_success", _all_success, requires_success=True)
"""The default rule."""
NONE_FAILED = Rule("none_failed", _none_failed)
"""The default rule of a task all of whose inputs are optional."""

RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        ALL_SUCCESS,
        Rule("all_failed", _all_failed, is_skip_cause=lambda state: state.is_terminal and not state.has_failed),
        Rule("all_done", _all_done, is_cleanup=True),
        Rule("one_success", _one_success),
        Rule("one_failed", _one_failed, is_skip_cause=_is_terminal),  # all of them lack a failure
        Rule("one_done", _one_done, is_skip_cause=_is_terminal),
        NONE_FAILED,
        Rule("none_failed_min_one_success", _none_failed_min_one_success),
        Rule("none_skipped", _none_skipped),
        Rule("all_skipped", _all_skipped, is_skip_cause=lambda state: state.is_terminal and not _is_skipped(state)),
        Rule("always", _always, waits=False, is_cleanup=True),
    )
}
"""Every rule, by its name."""
