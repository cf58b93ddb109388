"""Kept values of keys with fields that a newer version does not read."""

from types import ModuleType
from typing import Any

import tidemill as tm


class Spend(tm.Boundary):
    """An event of a customer."""

    customer: str
    amount: float


class OldTotal(tm.Boundary):
    """The older running state."""

    spent: float = 0.0


class Total(tm.Boundary):
    """The newer one, with a field renamed."""

    revenue: float = 0.0


def version(state: Any, upgrade: Any = None) -> ModuleType:
    """Return a package that sums for each customer."""

    def total(event: Spend, state: Any) -> Any:
        return type(state)(getattr(state, type(state).__struct_fields__[0]) + event.amount)

    total.__annotations__ |= {"state": state, "return": state}
    declared = tm.passthrough(state=state, upgrade=upgrade)(total)
    module = ModuleType("package")
    vars(module).update(total=declared, r=tm.Reactor("r", [declared], key="customer", partitions=1))
    return module


def unread(node: tm.testing.TestNode) -> list[tuple[str, str]]:
    """Return what was reported as not read, oldest first."""
    return [(one.name, one.reason) for one in node.probe.graphs.recoveries() if one.action == "unread"]


async def test_a_hot_swap_counts_the_keys_whose_fields_are_not_read() -> None:
    """D9: one report for an accumulator, and one for its reactor."""
    async with tm.testing.node(store="memory://", load=[version(OldTotal)]) as node:
        for number in range(3):
            await node.push("total", Spend(f"c{number}", 5.0))
        await node.load(version(Total))
        lost = "has fields that its class does not have, and their values are lost: spent (key 'c0' and 2 more)"
        assert sorted(unread(node)) == [
            ("r[0]", f"a boundary of 'total' {lost}"),
            ("total[0]", f"its running state {lost}"),
        ]


async def test_keys_that_are_read_later_are_counted_and_reported_once_a_minute(store: str) -> None:
    """D9: the first is reported at once, the others together a minute later."""
    async with tm.testing.node(store, load=[version(OldTotal)]) as node:
        for number in range(5):
            await node.push("total", Spend(f"c{number}", 5.0))
        await node.settle()
        node.loaded_packages = {("public", "package"): version(Total)}
        node = await node.crash()
        assert unread(node) == []  # idle keys stay in the store
        for number in range(5):
            await node.push("total", Spend(f"c{number}", 1.0))
        ((name, first),) = unread(node)
        assert name == "r[0]"
        assert "the running state of 'total' has fields" in first
        assert first.endswith("spent (key 'c0')")
        await node.advance("60s")
        assert len(unread(node)) == 2
        assert unread(node)[-1][1].endswith("spent (key 'c0' and 4 more)")
        await node.advance("120s")
        assert len(unread(node)) == 2


async def test_the_state_of_a_key_is_upgraded_when_it_is_read(store: str) -> None:
    """D9: nothing is read at the start."""
    seen: list[float] = []

    def upgrade(stored: dict[str, Any]) -> Total:
        seen.append(stored["spent"])
        return Total(stored["spent"])

    async with tm.testing.node(store, load=[version(OldTotal)]) as node:
        for number in range(3):
            await node.push("total", Spend(f"c{number}", 5.0 + number))
        await node.settle()
        node.loaded_packages = {("public", "package"): version(Total, upgrade)}
        node = await node.crash()
        assert seen == []
        await node.push("total", Spend("c1", 1.0))
        assert set(seen) == {6.0}
        assert (await node.reactor("r").state_of("c1")).cache == {"total": {"revenue": 7.0}}
        assert unread(node) == []
