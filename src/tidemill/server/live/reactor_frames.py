"""Frames of reactors: commands and watches from clients, their answers, and states that have changed."""

from typing import Any, get_args

import msgspec

from tidemill.api.errors import FieldProblem, InvalidRequestError, ProblemDetails
from tidemill.graphs.state import ReactorState
from tidemill.graphs.views import FIRING_COMMANDS, CommandResult, FiringView, ReactorCommand
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import close_names, did_you_mean

READING_COMMANDS = ("state", "watch", "unwatch")
CHANGING_COMMANDS: tuple[ReactorCommand, ...] = get_args(ReactorCommand)
COMMANDS = (*CHANGING_COMMANDS, *READING_COMMANDS)
COMMANDS_OF_KEYS = (*FIRING_COMMANDS, "state")
DEFAULT_EVERY = 0.25
MIN_EVERY = 0.05
"""Seconds between two states of a watch, at least."""

FrameId = int | float | str | None


class CommandFrame(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command to a reactor."""

    command: str
    id: FrameId = None
    """Chosen by the client; the answer has the same."""
    inputs: dict[str, Any] | None = None
    """The inputs of `fire_with`, by accumulator."""
    key: Any = None
    """The key to fire or to read, of a keyed reactor."""
    every: float | None = None
    """The seconds between two states of a `watch`."""

    def check(self) -> None:
        """Raise RequestError for a command that does not exist, or that cannot have what it was given."""
        if self.command not in COMMANDS:
            hint = did_you_mean(self.command, COMMANDS) or f"; there are {', '.join(COMMANDS)}"
            suggestions = close_names(self.command, COMMANDS)
            message = f"there is no command '{self.command}'{hint}"
            raise RequestError(message, code="unknown_command", suggestions=suggestions)
        if self.every is not None and self.command != "watch":
            raise _invalid("every", "only 'watch' takes it")
        if self.every is not None and not self.every >= 0:
            raise _invalid("every", f"a number of seconds, not {self.every}")
        if self.inputs is not None and self.command != "fire_with":
            raise _invalid("inputs", "only 'fire_with' takes it")
        if self.key is not None and self.command not in COMMANDS_OF_KEYS:
            raise _invalid("key", f"only {', '.join(map(repr, COMMANDS_OF_KEYS))} take it")

    @property
    def interval(self) -> float:
        """The seconds between two states of a watch."""
        return max(MIN_EVERY, DEFAULT_EVERY if self.every is None else self.every)


def _invalid(field: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"`{field}`: {message}", [FieldProblem(field, message)])


class CommandAnswer(msgspec.Struct, frozen=True):
    """The answer to a command that was carried out."""

    id: FrameId
    result: CommandResult


class CommandProblem(msgspec.Struct, frozen=True):
    """The answer to a command that was not carried out."""

    id: FrameId
    error: ProblemDetails


class StateFrame(msgspec.Struct, frozen=True):
    """The state of a watched reactor, after it has changed, and its newest firing."""

    id: FrameId
    state: ReactorState
    last_firing: FiringView | None
