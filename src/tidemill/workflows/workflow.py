"""The declaration of a workflow: tasks by decorator, wired and validated on first use."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from typing import Any, Never, Self, TypeVar, overload

import msgspec
from msgspec.structs import replace

from tidemill.annotations.codec import UnstorableError, build_codec
from tidemill.annotations.signatures import AuthorFunction, caller_location
from tidemill.annotations.variants import label
from tidemill.kernel.about import About, about_problems, clean_text
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.backoff import Retry
from tidemill.kernel.durations import Duration
from tidemill.kernel.errors import DefinitionError, Location, Problem, RequestError
from tidemill.kernel.limits import MAX_INTEGER, MAX_WORD_LENGTH, NAME_RULE, WORD_RULE, is_name, is_word
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.capabilities import Grants
from tidemill.workflows.definition import Task, Trigger
from tidemill.workflows.firing_trigger import FiringTrigger, select_firing_triggers, subscription_problems
from tidemill.workflows.graph_calls import (
    CallableGraph,
    ObservedReactor,
    build_call_function,
    is_callable_graph,
    is_task_name,
    placeholder_function,
)
from tidemill.workflows.handlers import HANDLER_RETRY, RunReport, check_handler_options
from tidemill.workflows.options import as_tuple, read_options
from tidemill.workflows.params import encode_params
from tidemill.workflows.schedule import Schedule
from tidemill.workflows.spec import handler_workflow
from tidemill.workflows.states import RunState
from tidemill.workflows.task_overrides import TaskOverrides, apply_overrides, find_override_problem, overrides_for
from tidemill.workflows.task_waits import NO_DEFAULT
from tidemill.workflows.unfinished import DEFAULT_UNFINISHED_POLICY, UNFINISHED_POLICIES, UnfinishedPolicy
from tidemill.workflows.wait_tasks import make_wait_function
from tidemill.workflows.wiring import WiredWorkflow, wire

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_MAX_ACTIVE_RUNS = 16

_SAMPLE_MOMENTS = (datetime(2026, 1, 1, tzinfo=UTC), datetime(1, 1, 2, tzinfo=UTC))
"""Starting points for finding a sample slot: a usual one, and one before the end of every schedule."""


class Workflow:
    """A workflow as declared: tasks, params, schedules and triggers. Authors use tm.Workflow, which adds `run`."""

    __slots__ = (
        "_wired",
        "about",
        "declaration",
        "grants",
        "handled",
        "handlers",
        "location",
        "max_active_runs",
        "name",
        "params",
        "schedules",
        "tags",
        "task_overrides",
        "tasks",
        "triggers",
        "unfinished_policy",
    )

    def __init__(
        self,
        name: str,
        *,
        schedule: Schedule | Sequence[Schedule] | None = None,
        params: type[msgspec.Struct] | None = None,
        tags: Sequence[str] = (),
        max_active_runs: int = DEFAULT_MAX_ACTIVE_RUNS,
        triggers: Sequence[Trigger | FiringTrigger | str] = (),
        unfinished: UnfinishedPolicy | None = None,
        owner: str = "",
        description: str = "",
        **unknown: Never,
    ) -> None:
        self.name = name
        self.schedules: tuple[Schedule, ...] = as_tuple(schedule)
        self.params = params
        self.tags: tuple[str, ...] = as_tuple(tags)
        option_problems = [
            *_unknown_option_problems(unknown),
            *_list_option_problems("tags", tags),
            *_list_option_problems("triggers", triggers),
            *about_problems(owner, description),
        ]
        self.max_active_runs = max_active_runs
        self.unfinished_policy = unfinished
        """As declared; None if the node decides."""
        self.triggers: tuple[Trigger | FiringTrigger | str, ...] = as_tuple(triggers)
        self.tasks: list[Task] = []
        self.task_overrides: Mapping[str, TaskOverrides] = {}
        self.grants: Grants | None = None
        """What its tasks may ask of their node; None unless it belongs to a package."""
        self.handlers: dict[RunState, Workflow] = {}  # by end: the workflow that has them as its tasks
        self.handled: str | None = None  # the workflow whose ends its tasks handle, unless an author declared it
        self.location = caller_location()
        self.declaration = self
        self._wired: WiredWorkflow | None = None
        if problems := [Problem(message=one, location=self.location) for one in (*option_problems, *self._problems())]:
            raise DefinitionError(problems, f"workflow {name!r}")
        self.about = About(owner, clean_text(description))

    @property
    def unfinished(self) -> UnfinishedPolicy:
        """What becomes of its unfinished runs when their code has changed: "pin", "upgrade" or "cancel"."""
        return self.unfinished_policy or DEFAULT_UNFINISHED_POLICY

    def _problems(self) -> Iterator[str]:
        if not is_name(self.name):
            yield f"a workflow needs a name, {NAME_RULE}"
        if self.params is not None and not (isinstance(self.params, type) and issubclass(self.params, msgspec.Struct)):
            yield f"params= takes a subclass of tm.Params or tm.Boundary, not {self.params!r}"
        if type(self.max_active_runs) is not int or not 1 <= self.max_active_runs <= MAX_INTEGER:
            yield f"max_active_runs is a number of runs from 1 to {MAX_INTEGER}, not {self.max_active_runs!r}"
        if self.unfinished_policy not in (None, *UNFINISHED_POLICIES):
            policies = ", ".join(f'"{policy}"' for policy in UNFINISHED_POLICIES)
            yield f"unfinished= is one of {policies}, not {self.unfinished_policy!r}"
        for tag in self.tags:
            if not is_word(tag):
                yield f"tags= takes words, each {WORD_RULE}, not {tag!r}"
        for one in self.triggers:
            if not isinstance(one, Trigger | FiringTrigger | str):
                yield (
                    "triggers= takes what @tm.trigger, tm.on_firing and tm.on_output return, or a trigger's name, "
                    f"not {one!r}"
                )
        for name in _find_duplicates([getattr(one, "name", one) for one in self.triggers]):
            yield f"trigger {name!r} is there twice"
        for schedule in self.schedules:
            if not isinstance(schedule, Schedule):
                yield f"schedule= takes tm.Cron(...), tm.Every(...), or a list of these, not {schedule!r}"
        for key in _find_duplicates([one.key for one in self.schedules if isinstance(one, Schedule)]):
            yield f"two schedules have the key '{key}': give each its own key="

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
        labels: Sequence[str] = (),
        resources: Mapping[str, str | float] | None = None,
        image: str | None = None,
        pod: Mapping[str, Any] | None = None,
        ignores: Sequence[Any] = (),
        owner: str = "",
        description: str = "",
    ) -> Callable[[Function], Function]: ...
    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Declare a task: its parameters name the tasks whose results it takes. The function stays callable."""
        if function is not None:
            return self._declare_task(function, {})
        return lambda call: self._declare_task(call, options)

    def _declare_task(self, call: Any, options: dict[str, Any], depth: int = 2) -> Any:
        try:
            function = AuthorFunction.capture(call, depth=depth)
        except TypeError as error:
            raise DefinitionError.single(f"workflow '{self.name}'", str(error), caller_location(depth)) from error
        self._add_task(Task(function=function, **read_options(options, function.name, self.name, function.location)))
        return call

    def wait_for(
        self,
        type: Any,
        *,
        timeout: Duration | None = None,
        default: Any = NO_DEFAULT,
        by: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Callable[[Function], Function]:
        """Declare a task that asks: the function says what, as Markdown, and the answer is the output of the task.

        A value of the answer's type, which the function returns in place of a text, is the answer, and nothing is
        asked. The other options are those of `task`.
        """
        asked = {"timeout": timeout, "default": default, "by": by}
        return lambda call: self._declare_wait(call, type, asked, options)

    def _declare_wait(self, call: Any, type: Any, asked: dict[str, Any], options: dict[str, Any]) -> Any:
        try:
            said = AuthorFunction.capture(call, depth=2)
        except TypeError as error:
            raise DefinitionError.single(f"workflow '{self.name}'", str(error), caller_location(2)) from error
        function = make_wait_function(said, type, asked, self.name)
        self._add_task(Task(function=function, **read_options(options, function.name, self.name, function.location)))
        return call

    @overload
    def on_failure(self, function: Function, /) -> Function: ...
    @overload
    def on_failure(self, function: None = None, /, **options: Any) -> Callable[[Function], Function]: ...
    def on_failure(self, function: Any = None, /, **options: Any) -> Any:
        """Declare a handler: a function that is called with a tm.RunReport after a run has failed.

        It takes the options of a task that say how it is executed, such as `retry=` and `timeout=`. A handler that
        fails is retried three times by default, and changes nothing about the run.
        """
        return self._declare_handler(RunState.FAILED, function, options)

    @overload
    def on_success(self, function: Function, /) -> Function: ...
    @overload
    def on_success(self, function: None = None, /, **options: Any) -> Callable[[Function], Function]: ...
    def on_success(self, function: Any = None, /, **options: Any) -> Any:
        """Declare a handler: a function that is called with a tm.RunReport after a run has succeeded.

        Options and retries are those of `on_failure`.
        """
        return self._declare_handler(RunState.SUCCESS, function, options)

    def _declare_handler(self, end: RunState, function: Any, options: dict[str, Any]) -> Any:
        if function is None:
            return lambda call: self._declare_handler(end, call, options)
        name = getattr(function, "__name__", repr(function))
        check_handler_options(options, name, self.name, _location_of(function) or self.location)
        handlers = self.handlers.get(end) or self._make_handlers(end)
        handlers._declare_task(function, {"retry": HANDLER_RETRY} | options, depth=3)
        self.handlers[end] = handlers
        self._wired = None
        return function

    def _make_handlers(self, end: RunState) -> "Workflow":
        name = handler_workflow(self.name, end)
        handlers = Workflow(name, params=RunReport, tags=self.tags, unfinished="upgrade", owner=self.about.owner)
        handlers.handled, handlers.location = self.name, self.location
        return handlers

    @property
    def family(self) -> "tuple[Workflow, ...]":
        """The workflows of its handlers, and itself: they are loaded together."""
        return (*self.handlers.values(), self)

    def call(self, graph: CallableGraph | str, /, *, name: str | None = None, **options: Any) -> Task:
        """Declare a task that calls a graph without a reactor: the declared graph, or its name in another package.

        The graph's inputs are the task's parameters, wired by name; the values of its terminal nodes are the task's
        output, a dict by their names. The options are those of `task`. The returned task may be used in `after=`.
        """
        location = caller_location()
        named = name if name is not None else graph if isinstance(graph, str) else getattr(graph, "name", None)
        if not isinstance(graph, str) and not is_callable_graph(graph):
            message = f"call takes a tm.Graph, or the name of one, not {graph!r}"
            raise DefinitionError.single(f"workflow '{self.name}'", message, location)
        if not is_task_name(named):
            message = f"a task's name is an identifier, so that parameters can have it, not {named!r}: pass name="
            raise DefinitionError.single(f"workflow '{self.name}'", message, location)
        read = read_options(options, str(named), self.name, location)
        task = Task(function=placeholder_function(str(named), location), graph=graph, **read)
        self._add_task(task)
        return task

    def _add_task(self, task: Task) -> None:
        if not is_name(task.name):
            message = f"a task's name is an identifier of up to {MAX_WORD_LENGTH} characters, not {task.name!r}"
            raise DefinitionError.single(f"workflow '{self.name}'", message, task.function.location)
        if task.function.is_interactive:
            self.tasks[:] = [one for one in self.tasks if not task.function.replaces(one.function)]
        self.tasks.append(task)
        self._wired = None

    def with_graphs(self, find_graph: Callable[[str], CallableGraph | None]) -> Self:
        """Return a copy in which graphs called by name are resolved; the workflow itself if it calls none by name.

        `declaration` of the copy is the workflow that the author declared.
        """
        if not any(isinstance(task.graph, str) for task in self.tasks):
            return self
        return self._with_tasks(
            replace(task, graph=find_graph(task.graph) or task.graph) if isinstance(task.graph, str) else task
            for task in self.tasks
        )

    def with_sources(self, find_source: Callable[[FiringTrigger], CallableGraph | ObservedReactor | None]) -> Self:
        """Return a copy whose triggers have the graphs and reactors that they name; itself if they have them."""
        triggers = tuple(
            replace(one, source=find_source(one)) if isinstance(one, FiringTrigger) else one for one in self.triggers
        )
        pairs = zip(self.triggers, triggers, strict=True)
        if all(getattr(one, "source", None) is getattr(other, "source", None) for one, other in pairs):
            return self
        changed = self._copy()
        changed.triggers = triggers
        return changed

    def with_overrides(self, overrides: Mapping[str, TaskOverrides]) -> Self:
        """Return a copy with task options overridden from outside the code; the workflow itself if there are none.

        The keys name workflow and task, "daily_report.large". The copy keeps the overrides of other workflows too, so
        that another process can apply them to everything from the same package.
        """
        if not overrides:
            return self
        own = dict(overrides_for(self.name, overrides))
        known = {task.name: task for task in self.tasks}
        if problems := [
            Problem(message=f"settings of task '{name}': {problem}")
            for name, one in own.items()
            if (problem := find_override_problem(one, name, known)) is not None
        ]:
            raise DefinitionError(problems, f"workflow '{self.name}'")
        changed = self._with_tasks(
            apply_overrides(own[task.name], task) if task.name in own else task for task in self.tasks
        )
        changed.task_overrides = overrides
        changed.handlers = {end: one.with_overrides(overrides) for end, one in self.handlers.items()}
        return changed

    def with_grants(self, grants: Grants | None) -> Self:
        """Return a copy whose tasks may ask of their node what their package may; itself if they may ask anything."""
        if grants is None:
            return self
        changed = self._copy()
        changed.grants = grants
        return changed

    def _with_tasks(self, tasks: Iterable[Task]) -> Self:
        """Return a copy with other tasks, which is wired again."""
        changed = self._copy()
        changed.tasks[:] = tasks
        changed._wired = None
        return changed

    def _copy(self) -> Self:
        """Return a copy that keeps the wiring, and so the version."""
        copied = copy(self)
        copied.tasks, copied.handlers = list(self.tasks), dict(self.handlers)
        return copied

    def standalone(self) -> Self:
        """Return a copy for a script: the same version, without schedules and triggers."""
        alone = self._copy()
        alone.schedules, alone.triggers = (), ()
        return alone

    def started_by_firings(self) -> Self:
        """Return a copy for a host of partitions: the same version, started by nothing but firings."""
        copied = self.standalone()
        copied.triggers = tuple(select_firing_triggers(self.triggers))
        return copied

    def check(self) -> None:
        """Wire the workflow, try schedules, compile expressions; raise one DefinitionError with every problem."""
        problems = [*self._schedule_problems(), *subscription_problems(self.triggers, self.params, self.location)]
        try:
            problems += _value_problems(self.wired())
        except DefinitionError as error:
            problems = [*error.problems, *problems]
        for one in self.handlers.values():
            try:
                one.check()
            except DefinitionError as error:
                problems += [problem for problem in error.problems if problem not in problems]
        if problems:
            raise DefinitionError(problems, f"workflow '{self.name}'")

    def wired(self) -> WiredWorkflow:
        """Return the wired workflow; wiring happens once."""
        if self._wired is None:
            handlers = {str(end): one.wired().spec.version for end, one in self.handlers.items()}
            tasks = self._resolve_graph_calls()
            self._wired = wire(self.name, tasks, self.params, handlers=handlers, handles=self.handled)
        return self._wired

    def _resolve_graph_calls(self) -> list[Task]:
        """Return the tasks, with a function for each call of a graph."""
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
        """Try each schedule on a sample slot, and yield a problem if its params are not valid."""
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
    known = ("schedule", "params", "tags", "max_active_runs", "triggers", "unfinished", "owner", "description")
    for name in given:
        yield f"a workflow has no option '{name}'{did_you_mean(name, known)}; it has {', '.join(known)}"


def _list_option_problems(option: str, value: Any) -> Iterator[str]:
    """Reject a string where a list of strings is expected: it would be read as a list of its characters."""
    if isinstance(value, str):
        yield f"{option}= takes a list, such as [{value!r}], not {value!r}"


def _value_problems(wired: WiredWorkflow) -> Iterator[Problem]:
    """Yield a problem for each task whose return type cannot be stored."""
    for name, one in wired.tasks.items():
        try:
            build_codec(one.signature.returns)
        except AUTHOR_ERRORS as error:  # author code: an annotation may hold any expression
            cause = str(error) if isinstance(error, UnstorableError) else describe(error)
            yield Problem(
                message=f"task '{name}' returns {label(one.signature.returns)}, which cannot be stored: {cause}. "
                "Return numbers, strings, lists, dicts, dates, dataclasses or tm.Boundary classes",
                location=one.task.function.location,
                node=name,
            )


def _find_duplicates(names: Sequence[Any]) -> list[Any]:
    return [name for number, name in enumerate(names) if names.index(name) < number]


def _location_of(function: Any) -> Location | None:
    code = getattr(function, "__code__", None)
    return None if code is None else Location(code.co_filename, code.co_firstlineno)


def _resolve_graph_call(task: Task, known: Sequence[str]) -> Task:
    """Return a task with its function; for a call of a graph, build the function now that the graph is complete."""
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
