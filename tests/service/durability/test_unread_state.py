"""Kept values with fields that a newer version does not read: over a hot swap, and after a restart."""

import logging
from types import ModuleType
from typing import Any

import pytest

import tidemill as tm


class Line(tm.Boundary):
    """Part of the newer state."""

    price: float = 0.0


class OldLine(tm.Boundary):
    """Part of the older state."""

    price: float = 0.0
    weight: float = 0.0


class OldTotal(tm.Boundary):
    """The older running state."""

    spent: float = 0.0
    orders: int = 0
    lines: tuple[OldLine, ...] = ()


class Total(tm.Boundary):
    """The newer one, with a field renamed."""

    revenue: float = 0.0
    orders: int = 0
    lines: tuple[Line, ...] = ()


class Terse(tm.Boundary, omit_defaults=True):
    """The older state without loss: it does not write what is as at the start."""

    spent: float = 5.0
    orders: int = 0
    lines: tuple[OldLine, ...] = ()


def old_version(**options: Any) -> ModuleType:
    """Return a package with a running state."""

    @tm.passthrough(state=OldTotal)
    def total(event: float, state: OldTotal) -> OldTotal:
        return OldTotal(state.spent + event, state.orders + 1, (OldLine(event, 1.0),))

    return _package(total, **options)


def new_version(state: Any = Total, upgrade: Any = None, **options: Any) -> ModuleType:
    """Return the package with another class of the state."""

    def total(event: float, state: Any) -> Any:
        return state

    total.__annotations__ |= {"state": state, "return": state}
    return _package(tm.passthrough(state=state, upgrade=upgrade)(total), **options)


def _package(total: Any, **options: Any) -> ModuleType:
    module = ModuleType("package")
    vars(module).update(total=total, r=tm.Reactor("r", [total], **options))
    return module


def unread(node: tm.testing.TestNode) -> dict[str, str]:
    """Return what was reported as not read, by component."""
    found = [one for one in node.probe.graphs.recoveries() if one.action == "unread"]
    assert len({one.component for one in found}) == len(found), "one for each component"
    return {one.component: one.reason for one in found}


LOST = "has fields that its class does not have, and their values are lost: spent, lines.weight"


@pytest.mark.parametrize("durability", ["none", "interval", "boundary"])
async def test_a_hot_swap_names_the_fields_that_the_new_version_does_not_read(
    durability: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """D9: a renamed field reset the state without a word."""
    async with tm.testing.node(store="memory://", load=[old_version(durability=durability)]) as node:
        await node.push("total", 5.0)
        await node.settle()
        with caplog.at_level(logging.WARNING):
            await node.load(new_version(durability=durability))
        assert unread(node) == {
            "accumulator": f"its running state {LOST}",
            "reactor": f"a boundary of 'total' {LOST}",
        }
        assert [one.levelname for one in caplog.records if one.message == "state.unread"] == ["WARNING"] * 2
        assert {one.action for one in node.reactor("r").events()} == {"unread"}


@pytest.mark.parametrize(("durability", "is_written"), [("interval", True), ("boundary", True), ("boundary", False)])
async def test_a_restart_names_the_fields_that_the_new_version_does_not_read(
    store: str, durability: Any, is_written: bool
) -> None:
    """D9: from a snapshot, and from the journal."""
    async with tm.testing.node(store, load=[old_version(durability=durability)]) as node:
        await node.push("total", 5.0)
        if is_written:
            await node.settle()
        node.loaded_packages = {("public", "package"): new_version(durability=durability)}
        node = await node.crash()
        assert "spent, lines.weight" in unread(node)["accumulator"]
        assert node.reactor("r").state().cache["total"]["orders"] == 1


async def test_a_value_that_does_not_fit_after_a_hot_swap_is_reported() -> None:
    """D9: it starts empty, and the report says so."""

    class Strict(tm.Boundary):
        orders: str = ""

    async with tm.testing.node(store="memory://", load=[old_version()]) as node:
        await node.push("total", 5.0)
        await node.load(new_version(Strict))
        assert "its running state no longer fits its declaration and is left out" in unread(node)["accumulator"]
        assert node.reactor("r").state().cache == {}


@pytest.mark.parametrize("restarts", [True, False])
async def test_nothing_is_reported_of_state_that_is_read_or_empty(store: str, restarts: bool) -> None:
    """A field that is not written because it has its default is read, and one that never had a value is not lost."""
    async with tm.testing.node(store, load=[old_version()]) as node:
        await node.load(new_version())
        await node.load(old_version())
        await node.push("total", 5.0)
        await node.settle()
        if restarts:
            node.loaded_packages = {("public", "package"): new_version(Terse)}
            node = await node.crash()
        else:
            await node.load(new_version(Terse))
        assert unread(node) == {}
        assert node.reactor("r").state().cache["total"]["orders"] == 1


# -- upgrade=


async def come_back(node: tm.testing.TestNode, newer: ModuleType, *, restarts: bool) -> tm.testing.TestNode:
    """Go on with a newer version."""
    if restarts:
        node.loaded_packages = {("public", "package"): newer}
        return await node.crash()
    await node.load(newer)
    return node


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("durability", ["interval", "boundary"])
async def test_upgrade_makes_the_state_from_the_stored_fields(store: str, durability: Any, restarts: bool) -> None:
    """D9: from a snapshot, the journal and a running version; the boundary in the cache is the same value."""
    seen: list[dict[str, Any]] = []

    def upgrade(stored: dict[str, Any]) -> Total:
        seen.append(stored)
        return Total(stored["spent"], stored["orders"], tuple(Line(one["price"]) for one in stored["lines"]))

    async with tm.testing.node(store, load=[old_version(durability=durability)]) as node:
        await node.push("total", 5.0)
        await node.settle()
        await node.push("total", 6.0)
        if durability == "interval":
            await node.settle()
        newer = new_version(upgrade=upgrade, durability=durability)
        node = await come_back(node, newer, restarts=restarts)
        assert unread(node) == {}
        assert {"spent": 11.0, "orders": 2, "lines": [{"price": 6.0, "weight": 1.0}]} in seen
        upgraded = {"revenue": 11.0, "orders": 2, "lines": ({"price": 6.0},)}
        assert node.reactor("r").state().cache == {"total": upgraded}
        assert node.probe.graphs.accumulator("total").emitter.held.state == Total(11.0, 2, (Line(6.0),))


@pytest.mark.parametrize("restarts", [True, False])
async def test_upgrade_is_called_for_a_value_that_does_not_fit(store: str, restarts: bool) -> None:
    """D9: a field with another type."""

    class Worded(tm.Boundary):
        orders: str = ""

    def upgrade(stored: dict[str, Any]) -> Worded:
        return Worded(str(stored["orders"]))

    async with tm.testing.node(store, load=[old_version()]) as node:
        await node.push("total", 5.0)
        await node.settle()
        node = await come_back(node, new_version(Worded, upgrade), restarts=restarts)
        assert node.reactor("r").state().cache == {"total": {"orders": "1"}}
        assert node.reactor("r").events() == []


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize(
    ("upgrade", "reason"),
    [
        (lambda stored: stored["missing"], "upgrade= raised KeyError: 'missing'"),
        (lambda stored: 5, "upgrade= returned a wrong value: expected Total"),
    ],
)
async def test_a_failing_upgrade_leaves_the_state_empty_and_is_reported(
    store: str, restarts: bool, upgrade: Any, reason: str
) -> None:
    """D9: the events say why."""
    async with tm.testing.node(store, load=[old_version()]) as node:
        await node.push("total", 5.0)
        await node.settle()
        node = await come_back(node, new_version(upgrade=upgrade), restarts=restarts)
        assert node.probe.graphs.accumulator("total").emitter.held.state == Total()
        reasons = [one.reason for one in node.reactor("r").events()]
        assert len(reasons) == 2
        assert all(reason in one for one in reasons)
