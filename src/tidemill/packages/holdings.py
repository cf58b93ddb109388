"""What a package brings, sorted by what becomes of it: the definitions that are its own."""

from collections.abc import Iterator

import msgspec

from tidemill.engine.registry import PackageState
from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.storage.run_ports import ScheduleKey
from tidemill.workflows.definition import Trigger
from tidemill.workflows.schedule import Schedule
from tidemill.workflows.workflow import Workflow


class Holdings(msgspec.Struct, frozen=True, kw_only=True):
    """The definitions of one package, without those that it only imported from others."""

    version: str = ""
    digest: str = ""
    origin: str = ""
    triggers: tuple[Trigger, ...] = ()
    reactors: tuple[Reactor, ...] = ()
    shared: frozenset[str] = frozenset()
    """Reactors that packages of other tenants may bind to."""

    triggerless: tuple[Graph, ...] = ()
    graphs: tuple[Graph, ...] = ()
    workflows: tuple[Workflow, ...] = ()
    """As declared: graphs that they call by name are yet to be found."""

    def schedules(self) -> Iterator[tuple[Workflow, Schedule]]:
        """Yield each schedule with its workflow."""
        for workflow in self.workflows:
            for schedule in workflow.schedules:
                yield workflow, schedule

    def schedule_keys(self, tenant: str) -> list[ScheduleKey]:
        """Return the keys of the schedules as the store knows them."""
        return [ScheduleKey(tenant, workflow.name, schedule.key) for workflow, schedule in self.schedules()]

    def state(self) -> PackageState:
        """Return the names of all this."""
        return PackageState(
            version=self.version,
            digest=self.digest,
            origin=self.origin,
            schedules=tuple((workflow.name, schedule.key) for workflow, schedule in self.schedules()),
            triggers=tuple(one.name for one in self.triggers),
            reactors=tuple(one.name for one in self.reactors),
            triggerless=tuple(one.name for one in self.triggerless),
            graphs=tuple(one.name for one in self.graphs),
            workflows=tuple(one.name for one in self.workflows),
            tasks=tuple(f"{one.name}.{task.name}" for one in self.workflows for task in one.tasks),
        )


NOTHING = Holdings()
