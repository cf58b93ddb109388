"""The packages of one node: where they are loaded, and what they leave in the store."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.registry import Key, Registry
from tidemill.engine.workflows.owners import Liveness
from tidemill.kernel.backoff import Backoff
from tidemill.packages.installer import Engine, Installer
from tidemill.packages.ledger import Ledger
from tidemill.packages.loader import Package, read_package
from tidemill.packages.pipeline import Pipeline
from tidemill.packages.status import PackageStatus, merged
from tidemill.packages.steps.graphs import BoundGraphs
from tidemill.packages.steps.reactors import Reactors
from tidemill.packages.steps.schedules import ScheduleRows
from tidemill.packages.steps.triggerless import TriggerlessGraphs
from tidemill.packages.steps.triggers import PollTriggers
from tidemill.packages.steps.workflows import Workflows
from tidemill.packages.superseded import Keepsake, Superseded
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
        self._tasks = environment.tasks
        self.ledger = Ledger(store, owner, liveness, clock)
        steps = (
            ScheduleRows(store.schedules, clock, self.ledger),
            PollTriggers(registry),
            Reactors(scheduler, registry),
            TriggerlessGraphs(registry),
            BoundGraphs(scheduler),
            Workflows(workflows, registry, store.schedules),
        )
        backoff = Backoff(settings.backoff_base, settings.backoff_max)
        self.pipeline = Pipeline(steps, self.ledger, environment.tasks, clock, backoff, self._paid)
        superseded = Superseded(workflows, environment.tasks, clock, backoff)
        self.installer = Installer(scheduler, registry, workflows, self.pipeline, superseded, clock)
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
        """Load a package; what was imported for it is kept as long as anything needs it.

        It is seen through, also if whoever asked stops waiting.
        """
        work = self._install(package, tenant, keepsake)
        return await self._tasks.see_through(f"package {package.name}: load", work)

    async def _install(self, package: Package, tenant: str, keepsake: Keepsake | None) -> str:
        name = await self.installer.load(package, tenant, keepsake)
        self.changed()
        return name

    async def unload(self, name: str, tenant: str) -> None:
        """Unload a package; it is seen through, also if whoever asked stops waiting."""
        await self._tasks.see_through(f"package {name}: unload", self._unload(name, tenant))

    async def _unload(self, name: str, tenant: str) -> None:
        await self.installer.unload(name, tenant)
        self.changed()

    async def _paid(self) -> None:
        """Take note that something was put back, or taken away, after all."""
        await self.installer.tidy()
        self.changed()

    def status(self, known: Iterable[tuple[str, PackageStatus]]) -> list[PackageStatus]:
        """Return how things stand with what is loaded or wanted; what is known of it comes with who says so.

        If several want one package, whoever has loaded it says how it stands, and the others what keeps them from it.
        """
        said: dict[Key, list[tuple[str, PackageStatus]]] = {key: [] for key in self.installer.holdings}
        for origin, one in known:
            said.setdefault((one.tenant, one.name), []).append((origin, one))
        return [self._merged(key, pairs) for key, pairs in sorted(said.items())]

    def _merged(self, key: Key, said: Sequence[tuple[str, PackageStatus]]) -> PackageStatus:
        held = self.installer.holdings.get(key)
        if held is None:
            return replace(merged(*(one for _, one in said)), version="")
        loaded = PackageStatus(
            tenant=key[0],
            name=key[1],
            version=held.version,
            wanted=held.version,
            state="loaded",
            since=self.installer.loaded_at[key],
        )
        own = next((one for origin, one in said if origin == held.origin), loaded)
        return replace(merged(own, *(one for _, one in said if one is not own)), version=held.version)

    def abandon(self) -> None:
        """Leave everything as the death of the process would: what is half loaded stays so."""
        self.pipeline.abandon()

    async def close(self) -> None:
        """End everything that was loaded."""
        await self.installer.close()

    def samples(self) -> Iterator[Sample]:
        """Yield what is counted."""
        yield Sample("packages_loaded", len(self.installer.holdings))
