"""Loading the workflows and triggers of a package: checked first, put in place afterwards, put back if that fails.

What runs them is known only by a port, `WorkflowLoader`.
"""

import logging
from collections.abc import Collection, Iterator
from typing import Protocol

from tidemill.engine.registry import PackageState, Registry
from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import DefinitionError, OperationError, Problem, RequestError, TidemillError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.loader import Package
from tidemill.telemetry import events
from tidemill.workflows.definition import OnFiring, Trigger
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)


class WorkflowLoader(Protocol):
    """The engine that runs workflows, as far as loading is concerned. Workflows are wired, and their graphs known."""

    def check(self, tenant: str, workflow: Workflow) -> None:
        """Raise a DefinitionError if it names a pool or an executor that there is not; changes nothing."""

    async def put_in_place(self, tenant: str, workflow: Workflow) -> None:
        """Run a workflow from now on, in place of one of its name; if it raises, nothing has changed.

        Its triggers are in the registry by then. Reactors whose firings start it may come later, and may go.
        """

    async def withdraw(self, tenant: str, name: str) -> None:
        """Start no more runs of a workflow; what runs goes on. One that is not there is no error."""


class NoWorkflows(WorkflowLoader):
    """Stands in where there is no engine for workflows: it refuses them."""

    def check(self, tenant: str, workflow: Workflow) -> None:
        raise OperationError(f"this node runs no workflows, so '{workflow.name}' of '{tenant}' cannot be loaded")

    async def put_in_place(self, tenant: str, workflow: Workflow) -> None:
        self.check(tenant, workflow)

    async def withdraw(self, tenant: str, name: str) -> None:
        """There is nothing to withdraw."""


class Exchange:
    """The workflows and triggers of one package in place of those that it had before, in one tenant."""

    def __init__(
        self, registry: Registry, loader: WorkflowLoader, tenant: str, package: Package, before: PackageState
    ) -> None:
        self._registry = registry
        self._loader = loader
        self._tenant = tenant
        self._package = package
        self._before = before
        self._own_graphs = {one.name: one for one in package.graphs}
        self.triggers = tuple(one for one in package.triggers if self._is_own_trigger(one))
        self.workflows = tuple(one.bound(self._find_graph) for one in package.workflows if self._is_own_workflow(one))
        self._replaced: dict[str, Workflow | None] = {}
        self._replaced_triggers = {
            name: registry.trigger(tenant, name) for name in (*before.triggers, *(one.name for one in self.triggers))
        }

    # -- whose is it

    def _is_own_trigger(self, trigger: Trigger) -> bool:
        """A trigger that a module merely imported from an already loaded package is not its own."""
        return (
            trigger.name in self._before.triggers or self._registry.trigger(self._tenant, trigger.name) is not trigger
        )

    def _is_own_workflow(self, workflow: Workflow) -> bool:
        held = self._registry.workflow(self._tenant, workflow.name)
        return workflow.name in self._before.workflows or held is None or held.declared is not workflow.declared

    def _find_graph(self, name: str) -> Graph | None:
        if name in self._own_graphs:
            return self._own_graphs[name]
        return self._registry.graph(self._tenant, name) if self._registry.has_graph(self._tenant, name) else None

    # -- before anything changes

    def check(self) -> None:
        """Raise unless everything can be put in place, and what leaves is not needed; nothing has changed."""
        for workflow in self.workflows:
            self._check_name("workflow", workflow, self._registry.workflow(self._tenant, workflow.name))
        for trigger in self.triggers:
            self._check_name("trigger", trigger, self._registry.trigger(self._tenant, trigger.name))
        for workflow in self.workflows:
            workflow.check()
            if problems := list(self._unknown_triggers(workflow)):
                raise DefinitionError(problems, f"workflow '{workflow.name}'")
            self._look_for_reactors(workflow)
            self._loader.check(self._tenant, workflow)
        self._check_leaving()

    def _check_name(self, what: str, one: Workflow | Trigger, held: Workflow | Trigger | None) -> None:
        owned = self._before.workflows if isinstance(one, Workflow) else self._before.triggers
        if held is not None and one.name not in owned:
            message = f"{what} '{one.name}' is already defined at {held.location}; rename one of them"
            raise RequestError(message, code="name_taken", status=409, name=one.name)

    def _unknown_triggers(self, workflow: Workflow) -> Iterator[Problem]:
        left = set(self._before.triggers)
        known = {name for name in self._registry.triggers(self._tenant) if name not in left}
        known |= {one.name for one in self._package.triggers}
        for name in workflow.triggers:
            if isinstance(name, str) and name not in known:
                message = f"there is no trigger '{name}'{did_you_mean(name, known)}: load it first, or pass it"
                yield Problem(message=message, location=workflow.location)

    def _look_for_reactors(self, workflow: Workflow) -> None:
        """Say which reactors a workflow waits for: they may be loaded later, or be misspelt."""
        known = {*self._registry.reactors(self._tenant), *(one.name for one in self._package.reactors)}
        for one in workflow.triggers:
            if isinstance(one, OnFiring) and one.reactor not in known:
                said = f"reactor '{one.reactor}' not loaded{did_you_mean(one.reactor, known)}"
                logger.warning(events.SUBSCRIPTION_WAITS, extra={"workflow": workflow.name, "reason": said})

    def _check_leaving(self) -> None:
        """Refuse to let a trigger go that starts workflows of other packages; they can wait for a reactor."""
        triggers = {*self._before.triggers} - {one.name for one in self.triggers}
        for name in sorted(triggers):
            if others := self._started_by(name):
                message = f"trigger '{name}' starts {_listing(others)}: unload that first"
                raise RequestError(message, code="trigger_in_use", status=409, trigger=name, subscribers=others)

    def _started_by(self, name: str) -> list[str]:
        """Return the workflows of other packages that a trigger starts."""
        ours = {*self._before.workflows, *(one.name for one in self.workflows)}
        loaded = {
            other: self._registry.workflow(self._tenant, other) for other in self._registry.workflows(self._tenant)
        }
        return [
            other
            for other, workflow in loaded.items()
            if workflow is not None
            and other not in ours
            and any(_trigger_name(one) == name for one in workflow.triggers)
        ]

    # -- the change, and back

    async def put_in_place(self) -> None:
        """Put the new ones in place and withdraw those that are no more; if that fails everything is as it was."""
        try:
            for trigger in self.triggers:
                self._registry.add_trigger(self._tenant, trigger)
            for workflow in self.workflows:
                await self._put(workflow)
            present = {one.name for one in self.workflows}
            for name in self._before.workflows:
                if name not in present:
                    await self._withdraw(name)
            kept = {one.name for one in self.triggers}
            for name in self._before.triggers:
                if name not in kept:
                    self._registry.drop_trigger(self._tenant, name)
        except BaseException:
            await self.undo()
            raise

    async def _put(self, workflow: Workflow) -> None:
        held = self._registry.workflow(self._tenant, workflow.name)
        await self._loader.put_in_place(self._tenant, workflow)
        self._replaced.setdefault(workflow.name, held)
        self._registry.add_workflow(self._tenant, workflow)

    async def _withdraw(self, name: str) -> None:
        held = self._registry.workflow(self._tenant, name)
        await self._loader.withdraw(self._tenant, name)
        self._replaced.setdefault(name, held)
        self._registry.drop_workflow(self._tenant, name)

    async def undo(self) -> None:
        """Put everything back as it was."""
        for name, trigger in self._replaced_triggers.items():
            if trigger is None:
                self._registry.drop_trigger(self._tenant, name)
            else:
                self._registry.add_trigger(self._tenant, trigger)
        while self._replaced:
            name, held = self._replaced.popitem()
            try:
                await self._put_back(name, held)
            except TidemillError as error:  # the others are put back all the same, and the first error is what is told
                logger.error("a workflow could not be put back", extra={"workflow": name, "error": str(error)})

    async def _put_back(self, name: str, held: Workflow | None) -> None:
        if held is None:
            self._registry.drop_workflow(self._tenant, name)
            await self._loader.withdraw(self._tenant, name)
        else:
            self._registry.add_workflow(self._tenant, held)
            await self._loader.put_in_place(self._tenant, held)


def _trigger_name(one: Trigger | OnFiring | str) -> str | None:
    """Return the name of the trigger that starts a workflow, if it is one."""
    if isinstance(one, str):
        return one
    return one.name if isinstance(one, Trigger) else None


def _listing(workflows: Collection[str]) -> str:
    return f"workflow{'s' if len(workflows) > 1 else ''} {', '.join(map(repr, workflows))}"
