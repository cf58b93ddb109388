"""Every error a user can meet, in one tree: three branches, by who must act.

TidemillError
├── DefinitionError      the author: a declaration that cannot work, all problems at once
│   └── ProbeError       a package that could not be imported (`packages.loading.probe`)
├── RequestError         the caller: `code` for programs, `status` for HTTP
│   ├── NotFoundError    nothing has the name that was given
│   └── PushStoppedError    a handle cannot push an event without waiting
│       └── FullError       because a bounded queue has no room
└── OperationError       the operator: something at run time needs attention
    ├── StoreError       the database did not do what it was asked, and nothing was written
    │   ├── DamagedStoreError   because it is damaged
    │   └── FencedError         because another node owns what was to be written
    ├── NodeError        a node raised: found in results (`graphs.result`), never raised
    └── IllegalTransitionError  a state change that the transition table does not allow
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tidemill.kernel.suggestions import close_names


class TidemillError(Exception):
    """The root of all errors that Tidemill raises on purpose."""


class Location(msgspec.Struct, frozen=True):
    """The file and line of a declaration."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a declaration: what is wrong, where, and what to do."""

    message: str
    location: Location | None = None
    node: str | None = None
    parameter: str | None = None

    def __str__(self) -> str:
        return f"{self.location}: {self.message}" if self.location else self.message


class DefinitionError(TidemillError):
    """A declaration cannot work. Carries every problem found, not only the first."""

    def __init__(self, problems: Iterable[Problem], subject: str = "declaration") -> None:
        self.problems = tuple(problems)
        self.subject = subject
        if len(self.problems) == 1:
            message = f"{subject}: {self.problems[0]}"
        else:
            lines = "".join(f"\n  {number}. {problem}" for number, problem in enumerate(self.problems, 1))
            message = f"{subject} has {len(self.problems)} problems:{lines}"
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problems, self.subject)

    @classmethod
    def single(cls, subject: str, message: str, location: Location | None = None) -> "DefinitionError":
        """Build the error for a single problem."""
        return cls([Problem(message=message, location=location)], subject)


class RequestError(TidemillError):
    """The caller asked for something that cannot be done as asked."""

    def __init__(self, message: str, *, code: str, status: int = 400, **facts: Any) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.facts = facts

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild_request_error, (type(self), str(self), self.code, self.status, self.facts)


class NotFoundError(RequestError):
    """Nothing has the name that was given. `suggestions` are known names that resemble it."""

    def __init__(self, kind: str, name: str, message: str, known: Iterable[str] = ()) -> None:
        facts: dict[str, Any] = {kind: name, "suggestions": close_names(name, known)}
        super().__init__(message, code=f"{kind}_not_found", status=404, **facts)


class PushStoppedError(RequestError):
    """A handle cannot push an event without waiting: `handle.many` stops there."""

    taken = 0
    """How many events of `handle.many` were pushed before the one that would have to wait."""


class FullError(PushStoppedError):
    """A bounded queue has no room, and this call may not wait for it."""

    def __init__(self, reactor: str, capacity: int) -> None:
        super().__init__(
            f"the queue of reactor '{reactor}' is full ({capacity}); await node.push() to wait for room",
            code="queue_full",
            status=429,
            reactor=reactor,
            capacity=capacity,
        )


def rebuild_request_error(
    kind: type[RequestError], message: str, code: str, status: int, details: dict[str, Any]
) -> RequestError:
    """Rebuild a request error that was sent from another process."""
    error = kind.__new__(kind)
    RequestError.__init__(error, message, code=code, status=status, **details)
    return error


class OperationError(TidemillError):
    """Something went wrong at run time that an operator should attend to."""


class StoreError(OperationError):
    """The database did not do what it was asked: nothing was written, and the call may be repeated."""


class DamagedStoreError(StoreError):
    """The database is damaged: repeating the call does not help."""


class FullStoreError(StoreError):
    """The disk of the database is full: repeating the call helps when there is space again."""


class FencedError(StoreError):
    """Another node owns what was to be written: repeating the call does not help."""


@contextmanager
def after_change(change: str) -> Iterator[None]:
    """Read the answer to a change that was made: an error of this block must not say that nothing was changed."""
    try:
        yield
    except (StoreError, RequestError) as error:
        raise OperationError(f"{change}, but the answer about it could not be read") from error


class IllegalTransitionError(OperationError):
    """A state change that the transition table does not allow."""

    def __init__(self, subject: str, before: str, after: str, allowed: Iterable[str] = ()) -> None:
        possible = ", ".join(sorted(allowed)) or "nothing"
        super().__init__(f"{subject} cannot move from {before} to {after}, only to {possible}")
        self.subject = subject
        self.before = before
        self.after = after
