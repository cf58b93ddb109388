"""Guards: whatever stands against a change is found before anything has changed."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.graphs.staging import in_use, said_of_subscribers
from tidemill.engine.registry import Registry
from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import DefinitionError, Location, Problem, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.beginnings import beginning_problems
from tidemill.packages.claims import Claim, graph_names, named_by, trigger_names
from tidemill.packages.exchange import Exchange
from tidemill.packages.steps.workflows import WorkflowLoader
from tidemill.telemetry import events
from tidemill.workflows.definition import OnFiring, Trigger
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

_MANIFEST = "package.toml"  # its own module takes time to import, and nodes without such packages do not need it

Find = Callable[[str, str], Graph | Workflow | Trigger | None]
"""Returns what is registered under a tenant and a name."""


class Guards:
    """What must hold before a package is loaded, swapped or unloaded on this node."""

    def __init__(self, scheduler: GraphScheduler, registry: Registry, loader: WorkflowLoader) -> None:
        self._scheduler = scheduler
        self._registry = registry
        self._loader = loader

    def check_load(self, exchange: Exchange, leaving: Collection[Claim]) -> None:
        """Raise unless the package can take its place, as far as that can be told before it is staged.

        What is `leaving` is there still, but nobody can rely on it any more.
        """
        for reactor in exchange.after.reactors:
            if problems := list(beginning_problems(reactor)):
                raise DefinitionError(problems, f"reactor '{reactor.name}'")
        self._check_names(exchange)
        self._check_neighbours(exchange, leaving)
        self._check_workflows(exchange)
        self._check_leaving(exchange)
        self._check_sharing(exchange)
        for graph in exchange.after.triggerless:
            graph.check()

    def check_unload(self, exchange: Exchange) -> None:
        """Raise unless nobody else needs what the package has."""
        self._check_leaving(exchange)
        mine = frozenset(one.name for one in exchange.before.graphs)
        for reactor in exchange.before.reactors:
            self._scheduler.guard_unload(exchange.tenant, reactor.name, mine)

    # -- names

    def _check_names(self, exchange: Exchange) -> None:
        tenant, before, after = exchange.tenant, exchange.before, exchange.after
        registry = self._registry
        graphs, owned_graphs = (*after.triggerless, *after.graphs), _names((*before.triggerless, *before.graphs))
        kinds: list[tuple[str, Find, Iterable[Graph | Workflow | Trigger], Collection[str]]] = [
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

    def _check_neighbours(self, exchange: Exchange, leaving: Collection[Claim]) -> None:
        """Refuse to rely on what another package still has, although that is to be gone."""
        if going := sorted(named_by(exchange).intersection(leaving)):
            message = f"{going[0]} is being unloaded with its package; load this when that is done"
            raise RequestError(message, code="being_unloaded", status=409, name=going[0].name)

    # -- workflows

    def _check_workflows(self, exchange: Exchange) -> None:
        """Raise everything that is wrong with the workflows, and every trigger and graph that they miss, at once."""
        found = {one.name: list(self._problems(exchange, one)) for one in exchange.workflows}
        problems = {name: said for name, said in found.items() if said}
        if problems:
            subject = f"package '{exchange.name}'" if len(problems) > 1 else f"workflow '{next(iter(problems))}'"
            raise DefinitionError([one for said in problems.values() for one in said], subject)
        for workflow in exchange.workflows:
            self._look_for_reactors(exchange, workflow)

    def _problems(self, exchange: Exchange, workflow: Workflow) -> Iterator[Problem]:
        try:
            workflow.check()
        except DefinitionError as error:
            yield from error.problems
        try:
            self._loader.check(workflow)
        except DefinitionError as error:
            yield from (_where_it_is_set(workflow, one) for one in error.problems)
        yield from self._unknown_triggers(exchange, workflow)

    def _unknown_triggers(self, exchange: Exchange, workflow: Workflow) -> Iterator[Problem]:
        known = {*self._registry.triggers(exchange.tenant), *_names(exchange.after.triggers)}
        known -= set(exchange.gone_triggers)
        for name in workflow.triggers:
            if isinstance(name, str) and name not in known:
                message = f"there is no trigger '{name}'{did_you_mean(name, known)}: load it first, or pass it"
                yield Problem(message=message, location=workflow.location)

    def _look_for_reactors(self, exchange: Exchange, workflow: Workflow) -> None:
        """Say which reactors a workflow waits for: they may be loaded later, or be misspelt."""
        known = {*self._registry.reactors(exchange.tenant), *_names(exchange.after.reactors)}
        for one in workflow.triggers:
            if isinstance(one, OnFiring) and one.reactor not in known:
                said = f"reactor '{one.reactor}' not loaded{did_you_mean(one.reactor, known)}"
                logger.warning(events.SUBSCRIPTION_WAITS, extra={"workflow": workflow.name, "reason": said})

    # -- what others need

    def _check_leaving(self, exchange: Exchange) -> None:
        """Refuse to let a trigger or a graph go that workflows of other packages name, or a graph change for them."""
        for name in sorted(exchange.gone_triggers):
            if others := self._naming(exchange, name, trigger_names):
                message = said_of_subscribers(f"trigger '{name}'", others)
                raise RequestError(message, code="trigger_in_use", status=409, subscribers=others)
        for name in sorted(exchange.gone_graphs):
            if others := self._naming(exchange, name, graph_names):
                message = said_of_subscribers(f"graph '{name}'", others)
                raise RequestError(message, code="graph_in_use", status=409, subscribers=others)
        for workflow in exchange.rebound:
            self._check_rebound(exchange, workflow)

    def _naming(self, exchange: Exchange, name: str, names: Callable[[Workflow], Collection[str]]) -> list[str]:
        """Return the workflows of other packages that name something."""
        others = (workflow for holdings in exchange.others for workflow in holdings.workflows)
        return sorted(one.name for one in others if name in names(one))

    def _check_rebound(self, exchange: Exchange, workflow: Workflow) -> None:
        try:
            workflow.check()
        except DefinitionError as error:
            newer = {one.name for one in exchange.after.triggerless}
            name = next(one for one in graph_names(workflow) if one in newer)
            message = said_of_subscribers(f"graph '{name}'", [workflow.name], [error])
            raise RequestError(message, code="graph_in_use", status=409, subscribers=[workflow.name]) from error

    def _check_sharing(self, exchange: Exchange) -> None:
        """Refuse to share a reactor no more while graphs of other tenants are bound to it."""
        for reactor in exchange.after.reactors:
            if reactor.name in exchange.before.shared - exchange.after.shared:
                bound = self._scheduler.subscribers(exchange.tenant, reactor.name)
                if others := [name for name in bound if "/" in name]:
                    raise in_use(reactor.name, others, changes=["does not share it with other tenants any more"])


def _where_it_is_set(workflow: Workflow, problem: Problem) -> Problem:
    """Return a problem with a pool or an executor, in the manifest if that names it: the code knows nothing of it."""
    name = f"{workflow.name}.{problem.node}"
    own = workflow.settings.get(name)
    named = () if own is None else (own.pool, own.executor)
    if problem.location is None or not any(one is not None and f"'{one}'" in problem.message for one in named):
        return problem
    message = f'[tasks."{name}"] in {_MANIFEST}: {problem.message}'
    return replace(problem, message=message, location=_place_in_manifest(problem.location.file, name))


def _place_in_manifest(file: str, word: str) -> Location | None:
    """Return the first line with a word in the manifest above an author's file, as well as can be told.

    None if there is no such file on this machine: it may be in an archive, and may have changed since.
    """
    for folder in Path(file).parents:
        with suppress(OSError, UnicodeDecodeError):
            text = (folder / _MANIFEST).read_text("utf-8")
            lines = (number for number, line in enumerate(text.splitlines(), 1) if word in line)
            return next((Location(str(folder / _MANIFEST), number) for number in lines), None)
    return None


def _names(definitions: Iterable[Reactor | Graph | Workflow | Trigger]) -> set[str]:
    return {one.name for one in definitions}
