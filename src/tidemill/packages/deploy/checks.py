"""Guards: whatever stands against a change is found before anything has changed."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.graphs.staging import describe_subscribers, reactor_in_use_error
from tidemill.engine.registry import Registry
from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import DefinitionError, Location, Problem, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.deploy.change import NameClaim, PackageChange, graph_names, referenced_names, trigger_names
from tidemill.packages.deploy.steps import WorkflowLoader
from tidemill.packages.loading.reader import initial_state_problems
from tidemill.telemetry import events
from tidemill.workflows.definition import OnFiring, Trigger
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

_MANIFEST_FILE = "package.toml"  # its own module takes time to import, and nodes without such packages do not need it

FindDefinition = Callable[[str, str], Graph | Workflow | Trigger | None]
"""Returns what is registered under a tenant and a name."""


class LoadChecks:
    """What must hold before a package is loaded, swapped or unloaded on this node."""

    def __init__(self, scheduler: GraphScheduler, registry: Registry, workflow_engine: WorkflowLoader) -> None:
        self._scheduler = scheduler
        self._registry = registry
        self._workflow_engine = workflow_engine

    def check_load(self, change: PackageChange, names_leaving: Collection[NameClaim]) -> None:
        """Raise unless the package can take its place, as far as that can be told before it is staged.

        What is `leaving` is there still, but nobody can rely on it any more.
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
        """Raise unless nobody else needs what the package has."""
        self._check_dependents(change)
        mine = frozenset(one.name for one in change.before.graphs)
        for reactor in change.before.reactors:
            self._scheduler.check_unloadable(change.tenant, reactor.name, mine)

    # -- names

    def _check_names(self, change: PackageChange) -> None:
        tenant, before, after = change.tenant, change.before, change.after
        registry = self._registry
        graphs, owned_graphs = (*after.triggerless, *after.graphs), _names((*before.triggerless, *before.graphs))
        kinds: list[tuple[str, FindDefinition, Iterable[Graph | Workflow | Trigger], Collection[str]]] = [
            ("graph", registry.graph, graphs, owned_graphs),
            ("workflow", registry.workflow, after.workflows, _names(before.workflows)),
            ("trigger", registry.trigger, after.triggers, _names(before.triggers)),
        ]
        for what, find, arriving, owned in kinds:
            for one in arriving:
                held = find(tenant, one.name)
                if held is not None and one.name not in owned:
                    message = f"{what} '{one.name}' is already defined at {held.location}; rename one of them"
                    raise RequestError(message, code="name_taken", status=409, name=one.name)

    def _check_dependencies_stay(self, change: PackageChange, names_leaving: Collection[NameClaim]) -> None:
        """Refuse to rely on what another package still has, although that is to be gone."""
        if going := sorted(referenced_names(change).intersection(names_leaving)):
            message = f"{going[0]} is being unloaded with its package; load this when that is done"
            raise RequestError(message, code="being_unloaded", status=409, name=going[0].name)

    # -- workflows

    def _check_workflows(self, change: PackageChange) -> None:
        """Raise everything that is wrong with the workflows, and every trigger and graph that they miss, at once."""
        found = {one.name: list(self._workflow_problems(change, one)) for one in change.workflows}
        problems = {name: said for name, said in found.items() if said}
        if problems:
            subject = f"package '{change.name}'" if len(problems) > 1 else f"workflow '{next(iter(problems))}'"
            raise DefinitionError([one for said in problems.values() for one in said], subject)
        for workflow in change.workflows:
            self._warn_missing_reactors(change, workflow)

    def _workflow_problems(self, change: PackageChange, workflow: Workflow) -> Iterator[Problem]:
        try:
            workflow.check()
        except DefinitionError as error:
            yield from error.problems
        try:
            self._workflow_engine.check(workflow)
        except DefinitionError as error:
            yield from (_relocate_to_manifest(workflow, one) for one in error.problems)
        yield from self._unknown_triggers(change, workflow)

    def _unknown_triggers(self, change: PackageChange, workflow: Workflow) -> Iterator[Problem]:
        known = {*self._registry.triggers(change.tenant), *_names(change.after.triggers)}
        known -= set(change.removed_triggers)
        for name in workflow.triggers:
            if isinstance(name, str) and name not in known:
                message = f"there is no trigger '{name}'{did_you_mean(name, known)}: load it first, or pass it"
                yield Problem(message=message, location=workflow.location)

    def _warn_missing_reactors(self, change: PackageChange, workflow: Workflow) -> None:
        """Say which reactors a workflow waits for: they may be loaded later, or be misspelt."""
        known = {*self._registry.reactors(change.tenant), *_names(change.after.reactors)}
        for one in workflow.triggers:
            if isinstance(one, OnFiring) and one.reactor not in known:
                said = f"reactor '{one.reactor}' not loaded{did_you_mean(one.reactor, known)}"
                logger.warning(events.SUBSCRIPTION_REACTOR_MISSING, extra={"workflow": workflow.name, "reason": said})

    # -- what others need

    def _check_dependents(self, change: PackageChange) -> None:
        """Refuse to let a trigger or a graph go that workflows of other packages name, or a graph change for them."""
        for name in sorted(change.removed_triggers):
            if others := self._workflows_naming(change, name, trigger_names):
                message = describe_subscribers(f"trigger '{name}'", others)
                raise RequestError(message, code="trigger_in_use", status=409, subscribers=others)
        for name in sorted(change.removed_graphs):
            if others := self._workflows_naming(change, name, graph_names):
                message = describe_subscribers(f"graph '{name}'", others)
                raise RequestError(message, code="graph_in_use", status=409, subscribers=others)
        for workflow in change.rebound_callers:
            self._check_rebound_workflow(change, workflow)

    def _workflows_naming(
        self, change: PackageChange, name: str, names_of: Callable[[Workflow], Collection[str]]
    ) -> list[str]:
        """Return the workflows of other packages that name something."""
        others = (workflow for holdings in change.others for workflow in holdings.workflows)
        return sorted(one.name for one in others if name in names_of(one))

    def _check_rebound_workflow(self, change: PackageChange, workflow: Workflow) -> None:
        try:
            workflow.check()
        except DefinitionError as error:
            newer = {one.name for one in change.after.triggerless}
            name = next(one for one in graph_names(workflow) if one in newer)
            message = describe_subscribers(f"graph '{name}'", [workflow.name], [error])
            raise RequestError(message, code="graph_in_use", status=409, subscribers=[workflow.name]) from error

    def _check_sharing(self, change: PackageChange) -> None:
        """Refuse to share a reactor no more while graphs of other tenants are bound to it."""
        for reactor in change.after.reactors:
            if reactor.name in change.before.shared - change.after.shared:
                bound = self._scheduler.subscribers(change.tenant, reactor.name)
                if others := [name for name in bound if "/" in name]:
                    raise reactor_in_use_error(
                        reactor.name, others, changes=["does not share it with other tenants any more"]
                    )


def _relocate_to_manifest(workflow: Workflow, problem: Problem) -> Problem:
    """Return a problem with a pool or an executor, in the manifest if that names it: the code knows nothing of it."""
    name = f"{workflow.name}.{problem.node}"
    own = workflow.task_overrides.get(name)
    named = () if own is None else (own.pool, own.executor)
    if problem.location is None or not any(one is not None and f"'{one}'" in problem.message for one in named):
        return problem
    message = f'[tasks."{name}"] in {_MANIFEST_FILE}: {problem.message}'
    return replace(problem, message=message, location=_find_in_manifest(problem.location.file, name))


def _find_in_manifest(file: str, word: str) -> Location | None:
    """Return the first line with a word in the manifest above an author's file, as well as can be told.

    None if there is no such file on this machine: it may be in an archive, and may have changed since.
    """
    for folder in Path(file).parents:
        with suppress(OSError, UnicodeDecodeError):
            text = (folder / _MANIFEST_FILE).read_text("utf-8")
            lines = (number for number, line in enumerate(text.splitlines(), 1) if word in line)
            return next((Location(str(folder / _MANIFEST_FILE), number) for number in lines), None)
    return None


def _names(definitions: Iterable[Reactor | Graph | Workflow | Trigger]) -> set[str]:
    return {one.name for one in definitions}
