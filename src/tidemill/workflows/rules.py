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


class _Tally(msgspec.Struct, frozen=True):
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


Rule = Callable[[_Tally], Verdict]


def _all_success(of: _Tally) -> Verdict:
    if of.failed:
        return Verdict.FAIL
    if of.skipped:
        return Verdict.SKIP
    return _when(of.succeeded == of.total)


def _all_failed(of: _Tally) -> Verdict:
    if of.succeeded or of.skipped:
        return Verdict.SKIP
    return _when(of.failed == of.total)


def _one_success(of: _Tally) -> Verdict:
    if of.succeeded:
        return Verdict.RUN
    if not of.all_done:
        return Verdict.WAIT
    return Verdict.FAIL if of.failed else Verdict.SKIP


def _one_failed(of: _Tally) -> Verdict:
    if of.failed:
        return Verdict.RUN
    return Verdict.SKIP if of.all_done else Verdict.WAIT


def _one_done(of: _Tally) -> Verdict:
    if of.succeeded or of.failed > of.unreached:
        return Verdict.RUN
    return Verdict.SKIP if of.all_done else Verdict.WAIT


def _none_failed(of: _Tally) -> Verdict:
    return Verdict.FAIL if of.failed else _when(of.all_done)


def _none_failed_min_one_success(of: _Tally) -> Verdict:
    if of.failed:
        return Verdict.FAIL
    if of.all_done and not of.succeeded:
        return Verdict.SKIP
    return _when(of.all_done)


def _none_skipped(of: _Tally) -> Verdict:
    return Verdict.SKIP if of.skipped else _when(of.all_done)


def _all_skipped(of: _Tally) -> Verdict:
    if of.succeeded or of.failed:
        return Verdict.SKIP
    return _when(of.skipped == of.total)


def _when(holds: bool) -> Verdict:
    return Verdict.RUN if holds else Verdict.WAIT


RULES: Mapping[str, Rule] = {
    "all_success": _all_success,
    "all_failed": _all_failed,
    "all_done": lambda of: _when(of.all_done),
    "one_success": _one_success,
    "one_failed": _one_failed,
    "one_done": _one_done,
    "none_failed": _none_failed,
    "none_failed_min_one_success": _none_failed_min_one_success,
    "none_skipped": _none_skipped,
    "all_skipped": _all_skipped,
    "always": lambda _: Verdict.RUN,
}

CLEANING = frozenset(["all_done", "always"])
"""Rules of tasks that tidy up: they say nothing about whether their run went well."""


def judge(rule: str, before: Sequence[TaskState]) -> Verdict:
    """Return what a rule says of a task, from the states of those before it; without any it may run."""
    if not before:
        return Verdict.RUN
    failed = sum(state.has_failed for state in before)
    succeeded = sum(state is TaskState.SUCCESS for state in before)
    skipped = sum(state is TaskState.SKIPPED for state in before)
    unreached = sum(state is TaskState.UPSTREAM_FAILED for state in before)
    return RULES[rule](_Tally(len(before), succeeded, failed, skipped, unreached))
