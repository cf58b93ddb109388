"""One package in place of what it was: the value that the steps of loading and unloading work on."""

from collections.abc import Iterable, Mapping

from tidemill.engine.graphs.staging import Offer, Staged
from tidemill.engine.registry import Key, Registry
from tidemill.graphs.graph import Graph
from tidemill.packages.holdings import Holdings
from tidemill.storage.run_ports import ScheduleKey
from tidemill.workflows.workflow import Workflow


class Exchange:
    """What a package had, what it is to have, and what has come of that so far.

    A first load has nothing before, an unload nothing after. `others` is what the tenant's other packages hold: their
    workflows may call graphs that are exchanged here, and then go on with the newer ones.
    """

    def __init__(
        self,
        registry: Registry,
        tenant: str,
        name: str,
        before: Holdings,
        after: Holdings,
        others: Iterable[Holdings],
    ) -> None:
        self._registry = registry
        self.tenant = tenant
        self.name = name
        self.before = before
        self.after = after
        self.others = tuple(others)
        self._arriving = {one.name: one for one in (*after.triggerless, *after.graphs)}
        self.workflows = tuple(one.bound(self.find_graph) for one in after.workflows)
        self.rebound = tuple(one.bound(self.find_graph) for one in self._callers())
        touched = (*before.workflows, *self.workflows, *self.rebound)
        self.held_workflows = {one.name: registry.workflow(tenant, one.name) for one in touched}
        """What was in place under the names that this is about, to be put back if need be."""
        self.held_triggers = {
            one.name: registry.trigger(tenant, one.name) for one in (*before.triggers, *after.triggers)
        }
        self.held_graphs = {
            one.name: registry.graph(tenant, one.name) for one in (*before.triggerless, *after.triggerless)
        }
        self.may_downgrade = False
        """Whether the version may be below the one that is recorded."""
        self.recorded: str | None = None
        """The version that was recorded when this began."""
        self.staged: Staged | None = None
        """The reactors and graphs, ready beside what runs."""
        self.inserted: list[ScheduleKey] = []
        """Rows of schedules that are there only because of this."""
        self.doubtful: list[ScheduleKey] = []
        """Rows that may be there because of this: the store was asked for them, and has not answered."""

    def offer(self) -> Offer:
        """Return the reactors and graphs that are to be there, as the scheduler takes them."""
        after = self.after
        return Offer(
            tenant=self.tenant,
            reactors=after.reactors,
            graphs=after.graphs,
            before=self.before.state(),
            shared=after.shared,
        )

    def is_shared(self, reactor: Key) -> bool:
        """Return whether packages of other tenants may bind to a reactor."""
        return self._registry.is_shared(*reactor)

    def find_graph(self, name: str) -> Graph | None:
        """Return the graph of a name as it will be; None for one that goes, too."""
        if name in self._arriving or any(name == one.name for one in (*self.before.triggerless, *self.before.graphs)):
            return self._arriving.get(name)
        return self._registry.graph(self.tenant, name)

    def _callers(self) -> Iterable[Workflow]:
        """Return the workflows of other packages that call, by name, a graph that has a newer version here."""
        before = {one.name: one for one in self.before.triggerless}
        newer = {one.name for one in self.after.triggerless if before.get(one.name) not in (None, one)}
        for holdings in self.others:
            for workflow in holdings.workflows:
                if any(task.graph in newer for task in workflow.tasks if isinstance(task.graph, str)):
                    yield workflow

    @property
    def gone_workflows(self) -> list[str]:
        """The workflows that the package has no more."""
        return _gone([one.name for one in self.before.workflows], {one.name: one for one in self.after.workflows})

    @property
    def gone_triggers(self) -> list[str]:
        """The triggers that the package has no more."""
        return _gone([one.name for one in self.before.triggers], {one.name: one for one in self.after.triggers})

    @property
    def gone_graphs(self) -> list[str]:
        """The graphs that could be called, and that the package has no more; one that is bound cannot be."""
        return _gone([one.name for one in self.before.triggerless], {one.name: one for one in self.after.triggerless})

    @property
    def gone_schedules(self) -> list[ScheduleKey]:
        """The schedules that the package has no more."""
        kept = self.after.schedule_keys(self.tenant)
        return [key for key in self.before.schedule_keys(self.tenant) if key not in kept]


def _gone(before: Iterable[str], after: Mapping[str, object]) -> list[str]:
    return [name for name in before if name not in after]
