"""Step 6: workflows with their tasks. In place, their schedules are armed; then reactors may fire, and slots count."""

from collections.abc import Iterable
from typing import Protocol

from tidemill.engine.registry import Registry
from tidemill.packages.exchange import Exchange
from tidemill.packages.steps.step import Step
from tidemill.storage.run_ports import Schedules
from tidemill.workflows.workflow import Workflow


class WorkflowLoader(Protocol):
    """The engine that runs workflows, as far as loading is concerned. Workflows are wired, and their graphs known."""

    def check(self, workflow: Workflow) -> None:
        """Raise a DefinitionError if it names a pool or an executor that there is not; changes nothing."""

    async def put_in_place(self, tenant: str, workflow: Workflow) -> None:
        """Run a workflow from now on, in place of one of its name; if it raises, nothing has changed.

        Its triggers are in the registry by then. Reactors whose firings start it may come later, and may go.
        """

    async def withdraw(self, tenant: str, name: str) -> None:
        """Start no more runs of a workflow; what runs goes on. One that is not there is no error."""

    def hold_schedules(self, tenant: str, workflows: Iterable[str]) -> None:
        """Look at no slot of these workflows: it is not certain which version of them stays."""

    def free_schedules(self, tenant: str, workflows: Iterable[str]) -> None:
        """Look at the schedules of these workflows again, and which of them are armed by now."""


class Workflows(Step):
    """The workflows of a package, and those of others that call newer versions of its graphs."""

    title = "workflows"
    takes_time = False

    def __init__(self, loader: WorkflowLoader, registry: Registry, schedules: Schedules) -> None:
        self._loader = loader
        self._registry = registry
        self._schedules = schedules

    async def put(self, exchange: Exchange) -> None:
        self._loader.hold_schedules(exchange.tenant, exchange.held_workflows)
        for workflow in (*exchange.workflows, *exchange.rebound):
            await self._put(exchange.tenant, workflow)
        if keys := exchange.after.schedule_keys(exchange.tenant):
            await self._schedules.arm(keys)

    async def take_back(self, exchange: Exchange) -> None:
        await self._put_back(exchange)
        self._loader.free_schedules(exchange.tenant, exchange.held_workflows)

    async def _put_back(self, exchange: Exchange) -> None:
        for name, held in exchange.held_workflows.items():
            if self._registry.workflow(exchange.tenant, name) is held:
                continue
            if held is None:
                await self._withdraw(exchange.tenant, name)
            else:
                await self._put(exchange.tenant, held)

    async def retire(self, exchange: Exchange) -> None:
        """The version that came stays from here on, and its slots get their runs."""
        for name in exchange.gone_workflows:
            await self._withdraw(exchange.tenant, name)
        self._loader.free_schedules(exchange.tenant, exchange.held_workflows)

    async def _put(self, tenant: str, workflow: Workflow) -> None:
        await self._loader.put_in_place(tenant, workflow)
        self._registry.add_workflow(tenant, workflow)

    async def _withdraw(self, tenant: str, name: str) -> None:
        await self._loader.withdraw(tenant, name)
        self._registry.drop_workflow(tenant, name)
