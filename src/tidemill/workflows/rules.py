"""Trigger rules: what the states of the tasks before it mean for a task."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

import msgspec

from tidemill.workflows.states import TaskState


class Verdict(Enum):
    """What a rule says."""

    RUN = "run"
    WAIT = "wait"
    SKIP = "skip"
    FAIL = "fail"


class _UpstreamCounts(msgspec.Struct, frozen=True):
    """How many of the tasks before it succeeded, failed, were skipped; the rest is not done."""

    total: int
    succeeded: int
    failed: int
    skipped: int
    unreached: int
    """How many of the failed ones never ran, because something before them had failed."""

    @property
    def all_done(self) -> bool:
        return self.succeeded + self.failed + self.skipped == self.total


Rule = Callable[[_UpstreamCounts], Verdict]


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


def _run_if(holds: bool) -> Verdict:
    return Verdict.RUN if holds else Verdict.WAIT


RULES: Mapping[str, Rule] = {
    "all_success": _all_success,
    "all_failed": _all_failed,
    "all_done": lambda of: _run_if(of.all_done),
    "one_success": _one_success,
    "one_failed": _one_failed,
    "one_done": _one_done,
    "none_failed": _none_failed,
    "none_failed_min_one_success": _none_failed_min_one_success,
    "none_skipped": _none_skipped,
    "all_skipped": _all_skipped,
    "always": lambda _: Verdict.RUN,
}

CLEANUP_RULES = frozenset(["all_done", "always"])
"""Rules of tasks that tidy up: they say nothing about whether their run went well."""


def evaluate_rule(rule: str, upstream: Sequence[TaskState]) -> Verdict:
    """Return what a rule says of a task, from the states of those before it; without any it may run."""
    if not upstream:
        return Verdict.RUN
    failed = sum(state.has_failed for state in upstream)
    succeeded = sum(state is TaskState.SUCCESS for state in upstream)
    skipped = sum(state is TaskState.SKIPPED for state in upstream)
    unreached = sum(state is TaskState.UPSTREAM_FAILED for state in upstream)
    return RULES[rule](_UpstreamCounts(len(upstream), succeeded, failed, skipped, unreached))
