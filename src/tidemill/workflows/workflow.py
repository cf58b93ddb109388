"""Workflow: tasks declared by decorator, wired and checked when first needed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from typing import Any, Never, Self, TypeVar, overload

from msgspec.structs import replace

from tidemill.annotations.codec import UnstorableError, build_codec
from tidemill.annotations.signatures import AuthorFunction, caller_location
from tidemill.annotations.variants import label
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.backoff import Retry
from tidemill.kernel.durations import Duration
from tidemill.kernel.errors import DefinitionError, Location, Problem, RequestError
from tidemill.kernel.limits import MAX_INTEGER, MAX_WORD_LENGTH, NAME_RULE, WORD_RULE, is_name, is_word
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.definition import OnFiring, Params, Task, Trigger
from tidemill.workflows.firing_trigger import firing_problems
from tidemill.workflows.graph_calls import (
    CallableGraph,
    build_call_function,
    is_callable_graph,
    is_task_name,
    placeholder_function,
)
from tidemill.workflows.options import as_tuple, read_options
from tidemill.workflows.params import encode_params
from tidemill.workflows.schedule import Schedule
from tidemill.workflows.task_overrides import TaskOverrides, overrides_for
from tidemill.workflows.wiring import WiredWorkflow, wire

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_MAX_ACTIVE_RUNS = 16

_SAMPLE_MOMENTS = (datetime(2026, 1, 1, tzinfo=UTC), datetime(1, 1, 2, tzinfo=UTC))
"""Moments after which an example of a slot is looked for: an ordinary one, and one before every schedule's end."""


class Workflow:
    """The declaration of a workflow: its tasks, what it is started with and by. Authors use tm.Workflow, which runs."""

    __slots__ = (
        "_wired",
        "declaration",
        "location",
        "max_active_runs",
        "name",
        "params",
        "schedules",
        "tags",
        "task_overrides",
        "tasks",
        "triggers",
    )

    def __init__(
        self,
        name: str,
        *,
        schedule: Schedule | Sequence[Schedule] | None = None,
        params: type[Params] | None = None,
        tags: Sequence[str] = (),
        max_active_runs: int = DEFAULT_MAX_ACTIVE_RUNS,
        triggers: Sequence[Trigger | OnFiring | str] = (),
        **unknown: Never,
    ) -> None:
        self.name = name
        self.schedules: tuple[Schedule, ...] = as_tuple(schedule)
        self.params = params
        self.tags: tuple[str, ...] = as_tuple(tags)
        said = [
            *_unknown_option_problems(unknown),
            *_list_option_problems("tags", tags),
            *_list_option_problems("triggers", triggers),
        ]
        self.max_active_runs = max_active_runs
        self.triggers: tuple[Trigger | OnFiring | str, ...] = as_tuple(triggers)
        self.tasks: list[Task] = []
        self.task_overrides: Mapping[str, TaskOverrides] = {}
        self.location = caller_location()
        self.declaration = self
        self._wired: WiredWorkflow | None = None
        if problems := [Problem(message=one, location=self.location) for one in (*said, *self._problems())]:
            raise DefinitionError(problems, f"workflow {name!r}")

    def _problems(self) -> Iterator[str]:
        if not is_name(self.name):
            yield f"a workflow needs a name, {NAME_RULE}"
        if self.params is not None and not (isinstance(self.params, type) and issubclass(self.params, Params)):
            yield f"params= takes a subclass of tm.Params, not {self.params!r}"
        if type(self.max_active_runs) is not int or not 1 <= self.max_active_runs <= MAX_INTEGER:
            yield f"max_active_runs is a number of runs from 1 to {MAX_INTEGER}, not {self.max_active_runs!r}"
        for tag in self.tags:
            if not is_word(tag):
                yield f"tags= takes words, each {WORD_RULE}, not {tag!r}"
        for one in self.triggers:
            if not isinstance(one, Trigger | OnFiring | str):
                yield f"triggers= takes what @tm.trigger and tm.on_firing return, or a trigger's name, not {one!r}"
        for name in _find_duplicates([getattr(one, "name", one) for one in self.triggers]):
            yield f"trigger {name!r} is there twice"
        for schedule in self.schedules:
            if not isinstance(schedule, Schedule):
                yield f"schedule= takes tm.Cron(...), tm.Every(...), or a list of these, not {schedule!r}"
        for key in _find_duplicates([one.key for one in self.schedules if isinstance(one, Schedule)]):
            yield f"two schedules have the key '{key}': give each a key= of its own"

    @overload
    def task(self, function: Function, /) -> Function: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        each: str | Task | Callable[..., Any] | None = None,
        after: Sequence[str | Task | Callable[..., Any]] = (),
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
            return self._declare_task(function, {}, caller_location())
        location = caller_location()
        return lambda call: self._declare_task(call, options, location)

    def _declare_task(self, call: Any, options: dict[str, Any], location: Location) -> Any:
        try:
            function = AuthorFunction.capture(call, depth=2)
        except TypeError as error:
            raise DefinitionError.single(f"workflow '{self.name}'", str(error), location) from error
        self._add_task(Task(function=function, **read_options(options, f"task '{function.name}'", location)))
        return call

    def call(self, graph: CallableGraph | str, /, *, name: str | None = None, **options: Any) -> Task:
        """Declare a task that calls a graph without a reactor, given as declared, or by name across packages.

        The graph's inputs are the task's parameters, wired by name; what its terminal nodes return is the task's
        output, a dict by their names. The options are those of `task`. What is returned may stand in `after=`.
        """
        location = caller_location()
        named = name if name is not None else graph if isinstance(graph, str) else getattr(graph, "name", None)
        if not isinstance(graph, str) and not is_callable_graph(graph):
            message = f"call takes a tm.Graph, or the name of one, not {graph!r}"
            raise DefinitionError.single(f"workflow '{self.name}'", message, location)
        if not is_task_name(named):
            message = f"a task's name is an identifier, so that parameters can have it, not {named!r}: pass name="
            raise DefinitionError.single(f"workflow '{self.name}'", message, location)
        read = read_options(options, f"task '{named}'", location)
        task = Task(function=placeholder_function(str(named), location), graph=graph, **read)
        self._add_task(task)
        return task

    def _add_task(self, task: Task) -> None:
        if not is_name(task.name):
            message = f"a task's name is an identifier of up to {MAX_WORD_LENGTH} characters, not {task.name!r}"
            raise DefinitionError.single(f"workflow '{self.name}'", message, task.function.location)
        self.tasks.append(task)
        self._wired = None

    def with_graphs(self, find_graph: Callable[[str], CallableGraph | None]) -> Self:
        """Return the workflow with the graphs that it calls by name; itself if there are none of these.

        `declared` of what is returned is what the author declared, whoever asks.
        """
        if not any(isinstance(task.graph, str) for task in self.tasks):
            return self
        found = copy(self)
        found.tasks = [
            replace(task, graph=find_graph(task.graph) or task.graph) if isinstance(task.graph, str) else task
            for task in self.tasks
        ]
        found._wired = None
        return found

    def with_overrides(self, overrides: Mapping[str, TaskOverrides]) -> Self:
        """Return the workflow with what is set for its tasks from outside of the code; itself if nothing is set at all.

        The settings are by workflow and task, "daily_report.large": those of other workflows are kept with it, so that
        another process can do the same to everything that comes from the same place.
        """
        if not overrides:
            return self
        own = dict(overrides_for(self.name, overrides))
        known = [task.name for task in self.tasks]
        if problems := [
            Problem(message=f"settings of task '{name}': there is no such task{did_you_mean(name, known)}")
            for name in own
            if name not in known
        ]:
            raise DefinitionError(problems, f"workflow '{self.name}'")
        found = copy(self)
        found.tasks = [own[task.name].apply_to(task) if task.name in own else task for task in self.tasks]
        found.task_overrides = overrides
        found._wired = None
        return found

    def standalone(self) -> Self:
        """Return the workflow, of the same version, as it runs in a script: nothing starts it but the script."""
        found = copy(self)
        found.tasks = list(self.tasks)
        found.schedules, found.triggers = (), ()
        return found

    def check(self) -> None:
        """Wire the workflow, try its schedules and read its expressions; a DefinitionError has every problem found."""
        problems = [*self._schedule_problems(), *firing_problems(self.triggers, self.params, self.location)]
        try:
            problems += _value_problems(self.wired())
        except DefinitionError as error:
            problems = [*error.problems, *problems]
        if problems:
            raise DefinitionError(problems, f"workflow '{self.name}'")

    def wired(self) -> WiredWorkflow:
        """Return the wired workflow; wiring happens once."""
        if self._wired is None:
            self._wired = wire(self.name, self._resolve_graph_calls(), self.params)
        return self._wired

    def _resolve_graph_calls(self) -> list[Task]:
        """Return the tasks with a function each, also those that call a graph."""
        known = [task.name for task in self.tasks]
        resolved: list[Task] = []
        problems: list[Problem] = []
        for task in self.tasks:
            try:
                resolved.append(_resolve_graph_call(task, known))
            except DefinitionError as error:
                problems += error.problems
        if problems:
            raise DefinitionError(problems, f"workflow '{self.name}'")
        return resolved

    def _schedule_problems(self) -> Iterator[Problem]:
        """Try each schedule on a slot: does it fill the params?"""
        for schedule in self.schedules:
            slot = next((slot for moment in _SAMPLE_MOMENTS if (slot := schedule.next_after(moment))), None)
            if slot is None:
                continue
            location = schedule.location or self.location
            try:
                encode_params(self.params, schedule.params_for(slot))
            except RequestError as error:
                message = f"schedule {schedule!r} does not fill the params: {error}"
                yield Problem(message=message, location=location)
            except AUTHOR_ERRORS as error:  # author code: the function may raise anything
                message = f"params= of schedule {schedule!r} fails for slot {slot}: {describe(error)}"
                yield Problem(message=message, location=_location_of(schedule.params) or location)

    def __repr__(self) -> str:
        return f"<workflow '{self.name}' of {', '.join(task.name for task in self.tasks) or 'nothing yet'}>"


def _unknown_option_problems(given: Iterable[str]) -> Iterator[str]:
    known = ("schedule", "params", "tags", "max_active_runs", "triggers")
    for name in given:
        yield f"a workflow has no option '{name}'{did_you_mean(name, known)}; it has {', '.join(known)}"


def _list_option_problems(option: str, value: Any) -> Iterator[str]:
    """Refuse a text where a list of them is meant: whoever forgets the brackets might as well mean its letters."""
    if isinstance(value, str):
        yield f"{option}= takes a list, such as [{value!r}], not {value!r}"


def _value_problems(wired: WiredWorkflow) -> Iterator[Problem]:
    """Yield a problem for each task whose values could never be stored."""
    for name, one in wired.tasks.items():
        try:
            build_codec(one.signature.returns)
        except AUTHOR_ERRORS as error:  # author code: the annotations of a class may hold any expression
            said = str(error) if isinstance(error, UnstorableError) else describe(error)
            yield Problem(
                message=f"task '{name}' returns {label(one.signature.returns)}, and what it returns is stored: {said}. "
                "Return what can be: numbers, texts, lists, dicts, dates, dataclasses, tm.Boundary classes",
                location=one.task.function.location,
                node=name,
            )


def _find_duplicates(names: Sequence[Any]) -> list[Any]:
    return [name for number, name in enumerate(names) if names.index(name) < number]


def _location_of(function: Any) -> Location | None:
    code = getattr(function, "__code__", None)
    return None if code is None else Location(code.co_filename, code.co_firstlineno)


def _resolve_graph_call(task: Task, known: Sequence[str]) -> Task:
    """Return a task as it is run: the call of a graph gets its function, now that the graph is whole."""
    if task.graph is None:
        return task
    location = task.function.location
    if isinstance(task.graph, str):
        message = f"task '{task.name}' calls graph '{task.graph}', which is not loaded: load it first, or pass it"
        raise DefinitionError([Problem(message=message, location=location, node=task.name)])
    if task.graph.reactor_name is not None:
        message = (
            f"task '{task.name}' calls graph '{task.graph.name}', which is bound to reactor "
            f"'{task.graph.reactor_name}': a workflow calls graphs without a reactor"
        )
        raise DefinitionError([Problem(message=message, location=location, node=task.name)])
    return replace(task, function=build_call_function(task.graph, task.name, location, known))
