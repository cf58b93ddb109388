"""G-30: a reactor that its owner's package shares can be bound to by packages of other tenants, as "tenant/name"."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.package_folders import package, without_child_processes
from tidemill.packages.deploy.steps import WorkflowsStep

SHARED = "[reactors.market]\nshared = true\n"
MARKET = """\
import tidemill as tm

@tm.passthrough
def book(event: int) -> int:
    return event

market = tm.Reactor("market", [book])
maker = tm.Graph("maker", reactor=market)

@maker.node
def out(book: int) -> str:
    return f"maker {book}"
"""
DESK = """\
import tidemill as tm

bar = tm.Graph("bar", reactor="acme/market")

@bar.node
def out(book: int) -> str:
    return f"bar {book}"
"""


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    without_child_processes(monkeypatch)


@pytest.fixture
async def node() -> AsyncIterator[tm.testing.TestNode]:
    """A node that has nothing loaded."""
    async with tm.testing.node("memory://") as started:
        yield started


async def broken(*_: Any) -> None:
    """Fail as a step may."""
    raise tm.OperationError("broken on purpose")


class Tenants:
    """Two tenants of a node: acme, which has a market, and beta, which has a desk."""

    def __init__(self, node: tm.testing.TestNode, folder: Path) -> None:
        self.node = node
        self.folder = folder

    async def market(self, version: str = "1.0.0", code: str = MARKET, shared: str = SHARED) -> None:
        await self.node.load(package(self.folder / "market", code, version, manifest=shared), tenant="acme")

    async def desk(self, version: str = "1.0.0", code: str = DESK) -> None:
        await self.node.load(package(self.folder / "desk", code, version), tenant="beta")

    async def fire(self, event: int) -> dict[str, Any]:
        """Push an event, and return what each graph made of it."""
        await self.node.push("book", event, tenant="acme")
        await self.node.settle()
        [firing] = self.node.reactor("market", tenant="acme").firings(limit=1)
        return {name: result.outputs["out"] for name, result in firing.results.items()}


@pytest.fixture
def tenants(node: tm.testing.TestNode, tmp_path: Path) -> Tenants:
    """The tenants of the node."""
    return Tenants(node, tmp_path)


async def test_a_firing_runs_graphs_of_both_tenants(tenants: Tenants) -> None:
    """G-14, G-30: results of another tenant's graphs are found under "tenant/graph"."""
    await tenants.market()
    await tenants.desk()
    assert await tenants.fire(7) == {"maker": "maker 7", "beta/bar": "bar 7"}
    assert tenants.node.reactor("market", tenant="acme").state().subscribers == ["beta/bar", "maker"]
    assert tenants.node.registry.graphs("beta") == ["bar"]
    assert tenants.node.registry.reactors("beta") == []


async def test_graphs_of_one_name_do_not_meet(tenants: Tenants) -> None:
    """G-14, G-30: each tenant's graph of that name runs, and has its result."""
    await tenants.market()
    await tenants.desk(code=DESK.replace('"bar"', '"maker"'))
    assert await tenants.fire(1) == {"maker": "maker 1", "beta/maker": "bar 1"}
    await tenants.node.unload("desk", tenant="beta")
    assert await tenants.fire(2) == {"maker": "maker 2"}


async def test_a_graph_of_another_tenant_is_tried_again(tenants: Tenants) -> None:
    """G-15, G-30: retries and dead letters name it as its reactor does."""
    await tenants.market(code=MARKET.replace("[book])", "[book], on_error=tm.Retry(1))"))
    await tenants.desk(code=DESK.replace('return f"bar {book}"', "raise ValueError(book)"))
    await tenants.node.push("book", 3, tenant="acme")
    await tenants.node.advance("10s")
    reactor = tenants.node.reactor("market", tenant="acme")
    assert [(sorted(one.results), one.attempt) for one in reactor.firings()] == [
        (["beta/bar"], 2),
        (["beta/bar", "maker"], 1),
    ]
    [letter] = await reactor.dead_letters()
    await tenants.desk("2.0.0")
    assert {name: one.outputs for name, one in (await reactor.replay(letter.id)).results.items()} == {
        "beta/bar": {"out": "bar 3"}
    }


async def test_what_is_not_shared_cannot_be_bound_to(tenants: Tenants) -> None:
    """G-30: whether there is such a reactor is not revealed."""
    said = "reactor 'market' of tenant 'acme' is not shared with tenant 'beta'"
    for _ in range(2):
        with pytest.raises(tm.RequestError, match=said) as refused:
            await tenants.desk()
        assert (refused.value.code, refused.value.status) == ("not_shared", 403)
        await tenants.market(shared="")
    assert tenants.node.registry.packages("beta") == tenants.node.registry.graphs("beta") == []
    assert await tenants.fire(1) == {"maker": "maker 1"}


async def test_sharing_is_not_withdrawn_while_others_are_bound(tenants: Tenants) -> None:
    """P-4, G-30: refused like an unload, and the version before stays, shared."""
    await tenants.market()
    await tenants.desk()
    said = r"reactor 'market' has 1 bound subscriber\(s\): \['beta/bar'\]; unbind them first\nthe new version "
    changes = {
        "no longer shares it with other tenants": {"shared": ""},
        "has when='all', not when='any'": {"code": MARKET.replace("[book])", '[book], when="all")')},
    }
    for words, change in changes.items():
        with pytest.raises(tm.RequestError, match=f"{said}{words}\nunload the packages of the subscribers") as refused:
            await tenants.market("2.0.0", **change)
        assert refused.value.code == "reactor_in_use"
    assert tenants.node.registry.is_shared("acme", "market")
    assert await tenants.fire(2) == {"maker": "maker 2", "beta/bar": "bar 2"}
    await tenants.desk("2.0.0", DESK.replace("bar {", "other bar {"))
    assert await tenants.fire(3) == {"maker": "maker 3", "beta/bar": "other bar 3"}


async def test_a_new_version_takes_the_guests_along(tenants: Tenants) -> None:
    """P-6, G-30: same contract: graphs of other tenants stay bound, and the cache stays."""
    await tenants.market()
    await tenants.desk()
    await tenants.fire(5)
    await tenants.market("2.0.0", MARKET.replace("maker {", "newer maker {"))
    assert tenants.node.reactor("market", tenant="acme").state().cache == {"book": 5}
    assert await tenants.fire(6) == {"maker": "newer maker 6", "beta/bar": "bar 6"}
    with pytest.raises(tm.RequestError, match="the new version does not fit graph 'bar'"):
        await tenants.market(
            "3.0.0", MARKET.replace("event: int) -> int", "event: str) -> str").replace(": int", ": str")
        )
    assert await tenants.fire(7) == {"maker": "newer maker 7", "beta/bar": "bar 7"}


async def test_guests_leave_first(tenants: Tenants) -> None:
    """P-4, G-28: the guard names the subscriber with its tenant; nothing has changed."""
    await tenants.market()
    await tenants.desk()
    said = r"reactor 'market' has 1 bound subscriber\(s\): \['beta/bar'\]; unbind them first"
    with pytest.raises(tm.RequestError, match=said):
        await tenants.node.unload("market", tenant="acme")
    assert await tenants.fire(1) == {"maker": "maker 1", "beta/bar": "bar 1"}
    await tenants.node.unload("desk", tenant="beta")
    assert tenants.node.registry.graphs("beta") == []
    await tenants.node.unload("market", tenant="acme")
    assert not tenants.node.registry.is_shared("acme", "market")
    assert tenants.node.probe.packages.running_keys() == (set(), set())


async def test_a_package_may_name_its_own_tenant(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-30, P-2: "acme/market" inside acme is its own reactor: it comes back, and leaves, with it."""
    own = MARKET.replace("reactor=market", 'reactor="acme/market"')
    await tenants.market(code=own)
    assert await tenants.fire(1) == {"maker": "maker 1"}
    await tenants.market("2.0.0", own.replace("[book])", '[book], when="all")'))
    assert await tenants.fire(2) == {"maker": "maker 2"}
    monkeypatch.setattr(WorkflowsStep, "apply", broken)
    with pytest.raises(tm.OperationError, match="broken"):
        await tenants.market("3.0.0", own.replace("maker {", "newer maker {"))
    assert await tenants.fire(3) == {"maker": "maker 3"}
    await tenants.node.unload("market", tenant="acme")
    assert tenants.node.registry.graphs("acme") == []


async def test_tenants_do_not_meet_unasked(tenants: Tenants) -> None:
    """G-30: the same package in two tenants is two reactors, shared or not."""
    await tenants.market()
    await tenants.node.load(package(tenants.folder / "market", MARKET, manifest=SHARED), tenant="beta")
    assert await tenants.fire(1) == {"maker": "maker 1"}
    assert tenants.node.reactor("market", tenant="beta").firings() == []


async def test_no_tenant_takes_the_name_of_a_guest(tenants: Tenants) -> None:
    """G-30, P-5: a graph of the owner cannot be called as one of another tenant is among its subscribers."""
    await tenants.market()
    await tenants.desk()
    evil = DESK.replace('"bar"', '"beta/bar"').replace("acme/market", "market").replace("bar {", "evil {")
    with pytest.raises(tm.DefinitionError, match="without '/', not 'beta/bar'"):
        await tenants.node.load(package(tenants.folder / "evil", evil), tenant="acme")
    assert await tenants.fire(1) == {"maker": "maker 1", "beta/bar": "bar 1"}
    assert tenants.node.registry.graphs("acme") == ["maker"]
