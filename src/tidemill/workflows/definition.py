"""Declarations as frozen values: tasks, params and triggers; and the exceptions that tasks raise on purpose."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, cast, dataclass_transform

import msgspec

from tidemill.annotations.signatures import AuthorFunction
from tidemill.kernel.about import About
from tidemill.kernel.backoff import Retry
from tidemill.kernel.errors import Location
from tidemill.workflows.graph_calls import CallableGraph
from tidemill.workflows.task_options import TaskOptions

if TYPE_CHECKING:  # a plain `tm.Trigger` is one of any function: Python 3.13 has this default
    from typing_extensions import TypeVar

    Decision = TypeVar("Decision", default=Any)
else:
    from typing import TypeVar

    Decision = TypeVar("Decision")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Params(msgspec.Struct, frozen=True, kw_only=True):
    """The params of a run. Subclass it and declare fields."""


class Skip(Exception):  # noqa: N818 - authors raise it; it is not an error
    """Raise it in a task to skip the task; the message is the reason."""


class Fire:
    """A trigger's decision to start a run, with these params."""

    __slots__ = ("params",)

    def __init__(self, /, **params: Any) -> None:
        self.params = params

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fire) and other.params == self.params

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Fire({', '.join(f'{name}={value!r}' for name, value in self.params.items())})"


class Trigger(msgspec.Struct, Generic[Decision], frozen=True, kw_only=True):
    """A function that is polled at an interval, and decides whether a run starts."""

    kind: ClassVar[str] = "poll"
    """The name of the kind."""

    function: AuthorFunction
    every: float
    timeout: float
    allow_concurrent: bool = False
    """Whether a run may start although one with the same params is still active."""

    @property
    def name(self) -> str:
        """The trigger's name: the function's own."""
        return self.function.name

    @property
    def location(self) -> Location:
        """Where it was declared."""
        return self.function.location

    def facts(self) -> dict[str, Any]:
        """Return what it declares, as numbers by name."""
        return {"every": self.every, "timeout": self.timeout, "allow_concurrent": self.allow_concurrent}

    def __call__(self) -> Decision:
        """Call it once, as in a unit test: returns a Fire or None, or an awaitable of one if the function is async."""
        return cast("Decision", self.function.call())


Expression = str | Callable[[Any], Any]
"""What authors write for `when=` and `dedup=`: an expression in CEL, or a function of one value."""


def describe_expression(given: Expression | None) -> str | None:
    """Return an expression as people read it: the text, or the name of the function."""
    return given if given is None or isinstance(given, str) else getattr(given, "__qualname__", repr(given))


WORKER_EXECUTOR = "worker"
"""The executor of tasks that worker processes claim. Every node accepts such tasks, and none runs them itself."""


class Task(TaskOptions, frozen=True, kw_only=True):
    """One function of a workflow, as declared."""

    function: AuthorFunction
    each: str | None = None
    after: tuple[str, ...] = ()
    rule: str | None = None
    retry: Retry | None = None
    ignores: tuple[Any, ...] = ()
    owner: str = ""
    description: str = ""
    graph: CallableGraph | str | None = None
    """The called graph, or its name; `function` is a placeholder until the workflow is wired."""

    @property
    def name(self) -> str:
        """The task's name: the function's own."""
        return self.function.name

    @property
    def about(self) -> About:
        """Its owner, and its description or docstring."""
        return About.of_function(self.function.call, self.owner, self.description)


def find_label_problem(labels: tuple[str, ...] | None, executor: str | None) -> str | None:
    """Return the problem of a task that has labels, but does not run on workers; None if there is none."""
    if not labels or executor == WORKER_EXECUTOR:
        return None
    return f'labels: {", ".join(labels)} would choose among workers; set executor="{WORKER_EXECUTOR}" too'


def task_name(task: str | Task | Callable[..., Any]) -> str:
    """Return the name of a task that is given by name, as declared, or as the decorated function."""
    if isinstance(task, Task):
        return task.name
    return task if isinstance(task, str) else getattr(task, "__name__", repr(task))
