"""The packages of one node: where they are loaded, and what they leave in the store."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.registry import Registry
from tidemill.engine.workflows.owners import Liveness
from tidemill.kernel.backoff import Backoff
from tidemill.packages.installer import Engine, Installer, Keepsake
from tidemill.packages.ledger import Ledger
from tidemill.packages.loader import Package, read_package
from tidemill.packages.pipeline import Pipeline
from tidemill.packages.status import PackageStatus
from tidemill.packages.steps.graphs import BoundGraphs
from tidemill.packages.steps.reactors import Reactors
from tidemill.packages.steps.schedules import ScheduleRows
from tidemill.packages.steps.triggerless import TriggerlessGraphs
from tidemill.packages.steps.triggers import PollTriggers
from tidemill.packages.steps.workflows import Workflows
from tidemill.storage.ports import Store
from tidemill.storage.run_ports import Owner
from tidemill.telemetry.metrics import Sample


class PackageService:
    """Loads and unloads what is given as modules and definitions, and what others have prepared."""

    def __init__(
        self,
        store: Store,
        environment: Environment,
        registry: Registry,
        scheduler: GraphScheduler,
        workflows: Engine,
        *,
        owner: Owner,
        liveness: Liveness,
    ) -> None:
        clock, settings = environment.clock, environment.settings
        self.ledger = Ledger(store, owner, liveness, clock)
        steps = (
            ScheduleRows(store.schedules, clock),
            PollTriggers(registry),
            Reactors(scheduler, registry),
            TriggerlessGraphs(registry),
            BoundGraphs(scheduler),
            Workflows(workflows, registry, store.schedules),
        )
        backoff = Backoff(settings.backoff_base, settings.backoff_max)
        self.pipeline = Pipeline(steps, self.ledger, environment.tasks, clock, backoff, lambda: self.changed())
        self.installer = Installer(scheduler, registry, workflows, self.pipeline, clock)
        self.changed: Callable[[], None] = lambda: None
        """Called when a package was loaded or unloaded."""

    @property
    def is_in_touch(self) -> bool:
        """Whether something is on its way to the store, or from it."""
        return self.pipeline.is_in_touch

    @property
    def is_busy(self) -> bool:
        """Whether something is being loaded or unloaded at this moment."""
        return self.pipeline.is_busy

    async def open(self) -> None:
        """Unwind what earlier lives have left half done."""
        await self.ledger.unwind()

    async def load(self, thing: Any, tenant: str) -> str:
        """Load a module or a definition, and return the package's name; loaded again, it is swapped hot."""
        return await self.install(read_package(thing), tenant)

    async def install(self, package: Package, tenant: str, keepsake: Keepsake | None = None) -> str:
        """Load a package; what was imported for it is kept as long as anything needs it."""
        name = await self.installer.load(package, tenant, keepsake)
        self.changed()
        return name

    async def unload(self, name: str, tenant: str) -> None:
        """Unload a package."""
        await self.installer.unload(name, tenant)
        self.changed()

    def status(self, known: Iterable[PackageStatus]) -> list[PackageStatus]:
        """Return how things stand with what is loaded: as is `known`, and for the rest, that it is loaded."""
        found = {(one.tenant, one.name): one for one in known}
        for (tenant, name), since in self.installer.loaded_at.items():
            version = self.installer.holdings[tenant, name].version
            loaded = PackageStatus(
                tenant=tenant, name=name, version=version, wanted=version, state="loaded", since=since
            )
            found.setdefault((tenant, name), loaded)
        return [one for _, one in sorted(found.items())]

    async def close(self) -> None:
        """End everything that was loaded."""
        await self.installer.close()

    def samples(self) -> Iterator[Sample]:
        """Yield what is counted."""
        yield Sample("packages_loaded", len(self.installer.holdings))
