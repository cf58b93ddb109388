"""The declarations of a workflow as frozen values: tasks, params, triggers, and what tasks may raise."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tidemill.annotations.signatures import AuthorFunction
from tidemill.kernel.backoff import Retry


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is started with. Subclass it and declare fields."""


class Skip(Exception):  # noqa: N818 - authors raise it; it is no error
    """Raise it in a task to skip the task, and say why."""


class Fail(Exception):  # noqa: N818 - the word that authors know
    """Raise it in a task to fail without another try, and say why."""


class Fire:
    """A trigger's decision to start a run, with these params."""

    __slots__ = ("params",)

    def __init__(self, **params: Any) -> None:
        self.params = params

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fire) and other.params == self.params

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Fire({', '.join(f'{name}={value!r}' for name, value in self.params.items())})"


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is asked every so often whether a run should start."""

    function: AuthorFunction
    every: float
    timeout: float
    allow_concurrent: bool = False

    @property
    def name(self) -> str:
        """The trigger's name: the function's own."""
        return self.function.name

    def __call__(self) -> Awaitable[Fire | None]:
        """Ask once, as in a unit test."""
        asked: Awaitable[Fire | None] = self.function.call()
        return asked


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One function of a workflow, as declared."""

    function: AuthorFunction
    each: str | None = None
    after: tuple[str, ...] = ()
    rule: str | None = None
    retry: Retry | None = None
    timeout: float | None = None
    pool: str | None = None
    priority: int = 0
    queue: str = "default"
    executor: str | None = None
    ignores: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """The task's name: the function's own."""
        return self.function.name


def name_of(task: str | Callable[..., Any]) -> str:
    """Return the name of a task that was given by its name, or as the decorated function."""
    return task if isinstance(task, str) else getattr(task, "__name__", repr(task))
