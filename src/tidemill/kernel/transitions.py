"""Legal-move tables: which state may follow which, in one place per state machine."""

from collections.abc import Mapping, Set
from enum import StrEnum
from typing import Generic, TypeVar

from tidemill.kernel.errors import IllegalTransitionError

State = TypeVar("State", bound=StrEnum)


class TransitionTable(Generic[State]):
    """The moves that a state machine allows. Staying where one is, is no move and always allowed."""

    def __init__(self, table: Mapping[State, Set[State]]) -> None:
        self.table = {state: frozenset(targets) for state, targets in table.items()}
        moves = {(before, after) for before, targets in self.table.items() for after in targets}
        states = {state for move in moves for state in move} | self.table.keys()
        self.allowed = frozenset(moves | {(state, state) for state in states})
        """All allowed pairs of a state and the one after it, for callers that check very often."""

    def is_allowed(self, before: State, after: State) -> bool:
        """Return whether `after` may follow `before`."""
        return before is after or after in self.table.get(before, frozenset())

    def check(self, subject: str, before: State, after: State) -> None:
        """Raise IllegalTransitionError unless `after` may follow `before`."""
        if not self.is_allowed(before, after):
            raise IllegalTransitionError(subject, before, after, self.table.get(before, frozenset()))

    def to_mermaid(self) -> str:
        """Draw the table as a Mermaid state diagram."""
        lines = [f"    {before} --> {after}" for before, targets in self.table.items() for after in sorted(targets)]
        return "\n".join(["stateDiagram-v2", *lines])
