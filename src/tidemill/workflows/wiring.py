"""Wires declared tasks into a workflow: resolves dependencies and branches, and collects every problem.

A parameter names a task, or is annotated with the params or the context. The rules are those of graphs, with three
differences: a task may wait for another one's end without its value, a trigger rule may run it without a value, and it
may be mapped over another task's list. All problems are collected before one error is raised.
"""

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tidemill.annotations.class_conversion import find_mismatches
from tidemill.annotations.context import Context
from tidemill.annotations.signatures import Parameter, Signature
from tidemill.annotations.variants import (
    NoneType,
    Variant,
    admits,
    expand_variants,
    find_clashes,
    is_class,
    is_required,
    label,
    union_members,
)
from tidemill.kernel.errors import DefinitionError, Problem
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.code_fingerprint import fingerprint
from tidemill.workflows.definition import Params, Task
from tidemill.workflows.handlers import RunReport
from tidemill.workflows.rules import ALL_SUCCESS, NONE_FAILED, RULES, Rule
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec

RequiredVariants = dict[str, frozenset[str]]
"""By source task, the variants of its value with which a task can still run."""


def find_unreachable_tasks(tasks: Mapping[str, TaskSpec]) -> Iterator[tuple[str, str]]:
    """Yield each task that needs two exclusive branches of one source, with that source; there must be no cycle.

    Only rules that require success can make a task unreachable: under every other rule it may run without a value.
    """
    needs: dict[str, RequiredVariants] = {}
    for name in TopologicalSorter({name: one.upstream for name, one in tasks.items()}).static_order():
        required: RequiredVariants = {}
        for edge in tasks[name].edges if tasks[name].trigger_rule.requires_success else ():
            if edge.optional:
                continue
            is_mapped = tasks[edge.source].each is not None
            for source, variants in _required_variants(edge, needs[edge.source], is_mapped=is_mapped).items():
                required[source] = required.get(source, variants) & variants
        needs[name] = {source: variants for source, variants in required.items() if variants}
        for source in required.keys() - needs[name].keys():  # reported once: downstream tasks inherit no need
            yield name, source


def _required_variants(edge: TaskEdge, upstream: RequiredVariants, *, is_mapped: bool) -> RequiredVariants:
    """Return the variants that satisfy an edge; elements of a mapped task may take different branches."""
    if not edge.takes or is_mapped:
        return upstream
    return upstream | {edge.source: frozenset(edge.takes)}


class WiredTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task with its parameters resolved."""

    task: Task
    signature: Signature
    takes_params: tuple[str, ...]
    takes_context: tuple[str, ...]
    spec: TaskSpec


class WiredWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that has passed every check of wiring."""

    spec: WorkflowSpec
    tasks: dict[str, WiredTask]


def wire(
    name: str,
    tasks: Sequence[Task],
    params: type[msgspec.Struct] | None,
    *,
    handlers: Mapping[str, str] | None = None,
    handles: str | None = None,
) -> WiredWorkflow:
    """Wire a workflow, or raise one DefinitionError with every problem found; `handlers` and `handles` see its spec."""
    wired = _Wirer(name, tasks, params).wire()
    if not handlers and handles is None:
        return wired
    spec = replace(wired.spec, handlers=dict(handlers) if handlers else UNSET, handles=handles or UNSET)
    return replace(wired, spec=spec)


class _Wirer:
    """Wires one workflow: reads signatures, then builds edges, then checks the workflow as a whole."""

    def __init__(self, name: str, tasks: Sequence[Task], params: type[msgspec.Struct] | None) -> None:
        self._name = name
        self._tasks = tasks
        self._mapped = {task.name for task in tasks if task.each is not None}
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
            spec=WorkflowSpec(name=self._name, tasks=specs, code=fingerprint(self._tasks)), tasks=wired
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
            variants = expand_variants(signature.returns)
            self._result_variants[task.name] = variants
            for one, other in find_clashes(variants or ()):
                self._add_problem(
                    task,
                    f"task '{task.name}' returns {one.label} or {other.label}, which are both '{one.cls.__name__}' at "
                    "run time: give each its own class",
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
        if task.rule is None and rule is ALL_SUCCESS:
            edges = [self._as_optional(task, edge, data) for edge in edges]
        self._check_mapping(task, data)
        return WiredTask(
            task=task,
            signature=signature,
            takes_params=params,
            takes_context=context,
            spec=_build_spec(task, tuple(edges), rule),
        )

    def _as_optional(self, task: Task, edge: TaskEdge, data: Sequence[Parameter]) -> TaskEdge:
        """Mark an edge optional if its annotation is; the list of a mapping is always required."""
        is_optional = any(one.name == edge.parameter and not is_required(one) for one in data)
        return replace(edge, optional=True) if is_optional and edge.parameter != task.each else edge

    def _takes_params(self, task: Task, parameter: Parameter) -> bool:
        expected = parameter.annotation
        if not is_class(expected):
            return False
        if not issubclass(expected, Params):  # another struct may be params, too, or what a task returns
            is_params = self._params is not None and issubclass(self._params, expected) and expected is not object
            return is_params and parameter.name not in self._result_variants
        if self._params is None or not issubclass(self._params, expected):
            declared = "no params" if self._params is None else label(self._params)
            self._add_problem(
                task,
                f"parameter '{parameter.name}' of task '{task.name}' takes {label(expected)}, but workflow "
                f"'{self._name}' has {declared}: pass params={label(expected)}",
                parameter.name,
            )
        return True

    def _data_edge(self, task: Task, parameter: Parameter) -> TaskEdge | None:
        if parameter.name not in self._result_variants:
            known = [name for name in self._result_variants if name != task.name]
            self._add_problem(
                task,
                f"parameter '{parameter.name}' of task '{task.name}' names no task of workflow '{self._name}'"
                f"{did_you_mean(parameter.name, known) or self._parameter_hint(parameter)}",
                parameter.name,
            )
            return None
        if task.each is not None and task.each not in self._result_variants:
            return TaskEdge(parameter.name, parameter.name)  # `each=` may mean this parameter: only it is reported
        opens_list = task.each == parameter.name and task.each not in self._mapped
        takes = self._admitted_lists(task, parameter) if opens_list else self._admitted_variants(task, parameter)
        return TaskEdge(parameter.name, parameter.name, takes)

    def _parameter_hint(self, parameter: Parameter) -> str:
        """Suggest what the author may have meant by a parameter that names no task."""
        if parameter.name in ("ctx", "context"):
            return f": for the context annotate it, `{parameter.name}: tm.Context`"
        if self._params is RunReport:
            return ": a handler takes the report, annotated `report: tm.RunReport`, and may take `ctx: tm.Context`"
        if self._params is not None and parameter.name in self._params.__struct_fields__:
            return f": for the run's params take `params: {label(self._params)}`, and use `params.{parameter.name}`"
        if parameter.name != "params":
            return "; if each run is to be given it, declare it in a class of tm.Params, Workflow(..., params=CLASS)"
        if self._params is None:
            return ": for the run's params declare a tm.Params class, or take `ctx: tm.Context` and use ctx['name']"
        return f": for the run's params annotate it, `params: {label(self._params)}`"

    def _admitted_variants(self, task: Task, parameter: Parameter) -> tuple[str, ...] | None:
        """Return the variants that a parameter accepts; None for all."""
        source = parameter.name
        given = self._result_variants[source] if task.each == source else expand_variants(self._return_type(source))
        if given is None or expand_variants(parameter.annotation) is None:
            return None
        admitted = [one for one in given if admits(parameter.annotation, one)]
        if not any(one.cls is not NoneType for one in admitted) and any(one.cls is not NoneType for one in given):
            self._add_never_arrives(task, parameter, given)
        return _labels(admitted, given)

    def _admitted_lists(self, task: Task, parameter: Parameter) -> tuple[str, ...] | None:
        """Return the list variants whose elements a parameter accepts; None if these are all variants."""
        given = self._result_variants[parameter.name]
        lists = [one for one in given or () if issubclass(one.cls, list | tuple)]
        if given is None or not lists:  # `_check_mapping` reports that it is not a list
            return None
        admitted = [one for one in lists if self._admits_elements(task, parameter, one)]
        if not admitted:
            elements = [one for each in lists for one in expand_variants(_element_type(each.annotation)) or ()]
            self._add_never_arrives(task, parameter, elements)
        return _labels(admitted, given)

    def _admits_elements(self, task: Task, parameter: Parameter, given: Variant) -> bool:
        """Return whether a parameter accepts the elements of a list: it must accept all, for a list is not split."""
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
        reasons = find_mismatches(parameter.annotation, [one.annotation for one in given])
        self._add_problem(
            task,
            f"parameter '{parameter.name}' of task '{task.name}' takes {label(parameter.annotation)}, which can "
            f"never arrive: task '{parameter.name}' gives {' | '.join(one.label for one in given)}"
            f"{''.join(f'; {reason}' for reason in reasons)}",
            parameter.name,
        )

    def _return_type(self, name: str) -> Any:
        """Return the type of a task's whole value: a list if it is mapped."""
        returns = self._signatures[name].returns
        return list[returns] if name in self._mapped else returns  # type: ignore[valid-type]

    def _order_edges(self, task: Task) -> Iterator[TaskEdge]:
        for name in task.after:
            if name in self._result_variants:
                yield TaskEdge(name)
            else:
                hint = did_you_mean(name, [one for one in self._result_variants if one != task.name])
                self._add_problem(task, f"task '{task.name}' comes after '{name}', which is not a task{hint}")

    def _resolve_rule(self, task: Task, data: Sequence[Parameter]) -> Rule:
        required = [one for one in data if is_required(one)]
        if task.rule is None:
            return ALL_SUCCESS if required or not data else NONE_FAILED
        rule = RULES.get(task.rule)
        if rule is None:
            self._add_problem(
                task,
                f"task '{task.name}': rule is one of {', '.join(RULES)}, not {task.rule!r}"
                f"{did_you_mean(task.rule, RULES)}",
            )
            return ALL_SUCCESS
        if not rule.requires_success:
            for one in required:
                self._add_problem(
                    task,
                    f"rule '{task.rule}' can run task '{task.name}' without a value for '{one.name}': annotate it "
                    f"'{label(one.annotation)} | None'",
                    one.name,
                )
        return rule

    def _check_mapping(self, task: Task, data: Sequence[Parameter]) -> None:
        if task.each is None:
            return
        if task.each not in self._result_variants:
            known = [one for one in self._result_variants if one != task.name]
            self._add_problem(
                task,
                f"task '{task.name}': each='{task.each}' names no task of workflow '{self._name}'"
                f"{did_you_mean(task.each, known)}",
            )
        elif not any(one.name == task.each for one in data):
            self._add_problem(
                task, f"task '{task.name}' is mapped over '{task.each}' but has no parameter of that name"
            )
        elif not _may_be_list(returns := self._return_type(task.each)):
            self._add_problem(
                task,
                f"task '{task.name}': each='{task.each}' maps over a list, and task '{task.each}' returns "
                f"{label(returns)}",
            )

    # -- checks of the whole workflow

    def _check_routes(self, wired: dict[str, WiredTask]) -> None:
        consumers: dict[str, list[TaskEdge]] = {}
        for edge in (edge for one in wired.values() for edge in one.spec.edges):
            # A parameter that no value can reach has its own problem: it takes none of the variants.
            if edge.parameter is not None and edge.takes != ():
                consumers.setdefault(edge.source, []).append(edge)
        for name, one in wired.items():
            variants, data = self._result_variants[name], consumers.get(name)
            for ignored in one.task.ignores:
                if variants is not None and not any(admits(ignored, variant) for variant in variants):
                    self._add_problem(one.task, f"task '{name}' ignores {label(ignored)}, which it never returns")
            if variants is None or not data:
                continue
            for variant in variants:
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


def _build_spec(task: Task, edges: tuple[TaskEdge, ...], rule: Rule) -> TaskSpec:
    return TaskSpec(
        name=task.name,
        edges=edges,
        rule=rule.name,
        each=task.each,
        tries=1 + (task.retry.times if task.retry else 0),
        **task.options,
    )


def _may_be_list(annotation: Any) -> bool:
    """Return whether values of an annotation may be lists; an open annotation, such as Any, may."""
    variants = expand_variants(annotation)
    return variants is None or any(issubclass(one.cls, list | tuple) for one in variants)


def _element_type(annotation: Any) -> Any:
    """Return the element type of a list annotation; Any if it names none."""
    args = tuple(one for one in get_args(annotation) if one is not ...)
    return Union[args] if get_origin(annotation) in (list, tuple) and args else Any  # noqa: UP007


def _labels(admitted: Sequence[Variant], given: Sequence[Variant]) -> tuple[str, ...] | None:
    """Return the labels of the accepted variants; None if every variant is accepted."""
    return None if len(admitted) == len(given) else tuple(one.label for one in admitted)
