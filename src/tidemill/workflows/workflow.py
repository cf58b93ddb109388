"""Workflow: tasks declared by decorator, wired and checked when first needed."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from tidemill.annotations.signatures import AuthorFunction, caller_location
from tidemill.kernel.backoff import Retry
from tidemill.kernel.durations import Duration, parse_positive
from tidemill.kernel.errors import DefinitionError, Location, Problem
from tidemill.workflows.definition import Params, Task, Trigger, name_of
from tidemill.workflows.wiring import Wired, wire

Function = TypeVar("Function", bound=Callable[..., Any])

MAX_ACTIVE_RUNS = 16


class Workflow:
    """A durable DAG of tasks, wired by parameter name, routed by the class of what they return.

    `params` is a subclass of tm.Params that says what a run is started with; without it a run takes any keywords.
    """

    __slots__ = ("_wired", "location", "max_active_runs", "name", "params", "schedule", "tags", "tasks", "triggers")

    def __init__(
        self,
        name: str,
        *,
        schedule: Any = None,
        params: type[Params] | None = None,
        tags: Sequence[str] = (),
        max_active_runs: int = MAX_ACTIVE_RUNS,
        triggers: Sequence[Trigger | str] = (),
    ) -> None:
        self.name = name
        self.schedule = schedule
        self.params = params
        self.tags = tuple(tags)
        self.max_active_runs = max_active_runs
        self.triggers = tuple(triggers)
        self.tasks: list[Task] = []
        self.location = caller_location()
        self._wired: Wired | None = None
        if problems := [Problem(message=said, location=self.location) for said in self._complaints()]:
            raise DefinitionError(problems, f"workflow {name!r}")

    def _complaints(self) -> list[str]:
        said = []
        if not isinstance(self.name, str) or not self.name or "/" in self.name:
            said.append("a workflow needs a name, without '/'")
        if self.params is not None and not (isinstance(self.params, type) and issubclass(self.params, Params)):
            said.append(f"params= takes a subclass of tm.Params, not {self.params!r}")
        if type(self.max_active_runs) is not int or self.max_active_runs < 1:
            said.append(f"max_active_runs is a number of runs, at least 1, not {self.max_active_runs!r}")
        said += [
            f"triggers= takes what @tm.trigger returns, or its name, not {one!r}"
            for one in self.triggers
            if not isinstance(one, Trigger | str)
        ]
        return said

    @overload
    def task(self, function: Function, /) -> Function: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        each: str | Callable[..., Any] | None = None,
        after: Sequence[str | Callable[..., Any]] = (),
        rule: str | None = None,
        retry: Retry | int | None = None,
        timeout: Duration | None = None,
        pool: str | None = None,
        priority: int = 0,
        queue: str = "default",
        executor: str | None = None,
        ignores: Sequence[Any] = (),
    ) -> Callable[[Function], Function]: ...
    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Declare a task: its parameters name the tasks whose results it takes. The function stays callable."""
        if function is not None:
            return self._declare(function, {}, caller_location())
        location = caller_location()
        return lambda call: self._declare(call, options, location)

    def _declare(self, call: Any, options: dict[str, Any], location: Location) -> Any:
        try:
            function = AuthorFunction.of(call, depth=2)
        except TypeError as error:
            raise DefinitionError.of(f"workflow '{self.name}'", str(error), location) from error
        self.tasks.append(Task(function=function, **_read(options, f"task '{function.name}'", location)))
        self._wired = None
        return call

    def check(self) -> None:
        """Wire the workflow, or raise one DefinitionError with every problem found."""
        self.wired()

    def wired(self) -> Wired:
        """Return the wired workflow; wiring happens once."""
        if self._wired is None:
            self._wired = wire(self.name, self.tasks, self.params)
        return self._wired

    def __repr__(self) -> str:
        return f"<workflow '{self.name}' of {', '.join(task.name for task in self.tasks) or 'nothing yet'}>"


def _read(options: dict[str, Any], subject: str, location: Location) -> dict[str, Any]:
    """Return a task's options as they are kept."""
    read = dict(options)
    try:
        if read.get("each") is not None:
            read["each"] = name_of(read["each"])
        read["after"] = tuple(name_of(one) for one in read.get("after", ()))
        read["ignores"] = tuple(read.get("ignores", ()))
        if isinstance(read.get("retry"), int):
            read["retry"] = Retry(read["retry"])
        if read.get("timeout") is not None:
            read["timeout"] = parse_positive(read["timeout"])
        return read
    except (TypeError, ValueError) as error:
        raise DefinitionError.of(subject, str(error), location) from error
