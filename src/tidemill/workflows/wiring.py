"""From declared tasks to a wired workflow: who waits for whom, what routes where, and everything that is wrong.

A parameter names a task, or is annotated with the params or the context. The rules are those of graphs; what differs is
that a task may wait for another one's end without its value, that a rule may run it without a value, and that one may
be mapped over another's list. All problems are collected before any is raised.
"""

from collections.abc import Iterator, Mapping, Sequence
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
    expand_variants,
    find_clashes,
    is_required,
    label,
    union_members,
)
from tidemill.kernel.errors import DefinitionError, Problem
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.code_fingerprint import referenced_definitions
from tidemill.workflows.definition import Params, Task
from tidemill.workflows.rules import RULES
from tidemill.workflows.spec import Edge, TaskSpec, WorkflowSpec

RequiredVariants = dict[str, frozenset[str]]
"""Of each task that takes branches: the variants with which a task can still run."""


def find_unreachable_tasks(tasks: Mapping[str, TaskSpec]) -> Iterator[tuple[str, str]]:
    """Yield the tasks that need two branches of one task at once, with that task; there must be no cycle.

    Only "all_success" needs anything of those before it: by every other rule a task may run without them.
    """
    needs: dict[str, RequiredVariants] = {}
    for name in TopologicalSorter({name: one.upstream for name, one in tasks.items()}).static_order():
        found: RequiredVariants = {}
        for edge in tasks[name].edges if tasks[name].rule == "all_success" else ():
            if edge.optional:
                continue
            is_mapped = tasks[edge.source].each is not None
            for source, variants in _required_variants(edge, needs[edge.source], is_mapped=is_mapped).items():
                found[source] = found.get(source, variants) & variants
        needs[name] = {source: variants for source, variants in found.items() if variants}
        for source in found.keys() - needs[name].keys():  # said once: what comes after it needs nothing of them
            yield name, source


def _required_variants(edge: Edge, upstream: RequiredVariants, *, is_mapped: bool) -> RequiredVariants:
    """Return what must have been returned for an edge to be fulfilled; the elements of a mapped task go many ways."""
    if not edge.takes or is_mapped:
        return upstream
    return upstream | {edge.source: frozenset(edge.takes)}


class WiredTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task with its parameters resolved: what each is filled with."""

    task: Task
    signature: Signature
    takes_params: tuple[str, ...]
    takes_context: tuple[str, ...]
    spec: TaskSpec


class WiredWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow whose tasks fit together."""

    spec: WorkflowSpec
    tasks: dict[str, WiredTask]


def wire(name: str, tasks: Sequence[Task], params: type[Params] | None) -> WiredWorkflow:
    """Wire a workflow, or raise one DefinitionError with every problem found."""
    return _Wirer(name, tasks, params).wire()


class _Wirer:
    """The work of wiring one workflow: names first, then edges, then what must hold of the whole."""

    def __init__(self, name: str, tasks: Sequence[Task], params: type[Params] | None) -> None:
        self._name = name
        self._tasks = tasks
        self._params = params
        self._problems: list[Problem] = []
        self._signatures: dict[str, Signature] = {}
        self._result_variants: dict[str, tuple[Variant, ...] | None] = {}

    def wire(self) -> WiredWorkflow:
        self._read_signatures()
        wired = {task.name: self._wire_task(task) for task in self._tasks}
        self._check_routes(wired)
        self._check_cycles(wired)
        if self._problems:
            raise DefinitionError(self._problems, f"workflow '{self._name}'")
        specs = tuple(one.spec for one in wired.values())
        return WiredWorkflow(
            spec=WorkflowSpec(name=self._name, tasks=specs, code=_code_digest(self._tasks)), tasks=wired
        )

    def _add_problem(self, task: Task, message: str, parameter: str | None = None) -> None:
        location = task.function.location
        self._problems.append(Problem(message=message, location=location, node=task.name, parameter=parameter))

    def _read_signatures(self) -> None:
        if not self._tasks:
            self._problems.append(Problem(message="a workflow needs at least one task"))
        seen: dict[str, Task] = {}
        for task in self._tasks:
            if task.name in seen:
                first = seen[task.name].function.location
                self._add_problem(task, f"task '{task.name}' is declared twice, first at {first}")
            seen[task.name] = task
            signature = task.function.signature()
            self._problems.extend(signature.problems)
            self._signatures[task.name] = signature
            found = expand_variants(signature.returns)
            self._result_variants[task.name] = found
            for one, other in find_clashes(found or ()):
                self._add_problem(
                    task,
                    f"task '{task.name}' returns {one.label} or {other.label}, which are both '{one.cls.__name__}' at "
                    "run time: give each a class of its own",
                )

    # -- edges

    def _wire_task(self, task: Task) -> WiredTask:
        signature = self._signatures[task.name]
        params = tuple(one.name for one in signature.parameters if self._takes_params(task, one))
        context = tuple(one.name for one in signature.parameters if Context in union_members(one.annotation))
        data = [one for one in signature.parameters if one.name not in (*params, *context)]
        edges = [edge for one in data if (edge := self._data_edge(task, one)) is not None]
        edges += self._order_edges(task)
        rule = self._resolve_rule(task, data)
        if task.rule is None and rule == "all_success":
            edges = [self._as_optional(task, edge, data) for edge in edges]
        self._check_mapping(task, data)
        return WiredTask(
            task=task,
            signature=signature,
            takes_params=params,
            takes_context=context,
            spec=_build_spec(task, tuple(edges), rule),
        )

    def _as_optional(self, task: Task, edge: Edge, data: Sequence[Parameter]) -> Edge:
        """Return an edge as its annotation has it, where no rule was named; the list of a mapping is always needed."""
        is_optional = any(one.name == edge.parameter and not is_required(one) for one in data)
        return replace(edge, optional=True) if is_optional and edge.parameter != task.each else edge

    def _takes_params(self, task: Task, parameter: Parameter) -> bool:
        asked = parameter.annotation
        if not (isinstance(asked, type) and issubclass(asked, Params)):
            return False
        if self._params is None or not issubclass(self._params, asked):
            declared = "no params" if self._params is None else label(self._params)
            self._add_problem(
                task,
                f"parameter '{parameter.name}' of task '{task.name}' takes {label(asked)}, but workflow "
                f"'{self._name}' has {declared}: pass params={label(asked)}",
                parameter.name,
            )
        return True

    def _data_edge(self, task: Task, parameter: Parameter) -> Edge | None:
        if parameter.name not in self._result_variants:
            known = [name for name in self._result_variants if name != task.name]
            self._add_problem(
                task,
                f"parameter '{parameter.name}' of task '{task.name}' names no task of workflow '{self._name}'"
                f"{did_you_mean(parameter.name, known) or self._parameter_hint(parameter)}",
                parameter.name,
            )
            return None
        opens_list = task.each == parameter.name and not self._is_mapped(task.each)
        takes = self._admitted_lists(task, parameter) if opens_list else self._admitted_variants(task, parameter)
        return Edge(parameter.name, parameter.name, takes)

    def _parameter_hint(self, parameter: Parameter) -> str:
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

    def _admitted_variants(self, task: Task, parameter: Parameter) -> tuple[str, ...] | None:
        """Return the variants that a parameter admits; None for all of them."""
        source = parameter.name
        given = self._result_variants[source] if task.each == source else expand_variants(self._return_type(source))
        if given is None or expand_variants(parameter.annotation) is None:
            return None
        admitted = [one for one in given if admits(parameter.annotation, one)]
        if not any(one.cls is not NoneType for one in admitted) and any(one.cls is not NoneType for one in given):
            self._add_never_arrives(task, parameter, given)
        return _labels(admitted, given)

    def _admitted_lists(self, task: Task, parameter: Parameter) -> tuple[str, ...] | None:
        """Return the variants that are lists of what a parameter admits; None if there are no others."""
        given = self._result_variants[parameter.name]
        lists = [one for one in given or () if issubclass(one.cls, list | tuple)]
        if given is None or not lists:  # that it is no list is said elsewhere
            return None
        admitted = [one for one in lists if self._admits_elements(task, parameter, one)]
        if not admitted:
            elements = [one for each in lists for one in expand_variants(_element_type(each.annotation)) or ()]
            self._add_never_arrives(task, parameter, elements)
        return _labels(admitted, given)

    def _admits_elements(self, task: Task, parameter: Parameter, given: Variant) -> bool:
        """Return whether a parameter admits the elements of a list: all of them, for they have one way to go."""
        elements = expand_variants(_element_type(given.annotation))
        if elements is None or expand_variants(parameter.annotation) is None:
            return True
        admitted = [one for one in elements if admits(parameter.annotation, one)]
        if admitted and len(admitted) < len(elements):
            both = " | ".join(one.label for one in elements)
            self._add_problem(
                task,
                f"parameter '{parameter.name}' of task '{task.name}' takes {label(parameter.annotation)}, but the "
                f"elements of '{parameter.name}' are {both}, and a list goes one way: take all of it, or let a task "
                f"that is mapped over '{parameter.name}' return {both}, and map over that one",
                parameter.name,
            )
        return bool(admitted)

    def _add_never_arrives(self, task: Task, parameter: Parameter, given: Sequence[Variant]) -> None:
        self._add_problem(
            task,
            f"parameter '{parameter.name}' of task '{task.name}' takes {label(parameter.annotation)}, which can "
            f"never arrive: task '{parameter.name}' gives {' | '.join(one.label for one in given)}",
            parameter.name,
        )

    def _return_type(self, name: str) -> Any:
        """Return what a task as a whole returns: a list if it is mapped."""
        returns = self._signatures[name].returns
        return list[returns] if self._is_mapped(name) else returns  # type: ignore[valid-type]

    def _is_mapped(self, name: str) -> bool:
        return next(one for one in self._tasks if one.name == name).each is not None

    def _order_edges(self, task: Task) -> Iterator[Edge]:
        for name in task.after:
            if name in self._result_variants:
                yield Edge(name)
            else:
                hint = did_you_mean(name, [one for one in self._result_variants if one != task.name])
                self._add_problem(task, f"task '{task.name}' comes after '{name}', which is no task{hint}")

    def _resolve_rule(self, task: Task, data: Sequence[Parameter]) -> str:
        required = [one for one in data if is_required(one)]
        if task.rule is None:
            return "all_success" if required or not data else "none_failed"
        if task.rule not in RULES:
            self._add_problem(
                task, f"rule is one of {', '.join(RULES)}, not {task.rule!r}{did_you_mean(task.rule, RULES)}"
            )
            return "all_success"
        if task.rule != "all_success":
            for one in required:
                self._add_problem(
                    task,
                    f"rule '{task.rule}' can run task '{task.name}' without a value for '{one.name}': annotate it "
                    f"'{label(one.annotation)} | None'",
                    one.name,
                )
        return task.rule

    def _check_mapping(self, task: Task, data: Sequence[Parameter]) -> None:
        if task.each is None:
            return
        if task.each not in self._result_variants:
            known = [one for one in self._result_variants if one != task.name]
            self._add_problem(task, f"each='{task.each}' names no task{did_you_mean(task.each, known)}")
        elif not any(one.name == task.each for one in data):
            self._add_problem(
                task, f"task '{task.name}' is mapped over '{task.each}' but has no parameter of that name"
            )
        elif not _may_be_list(returns := self._return_type(task.each)):
            said = f"each='{task.each}' maps over a list, and task '{task.each}' returns {label(returns)}"
            self._add_problem(task, said)

    # -- the whole

    def _check_routes(self, wired: dict[str, WiredTask]) -> None:
        for name, one in wired.items():
            found = self._result_variants[name]
            edges = [edge for other in wired.values() for edge in other.spec.edges if edge.source == name]
            # A parameter that nothing can reach has been complained of: it says nothing about the variants.
            data = [edge for edge in edges if edge.parameter is not None and edge.takes != ()]
            for ignored in one.task.ignores:
                if found is not None and not any(admits(ignored, variant) for variant in found):
                    self._add_problem(one.task, f"task '{name}' ignores {label(ignored)}, which it never returns")
            if found is None or not data:
                continue
            for variant in found:
                if variant.cls is NoneType or any(admits(ignored, variant) for ignored in one.task.ignores):
                    continue
                if not any(edge.takes is None or variant.label in edge.takes for edge in data):
                    self._add_problem(
                        one.task,
                        f"task '{name}' may return {variant.label}, which no task takes: add a task with a parameter "
                        f"'{name}: {variant.label}', or declare ignores=[{variant.label}]",
                    )

    def _check_cycles(self, wired: dict[str, WiredTask]) -> None:
        try:
            TopologicalSorter({name: one.spec.upstream for name, one in wired.items()}).prepare()
        except CycleError as error:
            path: list[str] = error.args[1]
            self._add_problem(wired[path[0]].task, f"tasks form a cycle: {' -> '.join(path)}")
            return
        for name, source in find_unreachable_tasks({name: one.spec for name, one in wired.items()}):
            task = wired[name].task
            how = "make them optional (`| None`)" if task.rule is None else "make them optional and leave rule= out"
            self._add_problem(
                task,
                f"task '{name}' can never run: its inputs come from branches of '{source}' that exclude each other; "
                f"{how} to join branches",
            )


def _build_spec(task: Task, edges: tuple[Edge, ...], rule: str) -> TaskSpec:
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


def _may_be_list(annotation: Any) -> bool:
    """Return whether an annotation may be a list: only what says otherwise is none."""
    found = expand_variants(annotation)
    return found is None or any(issubclass(one.cls, list | tuple) for one in found)


def _element_type(annotation: Any) -> Any:
    """Return what the elements of a list are."""
    args = tuple(one for one in get_args(annotation) if one is not ...)
    return Union[args] if get_origin(annotation) in (list, tuple) and args else Any  # noqa: UP007


def _labels(admitted: Sequence[Variant], given: Sequence[Variant]) -> tuple[str, ...] | None:
    """Return the names of the variants that a parameter admits; None for all that there are."""
    return None if len(admitted) == len(given) else tuple(one.label for one in admitted)


def _code_digest(tasks: Sequence[Task]) -> str:
    """Return what changes when the code of a task does, or what it uses, and not when it only moves or is commented."""
    functions = [[unwrap(one.call) for one in _author_functions(task)] for task in tasks]
    codes = [[_code_key(getattr(one, "__code__", None)) for one in some] for some in functions]
    used = referenced_definitions(one for some in functions for one in some if isinstance(one, FunctionType))
    return sha256(repr((codes, used)).encode()).hexdigest()[:16]


def _author_functions(task: Task) -> Sequence[AuthorFunction]:
    return [task.function] if task.graph is None or isinstance(task.graph, str) else task.graph.functions()


def _code_key(code: CodeType | None) -> Any:
    """Return what a function does, without where it stands."""
    if code is None:
        return None
    return code.co_code.hex(), code.co_names, code.co_varnames, [_constant_key(one) for one in code.co_consts]


def _constant_key(value: Any) -> Any:
    """Return a constant so that it reads the same in every process: a set has another order in each."""
    if isinstance(value, CodeType):
        return _code_key(value)
    if isinstance(value, frozenset):
        return "frozenset", sorted(repr(_constant_key(one)) for one in value)
    return tuple(_constant_key(one) for one in value) if isinstance(value, tuple) else value
