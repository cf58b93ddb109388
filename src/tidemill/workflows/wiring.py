"""From declared tasks to a wired workflow: who waits for whom, what routes where, and everything that is wrong.

A parameter names a task, or is annotated with the params or the context. The rules are those of graphs; what differs is
that a task may wait for another one's end without its value, that a rule may run it without a value, and that one may
be mapped over another's list. All problems are collected before any is raised.
"""

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from inspect import unwrap
from types import CodeType, FunctionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec.structs import replace

from tidemill.annotations.context import Context
from tidemill.annotations.signatures import AuthorFunction, Parameter, Signature
from tidemill.annotations.variants import (
    NoneType,
    Variant,
    admits,
    clashes,
    is_required,
    label,
    members,
    variants,
)
from tidemill.kernel.errors import DefinitionError, Problem
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.branches import excluded
from tidemill.workflows.definition import Params, Task
from tidemill.workflows.reach import texts_of
from tidemill.workflows.rules import RULES
from tidemill.workflows.spec import Edge, TaskSpec, WorkflowSpec


class WiredTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task with its parameters resolved: what each is filled with."""

    task: Task
    signature: Signature
    takes_params: tuple[str, ...]
    takes_context: tuple[str, ...]
    spec: TaskSpec


class Wired(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow whose tasks fit together."""

    spec: WorkflowSpec
    tasks: dict[str, WiredTask]


def wire(name: str, tasks: Sequence[Task], params: type[Params] | None) -> Wired:
    """Wire a workflow, or raise one DefinitionError with every problem found."""
    return _Loom(name, tasks, params).weave()


class _Loom:
    """The work of wiring one workflow: names first, then edges, then what must hold of the whole."""

    def __init__(self, name: str, tasks: Sequence[Task], params: type[Params] | None) -> None:
        self._name = name
        self._tasks = tasks
        self._params = params
        self._problems: list[Problem] = []
        self._signatures: dict[str, Signature] = {}
        self._results: dict[str, tuple[Variant, ...] | None] = {}

    def weave(self) -> Wired:
        self._read_signatures()
        wired = {task.name: self._wire_task(task) for task in self._tasks}
        self._check_routes(wired)
        self._check_cycles(wired)
        if self._problems:
            raise DefinitionError(self._problems, f"workflow '{self._name}'")
        specs = tuple(one.spec for one in wired.values())
        return Wired(spec=WorkflowSpec(name=self._name, tasks=specs, code=_digest(self._tasks)), tasks=wired)

    def _complain(self, task: Task, message: str, parameter: str | None = None) -> None:
        location = task.function.location
        self._problems.append(Problem(message=message, location=location, node=task.name, parameter=parameter))

    def _read_signatures(self) -> None:
        if not self._tasks:
            self._problems.append(Problem(message="a workflow needs at least one task"))
        seen: dict[str, Task] = {}
        for task in self._tasks:
            if task.name in seen:
                first = seen[task.name].function.location
                self._complain(task, f"task '{task.name}' is declared twice, first at {first}")
            seen[task.name] = task
            signature = task.function.signature()
            self._problems.extend(signature.problems)
            self._signatures[task.name] = signature
            found = variants(signature.returns)
            self._results[task.name] = found
            for one, other in clashes(found or ()):
                self._complain(
                    task,
                    f"task '{task.name}' returns {one.label} or {other.label}, which are both '{one.cls.__name__}' at "
                    "run time: give each a class of its own",
                )

    # -- edges

    def _wire_task(self, task: Task) -> WiredTask:
        signature = self._signatures[task.name]
        params = tuple(one.name for one in signature.parameters if self._takes_params(task, one))
        context = tuple(one.name for one in signature.parameters if Context in members(one.annotation))
        data = [one for one in signature.parameters if one.name not in (*params, *context)]
        edges = [edge for one in data if (edge := self._data_edge(task, one)) is not None]
        edges += self._order_edges(task)
        rule = self._rule(task, data)
        if task.rule is None and rule == "all_success":
            edges = [self._optional(task, edge, data) for edge in edges]
        self._check_mapping(task, data)
        return WiredTask(
            task=task,
            signature=signature,
            takes_params=params,
            takes_context=context,
            spec=_spec(task, tuple(edges), rule),
        )

    def _optional(self, task: Task, edge: Edge, data: Sequence[Parameter]) -> Edge:
        """Return an edge as its annotation has it, where no rule was named; the list of a mapping is always needed."""
        is_optional = any(one.name == edge.parameter and not is_required(one) for one in data)
        return replace(edge, optional=True) if is_optional and edge.parameter != task.each else edge

    def _takes_params(self, task: Task, parameter: Parameter) -> bool:
        asked = parameter.annotation
        if not (isinstance(asked, type) and issubclass(asked, Params)):
            return False
        if self._params is None or not issubclass(self._params, asked):
            declared = "no params" if self._params is None else label(self._params)
            self._complain(
                task,
                f"parameter '{parameter.name}' of task '{task.name}' takes {label(asked)}, but workflow "
                f"'{self._name}' has {declared}: pass params={label(asked)}",
                parameter.name,
            )
        return True

    def _data_edge(self, task: Task, parameter: Parameter) -> Edge | None:
        if parameter.name not in self._results:
            known = [name for name in self._results if name != task.name]
            self._complain(
                task,
                f"parameter '{parameter.name}' of task '{task.name}' names no task of workflow '{self._name}'"
                f"{did_you_mean(parameter.name, known) or self._meaning_of(parameter)}",
                parameter.name,
            )
            return None
        opens_list = task.each == parameter.name and not self._is_mapped(task.each)
        takes = self._lists_admitted(task, parameter) if opens_list else self._admitted(task, parameter)
        return Edge(parameter.name, parameter.name, takes)

    def _meaning_of(self, parameter: Parameter) -> str:
        """Return what an author may have meant by a parameter that names no task."""
        if parameter.name in ("ctx", "context"):
            return f": for the context annotate it, `{parameter.name}: tm.Context`"
        if self._params is not None and parameter.name in self._params.__struct_fields__:
            return f": for the run's params take `params: {label(self._params)}`, and use `params.{parameter.name}`"
        if parameter.name != "params":
            return "; if each run is to be given it, declare it in a class of tm.Params, Workflow(..., params=CLASS)"
        if self._params is None:
            return ": for the run's params declare a tm.Params class, or take `ctx: tm.Context` and use ctx['name']"
        return f": for the run's params annotate it, `params: {label(self._params)}`"

    def _admitted(self, task: Task, parameter: Parameter) -> tuple[str, ...] | None:
        """Return the variants that a parameter admits; None for all of them."""
        source = parameter.name
        given = self._results[source] if task.each == source else variants(self._returns(source))
        if given is None or variants(parameter.annotation) is None:
            return None
        admitted = [one for one in given if admits(parameter.annotation, one)]
        if not any(one.cls is not NoneType for one in admitted) and any(one.cls is not NoneType for one in given):
            self._complain_of_never(task, parameter, given)
        return _labels(admitted, given)

    def _lists_admitted(self, task: Task, parameter: Parameter) -> tuple[str, ...] | None:
        """Return the variants that are lists of what a parameter admits; None if there are no others."""
        given = self._results[parameter.name]
        lists = [one for one in given or () if issubclass(one.cls, list | tuple)]
        if given is None or not lists:  # that it is no list is said elsewhere
            return None
        admitted = [one for one in lists if self._admits_elements(task, parameter, one)]
        if not admitted:
            elements = [one for each in lists for one in variants(_element(each.annotation)) or ()]
            self._complain_of_never(task, parameter, elements)
        return _labels(admitted, given)

    def _admits_elements(self, task: Task, parameter: Parameter, given: Variant) -> bool:
        """Return whether a parameter admits the elements of a list: all of them, for they have one way to go."""
        elements = variants(_element(given.annotation))
        if elements is None or variants(parameter.annotation) is None:
            return True
        admitted = [one for one in elements if admits(parameter.annotation, one)]
        if admitted and len(admitted) < len(elements):
            both = " | ".join(one.label for one in elements)
            self._complain(
                task,
                f"parameter '{parameter.name}' of task '{task.name}' takes {label(parameter.annotation)}, but the "
                f"elements of '{parameter.name}' are {both}, and a list goes one way: take all of it, or let a task "
                f"that is mapped over '{parameter.name}' return {both}, and map over that one",
                parameter.name,
            )
        return bool(admitted)

    def _complain_of_never(self, task: Task, parameter: Parameter, given: Sequence[Variant]) -> None:
        self._complain(
            task,
            f"parameter '{parameter.name}' of task '{task.name}' takes {label(parameter.annotation)}, which can "
            f"never arrive: task '{parameter.name}' gives {' | '.join(one.label for one in given)}",
            parameter.name,
        )

    def _returns(self, name: str) -> Any:
        """Return what a task as a whole returns: a list if it is mapped."""
        returns = self._signatures[name].returns
        return list[returns] if self._is_mapped(name) else returns  # type: ignore[valid-type]

    def _is_mapped(self, name: str) -> bool:
        return next(one for one in self._tasks if one.name == name).each is not None

    def _order_edges(self, task: Task) -> Iterator[Edge]:
        for name in task.after:
            if name in self._results:
                yield Edge(name)
            else:
                hint = did_you_mean(name, [one for one in self._results if one != task.name])
                self._complain(task, f"task '{task.name}' comes after '{name}', which is no task{hint}")

    def _rule(self, task: Task, data: Sequence[Parameter]) -> str:
        required = [one for one in data if is_required(one)]
        if task.rule is None:
            return "all_success" if required or not data else "none_failed"
        if task.rule not in RULES:
            self._complain(
                task, f"rule is one of {', '.join(RULES)}, not {task.rule!r}{did_you_mean(task.rule, RULES)}"
            )
            return "all_success"
        if task.rule != "all_success":
            for one in required:
                self._complain(
                    task,
                    f"rule '{task.rule}' can run task '{task.name}' without a value for '{one.name}': annotate it "
                    f"'{label(one.annotation)} | None'",
                    one.name,
                )
        return task.rule

    def _check_mapping(self, task: Task, data: Sequence[Parameter]) -> None:
        if task.each is None:
            return
        if task.each not in self._results:
            known = [one for one in self._results if one != task.name]
            self._complain(task, f"each='{task.each}' names no task{did_you_mean(task.each, known)}")
        elif not any(one.name == task.each for one in data):
            self._complain(task, f"task '{task.name}' is mapped over '{task.each}' but has no parameter of that name")
        elif not _is_list(returns := self._returns(task.each)):
            said = f"each='{task.each}' maps over a list, and task '{task.each}' returns {label(returns)}"
            self._complain(task, said)

    # -- the whole

    def _check_routes(self, wired: dict[str, WiredTask]) -> None:
        for name, one in wired.items():
            found = self._results[name]
            edges = [edge for other in wired.values() for edge in other.spec.edges if edge.source == name]
            # A parameter that nothing can reach has been complained of: it says nothing about the variants.
            data = [edge for edge in edges if edge.parameter is not None and edge.takes != ()]
            for ignored in one.task.ignores:
                if found is not None and not any(admits(ignored, variant) for variant in found):
                    self._complain(one.task, f"task '{name}' ignores {label(ignored)}, which it never returns")
            if found is None or not data:
                continue
            for variant in found:
                if variant.cls is NoneType or any(admits(ignored, variant) for ignored in one.task.ignores):
                    continue
                if not any(edge.takes is None or variant.label in edge.takes for edge in data):
                    self._complain(
                        one.task,
                        f"task '{name}' may return {variant.label}, which no task takes: add a task with a parameter "
                        f"'{name}: {variant.label}', or declare ignores=[{variant.label}]",
                    )

    def _check_cycles(self, wired: dict[str, WiredTask]) -> None:
        try:
            TopologicalSorter({name: one.spec.sources for name, one in wired.items()}).prepare()
        except CycleError as error:
            path: list[str] = error.args[1]
            self._complain(wired[path[0]].task, f"tasks form a cycle: {' -> '.join(path)}")
            return
        for name, source in excluded({name: one.spec for name, one in wired.items()}):
            task = wired[name].task
            how = "make them optional (`| None`)" if task.rule is None else "make them optional and leave rule= out"
            self._complain(
                task,
                f"task '{name}' can never run: its inputs come from branches of '{source}' that exclude each other; "
                f"{how} to join branches",
            )


def _spec(task: Task, edges: tuple[Edge, ...], rule: str) -> TaskSpec:
    return TaskSpec(
        name=task.name,
        edges=edges,
        rule=rule,
        each=task.each,
        tries=1 + (task.retry.times if task.retry else 0),
        timeout=task.timeout,
        pool=task.pool,
        priority=task.priority,
        queue=task.queue,
        executor=task.executor,
    )


def _is_list(annotation: Any) -> bool:
    """Return whether an annotation may be a list: only what says otherwise is none."""
    found = variants(annotation)
    return found is None or any(issubclass(one.cls, list | tuple) for one in found)


def _element(annotation: Any) -> Any:
    """Return what the elements of a list are."""
    args = tuple(one for one in get_args(annotation) if one is not ...)
    return Union[args] if get_origin(annotation) in (list, tuple) and args else Any  # noqa: UP007


def _labels(admitted: Sequence[Variant], given: Sequence[Variant]) -> tuple[str, ...] | None:
    """Return the names of the variants that a parameter admits; None for all that there are."""
    return None if len(admitted) == len(given) else tuple(one.label for one in admitted)


def _digest(tasks: Sequence[Task]) -> str:
    """Return what changes when the code of a task does, or what it uses, and not when it only moves or is commented."""
    functions = [[unwrap(one.call) for one in _functions(task)] for task in tasks]
    codes = [[_code(getattr(one, "__code__", None)) for one in some] for some in functions]
    used = texts_of(one for some in functions for one in some if isinstance(one, FunctionType))
    return sha256(repr((codes, used)).encode()).hexdigest()[:16]


def _functions(task: Task) -> Sequence[AuthorFunction]:
    return [task.function] if task.graph is None or isinstance(task.graph, str) else task.graph.functions()


def _code(code: CodeType | None) -> Any:
    """Return what a function does, without where it stands."""
    if code is None:
        return None
    return code.co_code.hex(), code.co_names, code.co_varnames, [_constant(one) for one in code.co_consts]


def _constant(value: Any) -> Any:
    """Return a constant so that it reads the same in every process: a set has another order in each."""
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, frozenset):
        return "frozenset", sorted(repr(_constant(one)) for one in value)
    return tuple(_constant(one) for one in value) if isinstance(value, tuple) else value
