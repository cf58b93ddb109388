"""Transition tables: the legal transitions of a state machine, in one place each."""

from collections.abc import Mapping, Set
from enum import StrEnum
from typing import Generic, TypeVar

from tidemill.kernel.errors import IllegalTransitionError

State = TypeVar("State", bound=StrEnum)


class TransitionTable(Generic[State]):
    """The transitions that a state machine allows. Remaining in a state is always allowed."""

    def __init__(self, table: Mapping[State, Set[State]]) -> None:
        self.table = {state: frozenset(targets) for state, targets in table.items()}
        transitions = {(before, after) for before, targets in self.table.items() for after in targets}
        states = {state for transition in transitions for state in transition} | self.table.keys()
        self.allowed = frozenset(transitions | {(state, state) for state in states})
        """All allowed pairs (before, after), for hot paths."""

    def is_allowed(self, before: State, after: State) -> bool:
        """Return whether `after` may follow `before`."""
        return before is after or after in self.table.get(before, frozenset())

    def check(self, subject: str, before: State, after: State) -> None:
        """Raise IllegalTransitionError unless `after` may follow `before`."""
        if not self.is_allowed(before, after):
            raise IllegalTransitionError(subject, before, after, self.table.get(before, frozenset()))
