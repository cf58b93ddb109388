"""What a reader of the contracts expects of packages that need one another."""

from typing import Any

from tests.simulation.editions import Edition, Guest, Publisher, Subscriber

TENANTS = {"publisher": "public", "subscriber": "public", "guest": "beta"}


class Model:
    """Who is loaded, in which edition, and by which mark it is known."""

    def __init__(self) -> None:
        self.loaded: dict[str, tuple[Edition, int]] = {}

    @property
    def publisher(self) -> Publisher | None:
        edition, _ = self.loaded.get("publisher", (None, 0))
        return edition if isinstance(edition, Publisher) else None

    @property
    def subscriber(self) -> Subscriber | None:
        edition, _ = self.loaded.get("subscriber", (None, 0))
        return edition if isinstance(edition, Subscriber) else None

    @property
    def guest(self) -> Guest | None:
        edition, _ = self.loaded.get("guest", (None, 0))
        return edition if isinstance(edition, Guest) else None

    @property
    def foreign(self) -> dict[str, str]:
        """The graphs of other packages that are bound to the reactor, with the package of each."""
        found = {}
        if self.subscriber is not None and self.subscriber.binds:
            found[self.subscriber.graph] = "subscriber"
        if self.guest is not None:
            found[f"beta/{self.guest.graph}"] = "guest"
        return found

    @property
    def bound(self) -> dict[str, str]:
        """The graphs that are bound to the reactor, with the package of each."""
        publisher = self.publisher
        if publisher is None or not publisher.reactor:
            return {}
        own = [publisher.graph] if publisher.graph else []
        own += ["scoring"] if publisher.scoring == "bound" else []
        return dict.fromkeys(own, "publisher") | self.foreign

    # -- what is refused, and why

    def refusal(self, edition: Edition) -> set[str]:
        """Return the reasons for which an edition cannot be loaded now; any of them may be given."""
        if isinstance(edition, Publisher):
            found = self._refused_publisher(edition)
        elif isinstance(edition, Subscriber):
            found = self._refused_subscriber(edition)
        else:
            found = self._refused_guest(edition)
        return found | ({"definition"} if edition.breakage else set())

    def _refused_publisher(self, edition: Publisher) -> set[str]:
        before, subscriber, found = self.publisher, self.subscriber, set()
        is_taken = subscriber is not None and subscriber.binds and subscriber.graph == edition.graph
        if is_taken and edition.reactor:
            found.add("name_taken")
        if before is None:
            return found
        if subscriber is not None and subscriber.polls and edition.trigger != "ticker":
            found.add("trigger_in_use")
        if subscriber is not None and subscriber.calls and not _can_be_called(edition):
            found.add("graph_in_use")
        if before.reactor and self.foreign and not goes_on(before, edition):
            found.add("reactor_in_use")
        if self.guest is not None and not edition.shared:
            found.add("reactor_in_use")
        return found

    def _refused_subscriber(self, edition: Subscriber) -> set[str]:
        publisher, found = self.publisher, set()
        if edition.binds and publisher is not None and publisher.reactor and publisher.graph == edition.graph:
            found.add("name_taken")
        if edition.binds and (publisher is None or not publisher.reactor):
            found.add("reactor_not_found")
        elif edition.binds and publisher is not None and publisher.book is not int:
            found.add("definition")
        if edition.polls and (publisher is None or publisher.trigger != "ticker"):
            found.add("definition")
        if edition.calls and (publisher is None or not _can_be_called(publisher)):
            found.add("definition")
        return found

    def _refused_guest(self, edition: Guest) -> set[str]:
        publisher = self.publisher
        if publisher is None or not publisher.reactor or not publisher.shared:
            return {"not_shared"}
        fits = publisher.book is int and set(edition.sources) <= set(publisher.sources)
        return set() if fits else {"definition"}

    def guard(self, name: str) -> set[str]:
        """Return the reasons for which a package cannot be unloaded now."""
        if name not in self.loaded:
            return {"package_not_found"}
        subscriber, found = self.subscriber, set()
        if name == "publisher" and self.foreign:
            found.add("reactor_in_use")
        if name == "publisher" and subscriber is not None and subscriber.polls:
            found.add("trigger_in_use")
        if name == "publisher" and subscriber is not None and subscriber.calls:
            found.add("graph_in_use")
        return found

    # -- what is to be seen

    def names(self, tenant: str) -> dict[str, list[str]]:
        """Return what the registry says of a tenant."""
        publisher, subscriber, guest = self.publisher, self.subscriber, self.guest
        found: dict[str, list[str]] = {what: [] for what in ("reactors", "graphs", "workflows", "triggers")}
        found["accumulators"] = []
        if tenant == "beta":
            found["graphs"] = [] if guest is None else [guest.graph]
        if tenant == "public" and publisher is not None:
            is_bound = publisher.scoring == "bound"
            found["reactors"] = ["market"] if publisher.reactor else []
            found["accumulators"] = [*publisher.sources] if publisher.reactor else []
            found["graphs"] += [publisher.graph] if publisher.graph and publisher.reactor else []
            found["graphs"] += ["scoring" if is_bound else publisher.scoring] if publisher.scoring else []
            found["triggers"] = [publisher.trigger] if publisher.trigger else []
            found["workflows"] += ["nightly"]
        if tenant == "public" and subscriber is not None:
            found["graphs"] += [subscriber.graph] if subscriber.binds else []
            found["workflows"] += ["report"]
        found["endpoints"] = [f"reactors/{one}" for one in found["reactors"]]
        found["endpoints"] += [f"accumulators/{one}" for one in found["accumulators"]]
        found["packages"] = [name for name in self.loaded if TENANTS[name] == tenant]
        return {what: sorted(names) for what, names in found.items()}

    def results(self, event: Any) -> dict[str, list[Any]]:
        """Return what the graphs return for an event of the book, each by the edition that it is of."""
        found = {}
        for graph, package in self.bound.items():
            edition, mark = self.loaded[package]
            more = [None] if isinstance(edition, Guest) and "limits" in edition.sources else []
            found[graph] = [mark, event, *more]
        return found


def _can_be_called(publisher: Publisher) -> bool:
    is_callable = publisher.scoring == "scoring" or (publisher.scoring == "bound" and not publisher.reactor)
    return is_callable and publisher.takes == "count"


def goes_on(before: Publisher, after: Publisher) -> bool:
    """Whether graphs of others, which take an int from the book, can go on."""
    return after.reactor and before.sources == after.sources and after.book is int
