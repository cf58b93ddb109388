"""Load and unload checks: everything that forbids a change is found before anything has changed."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.graphs.staging import describe_subscribers, reactor_in_use_error
from tidemill.engine.registry import Registry
from tidemill.engine.workflows.engine import WorkflowEngine
from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import DefinitionError, Location, Problem, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.deploy.change import (
    NameClaim,
    PackageChange,
    graph_names,
    observed_graph_names,
    trigger_names,
)
from tidemill.packages.loading.metadata import PackageMetadata
from tidemill.packages.loading.reader import find_line, initial_state_problems
from tidemill.telemetry import events
from tidemill.workflows.definition import Trigger
from tidemill.workflows.firing_trigger import select_firing_triggers
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

_MANIFEST_FILE = "package.toml"  # the manifest module takes time to import, and a node may load no package files

FindDefinition = Callable[[str, str], Graph | Workflow | Trigger | None]
"""Returns the registered definition of a tenant and a name."""


class LoadChecks:
    """Checks that a package may be loaded, replaced or unloaded on this node."""

    def __init__(self, scheduler: GraphScheduler, registry: Registry, engine: WorkflowEngine) -> None:
        self._scheduler = scheduler
        self._registry = registry
        self._engine = engine

    def check_load(self, change: PackageChange, names_leaving: Collection[NameClaim]) -> None:
        """Raise unless the package can be loaded, as far as that is known before it is staged.

        `names_leaving` are still registered, but their packages are being unloaded.
        """
        for reactor in change.after.reactors:
            if problems := list(initial_state_problems(reactor)):
                raise DefinitionError(problems, f"reactor '{reactor.name}'")
        self._check_names(change)
        self._check_dependencies_stay(change, names_leaving)
        self._check_workflows(change)
        self._check_dependents(change)
        self._check_sharing(change)
        for graph in change.after.triggerless:
            graph.check()

    def check_unload(self, change: PackageChange) -> None:
        """Raise if other packages need the package."""
        self._check_dependents(change)
        own = frozenset(one.name for one in change.before.graphs)
        for reactor in change.before.reactors:
            self._scheduler.loaded.check_unloadable(change.tenant, reactor.name, own)

    # -- names

    def _check_names(self, change: PackageChange) -> None:
        tenant, before, after = change.tenant, change.before, change.after
        registry = self._registry
        graphs, owned_graphs = (*after.triggerless, *after.graphs), _names((*before.triggerless, *before.graphs))
        kinds: list[tuple[str, FindDefinition, Iterable[Graph | Workflow | Trigger], Collection[str]]] = [
            ("graph", registry.graphs.find, graphs, owned_graphs),
            ("workflow", registry.workflows.find, after.workflows, _names(before.workflows)),
            ("trigger", registry.triggers.find, after.triggers, _names(before.triggers)),
        ]
        for kind, find, arriving, owned in kinds:
            for one in arriving:
                registered = find(tenant, one.name)
                if registered is not None and one.name not in owned:
                    message = f"{kind} '{one.name}' is already defined at {registered.location}; rename one of them"
                    raise RequestError(message, code="name_taken", status=409, name=one.name)

    def _check_dependencies_stay(self, change: PackageChange, names_leaving: Collection[NameClaim]) -> None:
        """Reject a change that relies on a name of a package that is being unloaded."""
        if leaving := sorted(change.references.intersection(names_leaving)):
            message = f"{leaving[0]} is being unloaded with its package; load this when that is done"
            raise RequestError(message, code="being_unloaded", status=409, name=leaving[0].name)

    # -- workflows

    def _check_workflows(self, change: PackageChange) -> None:
        """Raise all problems of all workflows together, with every trigger and graph that is missing."""
        found = {one.name: list(self._workflow_problems(change, one)) for one in change.workflows}
        invalid = {name: problems for name, problems in found.items() if problems}
        if invalid:
            subject = f"package '{change.name}'" if len(invalid) > 1 else f"workflow '{next(iter(invalid))}'"
            raise DefinitionError([one for problems in invalid.values() for one in problems], subject)
        for workflow in change.workflows:
            self._warn_missing_reactors(change, workflow)

    def _workflow_problems(self, change: PackageChange, workflow: Workflow) -> Iterator[Problem]:
        try:
            if workflow.handled is None:  # else it is checked with the workflow that it belongs to
                workflow.check()
        except DefinitionError as error:
            yield from error.problems
        try:
            self._engine.check(workflow)
        except DefinitionError as error:
            yield from (_relocate_to_manifest(workflow, one) for one in error.problems)
        yield from self._unknown_triggers(change, workflow)
        yield from self._unknown_observed_graphs(change, workflow)

    def _unknown_triggers(self, change: PackageChange, workflow: Workflow) -> Iterator[Problem]:
        known = {*self._registry.triggers(change.tenant), *_names(change.after.triggers)}
        known -= set(change.removed_triggers)
        for name in workflow.triggers:
            if isinstance(name, str) and name not in known:
                message = f"there is no trigger '{name}'{did_you_mean(name, known)}: load it first, or pass it"
                yield Problem(message=message, location=workflow.location)

    def _unknown_observed_graphs(self, change: PackageChange, workflow: Workflow) -> Iterator[Problem]:
        known = {*self._registry.graphs(change.tenant), *_names(change.after.graphs)}
        for one in select_firing_triggers(workflow.triggers):
            if (name := one.graph_name) is not None and one.source is None:
                remedy = "load it first, or together with the workflow"
                message = f"{one.title}: there is no graph '{name}'{did_you_mean(name, known)}"
                yield Problem(message=f"{message}: {remedy}", location=one.location or workflow.location)

    def _warn_missing_reactors(self, change: PackageChange, workflow: Workflow) -> None:
        """Log reactors that a workflow subscribes to but that are not loaded: they may come later, or be misspelt."""
        known = {*self._registry.reactors(change.tenant), *_names(change.after.reactors)}
        for name in (one.reactor_name for one in select_firing_triggers(workflow.triggers)):
            if name is not None and name not in known:
                reason = f"reactor '{name}' not loaded{did_you_mean(name, known)}"
                logger.warning(events.SUBSCRIPTION_REACTOR_MISSING, extra={"workflow": workflow.name, "reason": reason})

    # -- dependents

    def _check_dependents(self, change: PackageChange) -> None:
        """Reject removing a trigger or graph that other packages name, and a graph that breaks their workflows."""
        for name in sorted(change.removed_triggers):
            if others := self._workflows_naming(change, name, trigger_names):
                message = describe_subscribers(f"trigger '{name}'", others)
                raise RequestError(message, code="trigger_in_use", status=409, subscribers=others)
        for name in sorted(change.removed_graphs):
            if others := self._workflows_naming(change, name, graph_names):
                message = describe_subscribers(f"graph '{name}'", others)
                raise RequestError(message, code="graph_in_use", status=409, subscribers=others)
        for name in sorted(change.removed_bound_graphs):
            if others := self._workflows_naming(change, name, observed_graph_names):
                message = describe_subscribers(f"graph '{name}'", others)
                raise RequestError(message, code="graph_in_use", status=409, subscribers=others)
        for workflow in change.rebound_callers:
            self._check_rebound_workflow(change, workflow)

    def _workflows_naming(
        self, change: PackageChange, name: str, names_of: Callable[[Workflow], Collection[str]]
    ) -> list[str]:
        """Return the workflows of other packages that use a name."""
        others = (workflow for definitions in change.others for workflow in definitions.workflows)
        return sorted(one.name for one in others if name in names_of(one))

    def _check_rebound_workflow(self, change: PackageChange, workflow: Workflow) -> None:
        try:
            workflow.check()
        except DefinitionError as error:
            newer = {one.name for one in (*change.after.triggerless, *change.after.graphs)}
            used = (*graph_names(workflow), *observed_graph_names(workflow))
            name = next(one for one in used if one in newer)
            message = describe_subscribers(f"graph '{name}'", [workflow.name], [error])
            raise RequestError(message, code="graph_in_use", status=409, subscribers=[workflow.name]) from error

    def _check_sharing(self, change: PackageChange) -> None:
        """Reject a change that stops sharing a reactor while graphs of other tenants are bound to it."""
        for reactor in change.after.reactors:
            if reactor.name in change.before.shared - change.after.shared:
                bound = self._scheduler.loaded.subscribers(change.tenant, reactor.name)
                if others := [name for name in bound if "/" in name]:
                    raise reactor_in_use_error(reactor.name, others, changes=["no longer shares it with other tenants"])


def missing_dependencies(
    registry: Registry, tenant: str, metadata: PackageMetadata, leaving: Collection[NameClaim] = ()
) -> list[str]:
    """Return what other packages must provide before a package can be loaded, such as "reactor 'market'".

    Names that its older version has and that are `leaving` do not count as provided.
    """

    def remaining(kind: str, names: Iterable[str]) -> set[str]:
        return {name for name in names if NameClaim(kind, tenant, name) not in leaving}

    reactors = {one.name for one in metadata.reactors} | remaining("reactor", registry.reactors(tenant))
    reactors |= {f"{tenant}/{name}" for name in reactors}
    graphs = {one.name for one in metadata.graphs} | remaining("graph", registry.graphs(tenant))
    triggers = {one.name for one in metadata.triggers} | remaining("trigger", registry.triggers(tenant))
    accumulators = {own.name for one in metadata.reactors for own in one.accumulators}
    accumulators |= remaining("accumulator", registry.accumulators(tenant))
    fed = [name for one in metadata.graphs for name in one.feeds]
    bound = [one.reactor for one in metadata.graphs if one.reactor is not None]
    called = [name for one in metadata.workflows for name in one.needed_graphs]
    polled = [name for one in metadata.workflows for name in one.triggers]
    return sorted(
        {f"reactor '{name}'" for name in bound if name not in reactors and not _is_shared(registry, name)}
        | {f"graph '{name}'" for name in called if name not in graphs}
        | {f"trigger '{name}'" for name in polled if name not in triggers}
        | {f"accumulator '{name}'" for name in fed if name not in accumulators}
    )


def _is_shared(registry: Registry, reactor: str) -> bool:
    owner, _, name = reactor.rpartition("/")
    return registry.is_shared(owner, name)


def _relocate_to_manifest(workflow: Workflow, problem: Problem) -> Problem:
    """Return a problem of a pool or an executor; if the manifest names it, with the manifest's location."""
    name = f"{workflow.name}.{problem.node}"
    overrides = workflow.task_overrides.get(name, {})
    named = [overrides[option] for option in ("pool", "executor") if option in overrides]
    if problem.location is None or not any(f"'{one}'" in problem.message for one in named):
        return problem
    message, location = f'[tasks."{name}"] in {_MANIFEST_FILE}: {problem.message}', None
    for folder in Path(problem.location.file).parents:
        with suppress(OSError, UnicodeDecodeError):  # the file may be in an archive, or on another machine
            line = find_line(folder / _MANIFEST_FILE, name)
            location = None if line is None else Location(str(folder / _MANIFEST_FILE), line)
            break
    return replace(problem, message=message, location=location)


def _names(definitions: Iterable[Reactor | Graph | Workflow | Trigger]) -> set[str]:
    return {one.name for one in definitions}
